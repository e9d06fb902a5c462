"""What the tests of waiting turns share: what a run waits for, how a client answers it, and what came of it."""

from __future__ import annotations

import json
from typing import Any

import httpx

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until

COLOR = {
    "name": "get_color",
    "description": "Asks the user for a color.",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
}


def interrupts(run: Run) -> list[dict[str, Any]]:
    """Assert that the run ended with interrupts, and return them."""
    assert run.status == 200, run.raw.decode()
    assert run.end["type"] == "RUN_FINISHED", run.end
    assert run.end["outcome"]["type"] == "interrupt", run.end
    found: list[dict[str, Any]] = run.end["outcome"]["interrupts"]
    return found


def interrupt(run: Run) -> dict[str, Any]:
    """The only interrupt of a run."""
    (found,) = interrupts(run)
    return found


def pending(run: Run) -> list[str]:
    """Assert that the run ended with success and calls for the client, and return their ids."""
    assert run.status == 200, run.raw.decode()
    outcome = run.end["outcome"]
    assert outcome["type"] == "success", run.end
    found: list[str] = outcome["pendingToolCallIds"]
    return found


def resume(chat: Chat, *answers: tuple[str, Any], **more: Any) -> Run:
    """Answer interrupts by id, each with a payload (None: cancelled), wait for the end and keep what it says."""
    entries = [
        {"interruptId": name, "status": "cancelled"}
        if payload is None
        else {"interruptId": name, "status": "resolved", "payload": payload}
        for name, payload in answers
    ]
    return chat.keep(chat.send(resume=entries, **more).finish())


def give(chat: Chat, *results: tuple[str, Any], error: str = "", **more: Any) -> Run:
    """Answer client tools by call id, in one run; each answer is a tool message where a client would put it."""
    for call_id, content in results:
        message = {"id": unique("tm"), "role": "tool", "toolCallId": call_id, "content": content}
        if error:
            message["error"] = error
        place = 1 + next(
            index
            for index, one in enumerate(chat.messages)
            if any(made["id"] == call_id for made in one.get("toolCalls") or ())
        )
        while place < len(chat.messages) and chat.messages[place]["role"] == "tool":
            place += 1
        chat.messages.insert(place, message)
    return chat.keep(chat.send(**({"tools": [COLOR]} | more)).finish())


def deletes(folder: Any, *, call_id: str = "", then: str = "The end.", text: str = "I delete.") -> str:
    """A script whose command Hermes calls dangerous; its effect is that `folder` is gone."""
    return script(
        {"text": text, "tools": [call("terminal", {"command": f"rm -rf {folder}"}, call_id or unique("c"))]},
        {"text": then},
    )


def asks_client(*call_ids: str, then: str = "The end.", say: str = "") -> str:
    """A script with one step of calls of the client's tool."""
    return script({"tools": [call("get_color", {"q": name}, name) for name in call_ids]}, {"text": then}, say=say)


def victim(gateway: Gateway) -> Any:
    """A folder that a command may delete."""
    folder = gateway.work_dir / unique("victim")
    folder.mkdir(parents=True)
    return folder


def headers(chat: Chat) -> dict[str, str]:
    return {"Authorization": f"Bearer {chat.key}"} if chat.key else {}


def state(chat: Chat) -> dict[str, Any]:
    """What the thread waits for: `GET /agui/threads/{id}`."""
    found = httpx.get(f"{chat.gateway.url}/agui/threads/{chat.thread}", headers=headers(chat), trust_env=False)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


def open_requests(chat: Chat) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = state(chat)["requests"]
    return found


def answer_by_route(chat: Chat, request_id: str, payload: Any) -> httpx.Response:
    """`POST /agui/threads/{id}/requests/{request_id}`."""
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/requests/{request_id}"
    return httpx.post(url, json=payload, headers=headers(chat), trust_env=False, timeout=30)


def stop(chat: Chat) -> dict[str, Any]:
    """`POST /agui/threads/{id}/stop`."""
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/stop"
    found = httpx.post(url, headers=headers(chat), trust_env=False, timeout=30)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


def idle(chat: Chat) -> None:
    """Wait until nothing runs on the thread."""
    wait_until(lambda: state(chat)["status"] == "idle", "the thread is idle")


def requests_of(model: GatedModel, marker: str) -> list[dict[str, Any]]:
    """The model's requests whose conversation holds `marker`, oldest first."""
    return [one for one in model.requests if marker in json.dumps(one["messages"])]


def tool_messages(request: dict[str, Any]) -> dict[str, Any]:
    """Call id → content of the tool messages that the model received; fails if a call has two."""
    found: dict[str, Any] = {}
    for message in request["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] not in found, request["messages"]
            found[message["tool_call_id"]] = message["content"]
    return found
