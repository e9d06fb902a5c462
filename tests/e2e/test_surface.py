"""The rest of the surface on a real gateway: steps, long tools, what a client may ask of a turn, older clients,
capabilities."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from ag_ui.core import AgentCapabilities

from agui_adapter.demo.gateway import Gateway
from agui_adapter.forwarded import NAMES
from tests.e2e.asking import deletes, interrupt, resume
from tests.e2e.attach import history
from tests.e2e.helpers import Chat, Event, GatedModel, Run, call, script, unique

KEY = "surface-test-key-0123456789"


@pytest.fixture(scope="module")
def wide(model: GatedModel) -> Iterator[Gateway]:
    """A gateway that shows and allows more than by default, and takes undeclared clients for old ones."""
    agui = {"steps": True, "long_tool_seconds": 0.5, "allow_overrides": list(NAMES), "forward_props": True}
    toolsets = ("terminal", "clarify")
    with Gateway(model, toolsets=toolsets, agui=agui | {"undeclared_client": "0.0.53"}) as running:
        yield running


def customs(run: Run, name: str) -> list[Any]:
    return [event["value"] for event in run.of("CUSTOM") if event["name"] == name]


def asks(call_id: str = "", then: str = "The end.") -> str:
    """A script that asks the user."""
    arguments = {"question": "Which?", "choices": ["red", "blue"]}
    return script({"tools": [call("clarify", arguments, call_id or unique("c"))]}, {"text": then})


def request_of(model: GatedModel, mark: str) -> dict[str, Any]:
    """The newest request whose newest user message holds `mark`."""
    return next(
        one
        for one in reversed(model.requests)
        if mark in str([message for message in one["messages"] if message["role"] == "user"][-1:])
    )


# --- steps


def steps(run: Run) -> list[str]:
    """Steps and what lies in them, shortly."""
    shown = {"STEP_STARTED": "(", "STEP_FINISHED": ")", "TOOL_CALL_START": "call", "TOOL_CALL_RESULT": "result"}
    shown |= {"TEXT_MESSAGE_START": "text", "RUN_FINISHED": "end", "RUN_ERROR": "error"}
    return [
        shown[kind] + event.get("stepName", "")
        for kind, event in zip(run.types, run.events, strict=True)
        if kind in shown
    ]


def test_each_request_with_its_tools_is_a_step(wide: Gateway) -> None:
    run = Chat(wide).say(script({"text": "a", "tools": [call("terminal", {"command": "echo x"})]}, {"text": "b"}))
    assert steps(run) == [
        *("(request 1", "text", "call", "result", ")request 1"),
        *("(request 2", "text", ")request 2", "end"),
    ]


def test_a_step_ends_with_its_run_whatever_the_end(wide: Gateway) -> None:
    chat = Chat(wide)
    run = chat.say(asks())
    assert steps(run) == ["(request 1", "call", ")request 1", "end"]
    answered = resume(chat, (interrupt(run)["id"], {"answer": "red"})).succeeded()
    assert steps(answered) == ["result", "(request 2", "text", ")request 2", "end"]
    failed = Chat(wide).say(script({"status": 401}))
    assert steps(failed)[-2:] == [")request 1", "error"]


def test_no_steps_by_default(gateway: Gateway) -> None:
    run = Chat(gateway).say(script({"text": "a"})).succeeded()
    assert not run.of("STEP_STARTED", "STEP_FINISHED", "RAW")


# --- tools that run long


def test_a_long_tool_is_told_of_while_it_runs(wide: Gateway) -> None:
    call_id = unique("c")
    run = Chat(wide).say(script({"tools": [call("terminal", {"command": "sleep 3"}, call_id)]}, {"text": "b"}))
    hints = customs(run.succeeded(), "hermes.long_tool")
    assert len(hints) >= 2 and {(hint["tool"], hint["toolCallId"]) for hint in hints} == {("terminal", call_id)}
    times = [hint["seconds"] for hint in hints]
    assert times[0] >= 0.5 and all(later >= 1.9 * earlier for earlier, later in itertools.pairwise(times))
    ends = [i for i, event in enumerate(run.events) if event["type"] == "TOOL_CALL_RESULT"]
    assert max(i for i, event in enumerate(run.events) if event.get("name") == "hermes.long_tool") < ends[0]
    assert not customs(Chat(wide).say(script({"tools": [call("terminal", {"command": "echo"})]})), "hermes.long_tool")


def test_a_turn_that_waits_for_somebody_runs_no_long_tool(wide: Gateway) -> None:
    chat = Chat(wide)
    run = chat.say(asks())
    time.sleep(0.8)  # longer than a tool may take there
    answered = resume(chat, (interrupt(run)["id"], {"answer": "red"})).succeeded()
    assert not customs(run, "hermes.long_tool") and not customs(answered, "hermes.long_tool")


# --- what a client may ask of one turn


def test_overrides_hold_for_one_turn(wide: Gateway, model: GatedModel) -> None:
    chat, first, second, third = Chat(wide), unique("one"), unique("two"), unique("three")
    chat.say(script({"text": "a"}, say=first)).succeeded()
    wanted = {"model": "scripted-2", "temperature": 0.25, "topP": 0.5, "maxTokens": 77, "reasoningEffort": "high"}
    run = chat.say(
        script({"tools": [call("terminal", {"command": "echo x"})]}, {"text": "b"}, say=second), forwardedProps=wanted
    ).succeeded()
    chat.say(script({"text": "c"}, say=third)).succeeded()
    before, during, after = (request_of(model, mark) for mark in (first, second, third))
    assert (during["model"], during["temperature"], during["top_p"]) == ("scripted-2", 0.25, 0.5)
    assert during["max_tokens"] == 77 and during["reasoning_effort"] == "high"
    assert run.end["usage"][0]["model"] == "scripted-2" and not customs(run, "hermes.notice")
    names = ("model", "temperature", "top_p", "max_tokens", "reasoning_effort")
    assert [after.get(name) for name in names] == [before.get(name) for name in names]
    # The provider's cache: what stands before the new message is as it was.
    assert after["messages"][0] == before["messages"][0] and after["tools"] == before["tools"]


def test_overrides_of_a_turn_that_fails_are_taken_back(wide: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(wide), unique("after")
    chat.say(script({"status": 401}), forwardedProps={"model": "scripted-2", "max_tokens": 5}).failed("provider_auth")
    chat.say(script({"text": "b"}, say=mark)).succeeded()
    assert request_of(model, mark)["model"] == "scripted-1" and request_of(model, mark).get("max_tokens") != 5


def test_overrides_that_are_not_allowed_are_ignored_with_a_notice(gateway: Gateway, model: GatedModel) -> None:
    mark, tenant = unique("plain"), unique("acme")
    props = {"model": "scripted-2", "temperature": "nonsense", "tenant": tenant}
    run = Chat(gateway).say(script({"text": "a"}, say=mark), forwardedProps=props).succeeded()
    (notice,) = customs(run, "hermes.notice")
    assert notice["kind"] == "override_ignored" and "model, temperature" in notice["text"]
    asked = request_of(model, mark)
    assert asked["model"] == "scripted-1" and "temperature" not in asked and tenant not in str(asked["messages"])


@pytest.mark.parametrize(
    "props",
    [{"temperature": 3}, {"top_p": "1"}, {"max_tokens": 0}, {"model": ""}, {"reasoning_effort": "hard"}],
    ids=str,
)
def test_an_override_that_cannot_be_is_refused(wide: Gateway, props: dict[str, Any]) -> None:
    run = Chat(wide).say("Hello", forwardedProps=props)
    (name,) = props
    assert run.status == 422 and f"forwardedProps.{name}" in run.problem()["detail"]


def test_the_rest_is_context_where_the_operator_wants_it(wide: Gateway, model: GatedModel) -> None:
    mark, tenant = unique("rest"), unique("acme")
    chat = Chat(wide)
    props = {"tenant": tenant, "temperature": 0.5, "command": {}}
    chat.say(script({"text": "a"}, say=mark), forwardedProps=props).succeeded()
    told = str(request_of(model, mark)["messages"][-1])
    assert tenant in told and "temperature" not in told and "command" not in told
    assert tenant not in str([message["content"] for message in history(chat) if message["role"] == "user"])


# --- older clients


@pytest.mark.parametrize(
    "payload", [{"choice": "deny"}, {"approved": False}, False, '{"choice":"deny"}', "/deny"], ids=str
)
def test_command_resume_answers_the_open_question(gateway: Gateway, tmp_path: Any, payload: Any) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    chat = Chat(gateway, version=None)
    interrupt(chat.say(deletes(folder)))
    run = chat.keep(chat.send(forwardedProps={"command": {"resume": payload}}).finish()).succeeded()
    assert run.text() == "The end." and folder.exists()
    chat.assert_as_transcript()


def test_command_resume_answers_a_question_in_words(gateway: Gateway) -> None:
    chat, call_id = Chat(gateway, version=None), unique("c")
    interrupt(chat.say(asks(call_id)))
    run = chat.keep(chat.send(forwardedProps={"command": {"resume": "blue"}}).finish()).succeeded()
    assert "blue" in run.results()[call_id]


def test_command_resume_with_nothing_open_does_nothing(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway, version=None)
    chat.say(script({"text": "a"})).succeeded()
    model.clear()
    chat.send(forwardedProps={"command": {"resume": True}}).finish().failed("request_unknown")
    assert not model.requests


def test_a_wrong_command_resume_leaves_the_question_open(gateway: Gateway, tmp_path: Any) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    chat = Chat(gateway, version=None)
    asked = interrupt(chat.say(deletes(folder)))
    chat.send(forwardedProps={"command": {"resume": "perhaps"}}).finish().failed("invalid_answer")
    assert folder.exists()
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert not folder.exists()


def test_a_client_without_interrupts_is_asked_in_words(wide: Gateway, tmp_path: Any) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    chat = Chat(wide, version=None)
    run = chat.say(deletes(folder))
    question = run.texts()[-1]
    assert str(folder) in question and "/approve" in question and "/deny" in question
    (shown,) = customs(run, "on_interrupt")
    assert shown == interrupt(run)  # a newer client that declares nothing finds it where it looks
    assert folder.exists()
    answered = chat.say("/approve").succeeded()
    assert answered.text() == "The end." and not folder.exists()
    # The question is no message of the history; the next run puts the client right.
    again = chat.say(script({"text": "and on"})).succeeded()
    assert again.of("MESSAGES_SNAPSHOT") and question not in str(chat.messages)
    assert again.text() == "and on"


def test_a_client_without_interrupts_types_its_answer(wide: Gateway) -> None:
    chat, call_id = Chat(wide, version=None), unique("c")
    question = chat.say(asks(call_id)).texts()[-1]
    assert "Which?" in question and "- red" in question and "next message" in question
    answered = chat.say("red").succeeded()
    assert "red" in answered.results()[call_id]


def test_a_client_that_declares_its_version_is_asked_by_the_outcome_alone(wide: Gateway) -> None:
    run = Chat(wide).say(asks())
    interrupt(run)
    assert not run.text() and not customs(run, "on_interrupt")


# --- capabilities


def capabilities(gateway: Gateway, **headers: str) -> dict[str, Any]:
    """What the gateway says, which must be what the SDK's model takes, with no member that it does not know."""
    answer = httpx.get(f"{gateway.url}/agui/capabilities", headers=headers, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    checked = AgentCapabilities.model_validate(made, by_alias=True, by_name=False)
    assert not _extras(checked) and "null" not in answer.text.replace('"null"', "")
    return made


def _extras(model: Any) -> list[str]:
    found = list(model.model_extra or ())
    for name in type(model).model_fields:
        value = getattr(model, name)
        for item in value if isinstance(value, list) else [value]:
            found += _extras(item) if hasattr(item, "model_extra") else []
    return found


def test_capabilities_name_what_holds_here(gateway: Gateway, wide: Gateway) -> None:
    made = capabilities(gateway)
    names = [tool["name"] for tool in made["tools"]["items"]]
    assert {"terminal", "todo", "clarify", "probe_echo"} <= set(names) and "delegate_task" not in names
    assert all(tool["parameters"]["type"] == "object" and tool["description"] for tool in made["tools"]["items"])
    assert made["transport"] == {
        "streaming": True,
        "websocket": False,
        "httpBinary": False,
        "pushNotifications": False,
        "resumable": True,
    }
    assert made["multiAgent"] == {"supported": False, "delegation": False, "handoffs": False}
    assert made["humanInTheLoop"]["interrupts"] and made["humanInTheLoop"]["approvals"]
    assert made["reasoning"] == {"supported": True, "streaming": True}
    assert made["tools"]["clientProvided"] and made["state"]["deltas"]
    assert made["custom"]["hermes"]["overrides"] == [] and not made["custom"]["hermes"]["steps"]
    assert capabilities(wide)["custom"]["hermes"]["overrides"] == list(NAMES)
    assert [tool["name"] for tool in capabilities(wide)["tools"]["items"]].count("todo") == 0


def test_capabilities_do_not_touch_a_running_turn(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(
        script({"text": f"{{gate:{gate}}}", "tools": [call("terminal", {"command": "echo x"})]}, {"text": "b"})
    )
    run.wait_text(gate)
    capabilities(gateway)
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    chat.assert_as_transcript()


def test_capabilities_of_a_gateway_that_shows_and_does_less(
    make_gateway: Callable[..., Gateway],
) -> None:
    agui = {"tool_output": "off", "reasoning": "off", "max_attachments": 0}
    made = capabilities(
        make_gateway(agui=agui, toolsets=("terminal", "delegation"), config={"approvals": {"mode": "off"}})
    )
    assert made["reasoning"] == {"supported": False, "streaming": False, "encrypted": False}
    assert "items" not in made["tools"] and made["tools"]["supported"]
    assert made["multiAgent"]["delegation"] and not made["humanInTheLoop"]["approvals"]
    assert not any(made["multimodal"]["input"].values())


def test_capabilities_of_a_gateway_that_cannot_be_streamed(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    made = capabilities(make_gateway(config={"gateway": {"proxy_url": model.url.removesuffix("/v1")}}))
    assert not made["transport"]["streaming"] and not made["humanInTheLoop"]["interrupts"]
    assert not made["tools"]["clientProvided"] and not made["reasoning"]["supported"]
    assert "proxy_url" in made["custom"]["hermes"]["noLiveStream"]


def test_capabilities_for_callers_without_access(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY, "AGUI_ALLOWED_USERS": None})
    stranger = capabilities(gateway)
    assert set(stranger) == {"identity", "transport", "custom"} and "pairing" in stranger["custom"]["hermes"]["access"]
    assert "tools" in capabilities(gateway, Authorization=f"Bearer {KEY}")
    wrong = httpx.get(
        f"{gateway.url}/agui/capabilities", headers={"Authorization": "Bearer wrong"}, timeout=30, trust_env=False
    )
    assert wrong.status_code == 401


def test_nothing_raw(gateway: Gateway) -> None:
    """`RAW` and a provider's own events are for nobody."""
    run = Chat(gateway).say(script({"reasoning": "hm", "tools": [call("todo", {})]}, {"text": "b"})).succeeded()
    events: list[Event] = run.events
    assert "RAW" not in run.types and not any("rawEvent" in event for event in events)
