"""Turns of two principals at once: each sees its own session in context variables, environment and results only."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, write_plugin

pytestmark = pytest.mark.e2e

KEY = "the-owners-key-0123456789"
TURNS = 4

# Says who it believes to run for, before and after the others have begun too.
TOOL = """
import json, os, threading
from gateway.session_context import get_session_env

NAMES = ("HERMES_SESSION_KEY", "HERMES_SESSION_CHAT_ID", "HERMES_SESSION_USER_ID", "HERMES_SESSION_PLATFORM")
together = threading.Barrier(TOGETHER)


def here(args, **_):
    before = {name: str(get_session_env(name, "")) for name in NAMES}
    together.wait(60)
    after = {name: str(get_session_env(name, "")) for name in NAMES}
    environ = {name: value for name, value in os.environ.items() if name.startswith("HERMES_SESSION")}
    return json.dumps({"before": before, "after": after, "environ": environ, "word": args.get("word")})


def register(ctx):
    parameters = {"type": "object", "properties": {"word": {"type": "string"}}}
    schema = {"name": "probe_here", "description": "x", "parameters": parameters}
    ctx.register_tool(name="probe_here", toolset="here", schema=schema, handler=here)
""".replace("TOGETHER", str(2 * TURNS))


def test_nothing_of_one_reaches_another(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(
        start=False,
        toolsets=["here"],
        env={"AGUI_API_KEY": KEY},
        config={"plugins": {"enabled": ["agui", "here"]}},
    )
    write_plugin(gateway.home, "here", TOOL)
    gateway.start()
    chats = [Chat(gateway, key=key, thread=f"same-{number}") for number in range(TURNS) for key in (None, KEY)]
    words = [unique("word") for _ in chats]
    runs = [
        chat.start(
            script(
                {"tools": [call("probe_here", {"word": word}, f"here-{word}")]},
                {"text": f"{word} is done."},
            )
        )
        for chat, word in zip(chats, words, strict=True)
    ]
    ids = [chat.chat_id for chat in chats]
    for chat, word, run in zip(chats, words, runs, strict=True):
        results = chat.keep(run.finish()).succeeded().results()
        told = json.loads(results[f"here-{word}"])
        for seen in (told["before"], told["after"]):
            assert seen["HERMES_SESSION_CHAT_ID"] == chat.chat_id and chat.chat_id in seen["HERMES_SESSION_KEY"]
            assert seen["HERMES_SESSION_USER_ID"] in ("", chat.principal)
        # Hermes 0.19 itself leaves the newest session's id there (session_context.py, set_current_session_id). What a
        # shell command finds is not asserted: there Hermes shares more (SECURITY.md).
        assert told["word"] == word and told["environ"].keys() <= {"HERMES_SESSION_ID"}
        everything = run.raw.decode()
        assert not [other for other in ids if other != chat.chat_id and other in everything]
        assert not [other for other in words if other != word and other in everything]
        assert f"{word} is done." in run.text()
        assert not [other for other in words if other != word and other in json.dumps(chat.transcript())]
    # X05: nor does the model get two callers' words in one request.
    asked = [json.dumps(request["messages"]) for request in model.requests]
    assert all(sum(word in one for one in asked) >= 2 for word in words), "each turn asks twice"
    assert not [one for one in asked if sum(word in one for word in words) > 1]
