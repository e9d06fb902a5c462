"""Secrets in what the agent says, does and reads: in no event, whole or in pieces, and in no message shown later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent.redact import _PREFIX_SUBSTRINGS, redact_sensitive_text
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.demo.gateway import Gateway
from agui_adapter.hermes import redaction
from agui_adapter.hermes.redaction import hide
from agui_adapter.hermes.redaction import redact_lines as redact
from agui_adapter.log import EventLog
from agui_adapter.secrets_hold import _PLAIN, _SIGNS, PREFIXES, SecretsHold
from agui_adapter.session import Principal, Thread
from agui_adapter.stream import MessageChunk
from agui_adapter.tap import Call, Secrets, Tap
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, write_plugin

SK, GH = "sk-proj4abcdefghijklmnop1234567890", "ghp_ABCdefghijklmnop1234567890"
TEXTS = [
    f"Here is {SK} for you.\nAnd a second line.",
    f"two\n{GH}\nmore {SK}\nend",
    f"{SK}",
    f"a key: `{GH}`, and text behind it",
    "password: hunter2secret and more\nfine",
    "export OPENAI_API_KEY=abcdef123456789\nnext",
    "Authorization: Bearer abcdefghijklmnop12345 done",
    "postgres://user:secretpassword@host/db is the database",
    "call +4915112345678 now",
    "-----BEGIN PRIVATE KEY-----\nMIIEabc\n-----END PRIVATE KEY-----\nafter",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF12345 is a token",
    '{"api_key": "abcdef1234567"}',
    "bot 123456789:AAabcdefghijklmnopqrstuvwxyz0123456 here",
]
PLAIN = [
    "Some words - with a dash, team_name, 1+1=2, s, sk, g, xo and fc at the end of fc",
    "See https://example.org/path?q=1 and mailto:someone at noon: 12:30",
    "def am_i(x_y): return x_y  # e-mail, sk8, SGML",
]


def pieces(text: str, size: int) -> list[str]:
    return [text[index : index + size] for index in range(0, len(text), size)]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
def test_a_streamed_secret_is_what_the_redactor_makes_of_the_whole(text: str, size: int) -> None:
    hold = SecretsHold(redact)
    shown = [hold.feed(piece) for piece in pieces(text, size)]
    assert "".join(shown) + hold.rest() == redact(text) != text


@given(st.sampled_from(TEXTS), st.sampled_from(PLAIN), st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_wherever_it_is_cut(secret: str, plain: str, cuts: list[int]) -> None:
    text, hold, shown, place = f"{plain}\n{secret}\n{plain}", SecretsHold(redact), "", 0
    for size in cuts:
        shown += hold.feed(text[place : place + size])
        place += size
    shown += hold.feed(text[place:]) + hold.rest()
    assert shown == redact(text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_streams_as_it_comes(text: str) -> None:
    hold = SecretsHold(redact)
    late, shown = 0, ""
    for place in range(len(text)):
        shown += hold.feed(text[place])
        late = max(late, len(hold.held))
    assert shown + hold.rest() == text
    assert late <= 40, "no more than a word or an address waits"


def test_the_list_is_hermess() -> None:
    assert all(any(one.startswith(known) or known.startswith(one) for known in PREFIXES) for one in _PREFIX_SUBSTRINGS)


@given(st.from_regex(_SIGNS))
def test_a_text_with_a_sign_is_never_taken_for_plain(text: str) -> None:
    assert not _PLAIN(text)


def test_json_stays_json_and_harmless_values_stay() -> None:
    text = json.dumps(
        {"output": f"first\n{SK}\nlast", "key": "ArrowDown", "token": "x", "n": [1, {"header": f"token {GH}"}]}
    )
    shown = hide(text)
    assert SK not in shown and GH not in shown
    found = json.loads(shown)
    assert (found["key"], found["token"], found["n"][0]) == ("ArrowDown", "x", 1)
    harmless = '{"a":  1, "b": ["x"]}'
    assert hide(harmless) == harmless and hide("plain text") == "plain text"


def test_a_text_without_secrets_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(text: str, **more: bool) -> str:
        looked.append(text)
        return redact_sensitive_text(text, **more)

    monkeypatch.setattr(redaction, "redact_sensitive_text", look)
    monkeypatch.setattr(redaction, "_MOST", 3)
    plain, bad = f"{unique()} " * 20, f"{unique()} {SK} " * 20
    for function in (redact, hide):  # what one has seen says nothing about the other
        looked.clear()
        assert function(plain) == function(plain) == plain and len(looked) == 1
        assert function(bad) == function(bad) and SK not in function(bad)
        for _ in range(3):
            function(f"{unique()} " * 20)
        looked.clear()
        assert function(plain) == plain and looked  # it was the oldest of three


def test_a_tap_tells_none() -> None:
    loop = asyncio.new_event_loop()
    turn = Thread(Principal("p"), "t", "p.t").begin(EventLog(loop))
    tap = Tap(turn, max_result_chars=1000, shown=redact, secrets=Secrets(redact, hide))
    tap.begin()
    for piece in pieces(f"I think of {SK}\nlong.", 3):
        tap.reason(piece)
    answer = f"It is {SK}, and\nthat is all."
    for piece in pieces(answer, 4):
        tap.text(piece)
    one = Call("c1", "terminal", json.dumps({"command": f"echo {GH}"}))
    tap.answered(answer, [one], None)
    tap.committed([one])
    tap.result("c1", "terminal", f"output\n{GH}")
    tap.notice("notice", f"a notice with {SK}")
    tap.inner_result("c1", tap.inner_call("c1", "read_file", f'{{"x":"{SK}"}}'), f"inner {GH}", True, 0.1)
    tap.text(f"The end {GH}")
    tap.final(f"The end {GH}")
    tap.stop()
    told = repr(turn.log.events())
    assert SK not in told and GH not in told and SK[7:20] not in told
    assert "that is all." in "".join(one.text for one in turn.log.events() if isinstance(one, MessageChunk))
    loop.close()


TOOL = """
import json

def leak(args, **_):
    return json.dumps({"found": "SECRET_ONE", "lines": "a\\nSECRET_TWO\\nb"})

def fail(args, **_):
    raise RuntimeError("refused for SECRET_ONE")

def register(ctx):
    for name, handler in (("probe_leak", leak), ("probe_fail", fail)):
        parameters = {"type": "object", "properties": {"word": {"type": "string"}}}
        schema = {"name": name, "description": "x", "parameters": parameters}
        ctx.register_tool(name=name, toolset="leaky", schema=schema, handler=handler)
"""


@pytest.fixture
def leaky(make_gateway: Callable[..., Gateway]) -> Iterator[Gateway]:
    gateway = make_gateway(
        start=False, toolsets=["leaky", "terminal"], config={"plugins": {"enabled": ["agui", "leaky"]}}, verbose=True
    )
    write_plugin(gateway.home, "leaky", TOOL.replace("SECRET_ONE", SK).replace("SECRET_TWO", GH))
    gateway.start()
    yield gateway


def test_at_a_real_gateway(leaky: Gateway, model: GatedModel) -> None:
    chat = Chat(leaky)
    steps = [
        {"text": f"I use {SK} now.", "tools": [call("probe_leak", {"word": GH}), call("probe_fail", {})]},
        {"text": f"Found {GH}\nand no more."},
    ]
    run = chat.say(script(*steps)).succeeded()
    answers = [message for message in chat.messages if message["role"] != "user"]
    assert SK not in json.dumps(answers) and GH not in json.dumps(answers)
    body = run.raw.decode()
    for secret in (SK, GH):
        assert secret not in body.replace("\\\\", "\\"), "no event has it"
    assert "and no more." in run.text() and not run.of("MESSAGES_SNAPSHOT")
    import httpx

    shown = httpx.get(f"{leaky.url}/agui/threads/{chat.thread}", timeout=30).json()["messages"]
    told = json.dumps([message for message in shown if message["role"] != "user"])
    assert SK not in told and GH not in told and "and no more." in told
    log = Path(leaky.log_path).read_text("utf-8", "replace")
    ours = [line for line in log.splitlines() if "agui" in line]
    assert not any(SK in line or GH in line for line in ours)


def test_a_providers_error(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    chat = Chat(make_gateway())
    run = chat.say(script({"status": 401, "message": f"Incorrect API key provided: {SK}"}))
    assert run.end["type"] == "RUN_ERROR" and SK not in run.raw.decode()
