"""What runs: the model's server, the port, the gateway behind it, and one real run through all of it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from agui_adapter import __version__
from agui_adapter.config import Settings
from agui_adapter.sse import SseParser

from .findings import Finding

_SECONDS = 5  # for a server to answer
_RUN_SECONDS = 120  # for a whole run
_TEXT = "This is a connection test. Answer with the single word OK, and use no tools."


def address(settings: Settings) -> str:
    """Where a program on this machine reaches the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{settings.port}" if ":" in host else f"{scheme}://{host}:{settings.port}"


async def model(config: Mapping[str, Any]) -> Finding:
    """Whether the model's server answers. Only one with an address of its own can be asked."""
    about = config.get("model")
    about = about if isinstance(about, dict) else {"default": about}
    base, name = str(about.get("base_url") or "").rstrip("/"), about.get("default") or "no model"
    if not base:
        return Finding(
            "model", "note", f"{name}; its provider is asked only by a run", "Let the round trip below show it."
        )
    key = about.get("api_key")
    headers = {"Authorization": f"Bearer {key}"} if isinstance(key, str) and key else {}
    try:
        async with _client() as http, http.get(f"{base}/models", headers=headers) as response:
            status = response.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        text = f"the model's server does not answer ({type(error).__name__})"
        return Finding("model", "error", text, "Start it, or correct model.base_url in config.yaml.")
    if status in (401, 403):
        return Finding("model", "error", f"the model's server refuses the key ({status})", "Correct model.api_key.")
    if status >= 500:
        return Finding("model", "error", f"the model's server fails ({status})", "Look into its own log.")
    return Finding("model", "ok", f"{name}: its server answers")


async def server(url: str) -> tuple[bool, Finding]:
    """What listens at the address; True for a gateway with this plugin that is ready."""
    try:
        async with _own() as http, http.get(f"{url}/health") as response:
            status, body = response.status, await response.read()
    except aiohttp.ClientConnectorError:
        text = f"nothing listens at {url}"
        return False, Finding("gateway", "error", text, "Start it: hermes gateway (its log says why, if it does not).")
    except (aiohttp.ClientError, TimeoutError):
        text = f"what listens at {url} does not speak HTTP"
        return False, Finding("gateway", "error", text, "Stop the other program, or set agui.port to a free one.")
    try:
        found = json.loads(body)
        running, state = str(found["version"]), str(found["status"])
    except (ValueError, KeyError, TypeError):
        text = f"another program listens at {url}"
        return False, Finding("gateway", "error", text, "Stop it, or set agui.port to a free one.")
    if status != 200:
        return False, Finding(
            "gateway", "warning", f"the gateway is {state}", "Wait a little and run the doctor again."
        )
    if running != __version__:
        text = f"the gateway runs hermes-agui {running}, {__version__} is installed"
        return True, Finding("gateway", "warning", text, "Restart it: hermes gateway restart")
    return True, Finding("gateway", "ok", f"the gateway answers at {url}")


async def details(url: str, key: str) -> Iterator[Finding]:
    """What the running gateway says of itself, for the owner."""
    async with _own() as http, http.get(f"{url}/health/detailed", headers=_bearer(key)) as response:
        if response.status != 200:
            text = f"the running gateway does not take this {_KEY} ({response.status})"
            return iter([Finding("key", "error", text, "Restart the gateway after a change of .env.")])
        found = await response.json()
    findings = []
    if not found["store"]["onDisk"]:
        text = "agui.db could not be written: threads and message ids do not survive a restart"
        findings.append(
            Finding("store", "error", text, "Look at the owner and the space of HERMES_HOME, then restart.")
        )
    sessions = found.get("sessions", {})
    if not sessions.get("stored", True):
        text = f"Hermes could not write its database: {sessions['turnsLost']} turns are not remembered"
        findings.append(
            Finding("sessions", "error", text, "Look at the owner and the space of state.db in HERMES_HOME.")
        )
    if found["untappable"]:
        findings.append(Finding("live", "warning", str(found["untappable"]), "Change it, then restart the gateway."))
    turns, parked = found["turns"], found["parked"]
    text = f"{turns['running']} turns run, {parked['turns']} wait, {found['streams']['open']} streams are open"
    full = parked["turns"] >= parked["most"] or turns["running"] >= turns["most"]
    if full:
        findings.append(
            Finding("load", "warning", text + ": a limit is reached", "Raise agui.max_turns or max_parked.")
        )
    else:
        findings.append(Finding("load", "ok", text))
    return iter(findings)


_KEY = "AGUI_API_KEY"


async def round_trip(url: str, key: str) -> Finding:
    """A real run on a thread of its own, which is deleted afterwards."""
    thread, began = f"doctor-{uuid.uuid4().hex[:12]}", time.monotonic()
    body = {
        "threadId": thread,
        "runId": str(uuid.uuid4()),
        "protocolVersion": "1.0",
        "messages": [{"id": str(uuid.uuid4()), "role": "user", "content": _TEXT}],
        **{"tools": [], "context": [], "state": {}, "forwardedProps": {}},
    }
    try:
        async with _own(_RUN_SECONDS) as http:
            async with http.post(f"{url}/agui", json=body, headers=_bearer(key)) as response:
                if response.status != 200:
                    found = await response.json(content_type=None)
                    return Finding(
                        "run", "error", str(found.get("detail", response.status)), _todo(str(found.get("code")))
                    )
                parser, first, text, end = SseParser(), 0.0, "", {}
                async for chunk in response.content.iter_any():
                    for event in (json.loads(one.data) for one in parser.feed(chunk)):
                        if event["type"] == "TEXT_MESSAGE_CONTENT":
                            first = first or time.monotonic() - began
                            text += event["delta"]
                        end = event
            async with http.delete(f"{url}/agui/threads/{thread}", headers=_bearer(key)):
                pass
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Finding("run", "error", f"a run broke off ({type(error).__name__})", "Look into the gateway's log.")
    if end.get("type") == "RUN_ERROR":
        return Finding("run", "error", f"a run failed: {end.get('message')}", _todo(str(end.get("code"))))
    if end.get("type") != "RUN_FINISHED":
        return Finding("run", "error", "a run had no end", "Look into the gateway's log.")
    if "pairing approve agui" in text:
        return Finding(
            "run", "warning", "a run works, but its caller is not allowed yet", "Approve the code: hermes pairing list"
        )
    return Finding(
        "run", "ok", f"a run works: first text after {first:.2f} s, whole after {time.monotonic() - began:.2f} s"
    )


def _todo(code: str) -> str:
    if code == "not_authorized":
        return "Put AGUI_ALLOWED_USERS=local into .env and restart, or approve the pairing code: hermes pairing list"
    if code.startswith("provider_"):
        return "Correct the model and its key in Hermes: hermes model"
    if code in ("token_needed", "invalid_token"):
        return f"Run the doctor with {_KEY} in its environment."
    return "Look into the gateway's log."


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _client(seconds: float = _SECONDS) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_SECONDS))


def _own(seconds: float = _SECONDS) -> aiohttp.ClientSession:
    """For our own server on this machine, whose certificate names the address that others call it by."""
    timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=False))
