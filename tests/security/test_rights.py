"""Scopes hold in text: which texts Hermes takes for commands, and whose commands they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gateway.config import Platform
from gateway.platforms.base import MessageEvent, MessageType, coerce_plaintext_gateway_command
from gateway.session import SessionSource
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.config import USER_COMMANDS
from agui_adapter.door import Ask, Door
from agui_adapter.errors import AguiError
from agui_adapter.hermes.commands import PlainMessage, message, read_command
from agui_adapter.principal import SCOPES, Principal
from agui_adapter.requests import Answer
from agui_adapter.rights import check_answer, check_command
from agui_adapter.stream import Request
from tests.scripted import serving

OWNER = Principal("owner", trusted=True, scopes=SCOPES)
ADMIN = Principal("token-admin", scopes=SCOPES)
USER = Principal("local", scopes=frozenset(("read", "run", "approve")))
RUNNER = Principal("token-runner", scopes=frozenset(("read", "run")))
DIRECT = SessionSource(platform=Platform.LOCAL, chat_id="c", chat_type="dm")
QUICK = {
    "y": {"type": "alias", "target": "/yolo"},
    "deep": {"type": "alias", "target": "y"},
    "ok": {"type": "alias", "target": "approve"},
    "again": {"type": "alias", "target": "again"},
    "fast-model": {"type": "alias", "target": "/model small"},
    "disk": {"type": "exec", "command": "df"},
}


def dispatched(event: MessageEvent) -> str:
    """The command that Hermes's own code finds in a message, as its pipeline looks for one (base.py, run.py)."""
    event.source = DIRECT
    coerce_plaintext_gateway_command(event)
    return event.get_command() or ""


def may(text: str, principal: Principal, listed: tuple[str, ...] = USER_COMMANDS) -> bool:
    command = read_command(text, QUICK)
    assert command is not None, f"{text!r} is no command"
    try:
        check_command(command, principal, listed)
    except AguiError as error:
        assert (error.status, error.code) == (403, "command_not_allowed")
        return False
    return True


COMMANDS = [
    *("/restart", "/RESTART", "/restart@bot", "/restart now", "/restart\nnow", "/restart\u2003now", "/update", "/q x"),
    *("/model", "/sethome", "/set-home", "/reload_mcp", "/resume", "/sessions", "/agents", "/background x", "/debug"),
    *("/goal x", "/kanban", "/skills", "/memory", "/personality x", "/nothing-of-this-name", "/disk", "/fast-model"),
    *("restart gateway", "Restart the gateway!", "  please restart hermes \n", "restart the hermes gateway...?"),
    *("/usage reset", "/usage reset --force", "/usage  RESET"),
]
YOLO = [
    "/yolo",
    "/YOLO",
    "/yolo@bot",
    "/yolo\n",
    "/yolo on",
    "/y",
    "/deep",
    "/queue /yolo",
    "/q  /y",
    "/steer /yolo",
    "/goal /yolo",
]
TEXTS = [
    *("hello", "", " ", "/", "/ yolo", " /yolo", "\n/yolo", "\t/yolo", "\ufeff/yolo", "\u200b/yolo", "／yolo", "⁄yolo"),
    *("x /yolo", "/usr/bin/python is broken", "//yolo", "restart gateway and then go on", "do not restart gateway"),
    *("please restart", "\\/yolo", "!yolo", "!restart", "@bot /yolo", "restart\u200b gateway"),
]


class TestCommands:
    @pytest.mark.parametrize("text", COMMANDS)
    def test_a_command_needs_admin(self, text: str) -> None:
        assert not may(text, USER) and not may(text, RUNNER)
        assert may(text, ADMIN) and may(text, OWNER)

    @pytest.mark.parametrize("text", YOLO)
    def test_turning_approvals_off_is_the_owners_alone(self, text: str) -> None:
        assert not may(text, ADMIN) and not may(text, USER)
        assert may(text, OWNER)

    @pytest.mark.parametrize("text", YOLO)
    def test_no_setting_opens_it_to_others(self, text: str) -> None:
        assert not may(text, ADMIN, ("yolo", "y", "deep", "queue", "steer"))

    @pytest.mark.parametrize("text", ["/approve", "/approve all always", "/deny", "/ok"])
    def test_approving_needs_its_scope(self, text: str) -> None:
        listed = ("approve", "deny", "ok")
        assert not may(text, RUNNER, listed)
        assert may(text, USER, listed)

    @pytest.mark.parametrize("text", [f"/{name}" for name in USER_COMMANDS] + ["/reset", "/HELP@bot me", "/compact"])
    def test_the_short_list_is_open_to_all(self, text: str) -> None:
        assert may(text, USER) and may(text, RUNNER)
        assert not may(text, RUNNER, ())

    def test_the_list_is_the_operators(self) -> None:
        assert may("/my_skill do it", USER, ("my-skill",)) and may("/my-skill", USER, ("my-skill",))
        assert may("/fast-model", USER, ("fast-model",)) and not may("/model small", USER, ("fast-model",))
        assert may("/q hello", USER, ("queue",)) and not may("/q /restart", USER, ("queue",))

    def test_an_alias_of_itself_ends(self) -> None:
        assert not may("/again", USER)


class TestTexts:
    @pytest.mark.parametrize("text", TEXTS)
    def test_what_is_no_command_is_free(self, text: str) -> None:
        assert read_command(text, QUICK) is None
        assert dispatched(MessageEvent(text=text)) == ""

    @given(st.text() | st.text().map("/{}".format) | st.sampled_from([*COMMANDS, *YOLO, *TEXTS]))
    def test_what_hermes_dispatches_is_what_is_checked(self, text: str) -> None:
        command = read_command(text, {})
        assert (command.typed if command is not None else "") == dispatched(MessageEvent(text=text))

    @given(st.text() | st.text().map("/{}".format) | st.sampled_from([*COMMANDS, *YOLO, *TEXTS]))
    def test_a_plain_message_is_never_a_command_and_keeps_its_text(self, text: str) -> None:
        event = message(text, commands=False)
        assert dispatched(event) == "" and not event.is_command()
        assert event.text == text and event.get_command_args() == text

    def test_other_plugins_may_rewrite_a_plain_message_but_not_into_a_command(self) -> None:
        from dataclasses import replace  # as the hook pre_gateway_dispatch has it done

        event = replace(message("hello", commands=False), text="/yolo")
        assert isinstance(event, PlainMessage) and event.get_command() is None

    def test_what_may_be_a_command_is_hermess_own_event(self) -> None:
        event = message("/help", commands=True)
        assert type(event) is MessageEvent and event.message_type is MessageType.TEXT
        assert message("hello", commands=False).message_type is MessageType.TEXT


def answers(kind: Any, choice: str, principal: Principal) -> str:
    """The scope that is missing for an answer, if any."""
    try:
        check_answer(Request("r", kind), Answer(choice=choice, text="x"), principal)
    except AguiError as error:
        assert (error.status, error.code) == (403, "scope_missing")
        return error.message.split("`")[1]
    return ""


@pytest.mark.parametrize(
    ("kind", "choice", "scopes", "missing"),
    [
        ("approval", "once", "read run", "approve"),
        ("approval", "session", "read run admin", "approve"),
        ("approval", "once", "approve", ""),
        ("approval", "session", "approve", ""),
        ("approval", "always", "run approve", "admin"),
        ("approval", "always", "approve admin", ""),
        ("approval", "deny", "run", ""),
        ("approval", "deny", "approve", ""),
        ("approval", "deny", "read admin", "run"),
        ("confirm", "once", "run", "approve"),
        ("confirm", "cancel", "run", ""),
        ("confirm", "always", "approve", "admin"),
        ("clarify", "", "run", ""),
        ("clarify", "", "read approve admin", "run"),
        ("client_tool", "", "run", ""),
        ("client_tool", "", "read", "run"),
    ],
)
def test_who_may_answer(kind: str, choice: str, scopes: str, missing: str) -> None:
    some = Principal("p", scopes=frozenset(scopes.split()))  # type: ignore[arg-type]
    assert answers(kind, choice, some) == missing


def test_a_principal_has_no_scope_of_itself() -> None:
    assert not any(Principal("p").may(scope) for scope in SCOPES)


async def test_other_doors_carry_text_not_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REST and MCP: even the owner's /yolo is for the model there, unless the caller asks for commands."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        door = Door(adapter)
        for number, text in enumerate(("/yolo", "restart gateway")):
            await (await door.open(OWNER, f"t{number}", Ask(text))).wait()
            turn = adapter.submitted[-1]
            assert (turn.text, turn.commands) == (text, False)
        await (await door.open(OWNER, "t2", Ask("/help", commands=True))).wait()
        assert adapter.submitted[-1].commands
        with pytest.raises(AguiError) as caught:
            await door.open(USER, "t3", Ask("/restart", commands=True))
        assert caught.value.code == "command_not_allowed"
        assert len(adapter.submitted) == 3


async def test_a_pending_update_takes_nobodys_words_but_an_admins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway would take any text of that session for the answer to /update's question (run.py)."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        door, key = Door(adapter), adapter.key_of(adapter.threads.get(USER, "t"))
        adapter.gateway_runner._update_prompt_pending = {key: True}
        for ask in (Ask("y"), Ask("y", commands=True), Ask("/help", commands=True)):
            with pytest.raises(AguiError) as caught:
                await door.open(USER, "t", ask)
            assert caught.value.code == "gateway_asks"
        await (await door.open(USER, "another", Ask("y"))).wait()
        await (await door.open(Principal("local", scopes=SCOPES), "t", Ask("y", commands=True))).wait()
