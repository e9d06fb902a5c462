"""python chat.py "What is in this directory?"      HERMES_URL, AGUI_API_KEY and THREAD may be set. Needs httpx."""

import json
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import httpx

URL = os.environ.get("HERMES_URL", "http://127.0.0.1:8650")
KEY = os.environ.get("AGUI_API_KEY")
THREAD = os.environ.get("THREAD") or str(uuid.uuid4())


def run(client: httpx.Client, **more: Any) -> Iterator[dict[str, Any]]:
    """One run: the events of the answer, as they come."""
    body = {"threadId": THREAD, "runId": str(uuid.uuid4()), "protocolVersion": "1.0", "messages": [], **more}
    with client.stream("POST", f"{URL}/agui", json=body) as response:
        if response.status_code != 200:
            raise SystemExit(json.loads(response.read())["detail"])
        yield from (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))


def main() -> None:
    text = sys.argv[1] if len(sys.argv) > 1 else "Hello"
    asked: dict[str, Any] = {"messages": [{"id": str(uuid.uuid4()), "role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx.Client(headers=headers, timeout=None, trust_env=False) as client:
        while asked:
            interrupts = []
            for event in run(client, **asked):
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    print(event["delta"], end="", flush=True)
                elif event["type"] == "TEXT_MESSAGE_END":
                    print()
                elif event["type"] == "RUN_ERROR":
                    raise SystemExit(event["message"])
                elif event["type"] == "RUN_FINISHED":
                    interrupts = event.get("outcome", {}).get("interrupts", [])
            asked = {"resume": [answered(one) for one in interrupts]} if interrupts else {}


def answered(interrupt: dict[str, Any]) -> dict[str, Any]:
    """Ask the person at the terminal what the agent asks."""
    about = interrupt["metadata"]["hermes"]
    answer = input(f"{interrupt['message']} [{', '.join(about['choices'])}] ")
    payload = {"answer": answer} if about["kind"] == "clarify" else {"choice": answer}
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


if __name__ == "__main__":
    main()
