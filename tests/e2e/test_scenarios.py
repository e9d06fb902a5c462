"""What CopilotKit's showcase asks of an agent back end, with real clients: the two official ones, and a page with
CopilotKit's core behind a CopilotKit runtime in Node.

Each scenario is one conversation on one page. Whatever it is about, the client must warn of nothing and refuse nothing,
what the gateway streamed must pass the sequence checker and ag-ui-validate, and the client must hold the messages and
the state that the stream says.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.state import bare, same
from tests import clients
from tests.copilot import Runtime, talk, usable
from tests.e2e.asking import COLOR, asks_client, deletes, idle, requests_of, state, tool_messages, victim
from tests.e2e.helpers import Chat, Event, GatedModel, Message, call, fold, patched, script, unique, wait_until
from tests.e2e.media import asked, images, part, png, reloaded, text
from tests.e2e.media import talk as spoken
from tests.e2e.recorder import Exchange, Recorder

COPILOTKIT = [
    pytest.mark.slow,  # its packages are large
    pytest.mark.copilotkit,
    pytest.mark.skipif(not usable(), reason="needs Node 20"),
]

pytestmark = [pytest.mark.node, pytest.mark.skipif(clients.node() is None, reason="needs Node")]

RECIPE = {
    "name": "write_recipe",
    "description": "Shows a recipe.",
    "parameters": {"type": "object", "properties": {"recipe": {"type": "object"}}},
    "metadata": {"hermes": {"writes": "/recipe", "argument": "/recipe"}},
}
CARD = {
    "name": "show_card",
    "description": "Draws a card.",
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "rows": {"type": "array"}}},
}


@pytest.fixture(scope="module")
def stage(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with all that the scenarios need."""
    toolsets = ["terminal", "file", "todo", "clarify", "delegation"]
    with Gateway(model, toolsets=toolsets, config={"model": {"supports_vision": True}}) as running:
        yield running


@pytest.fixture(scope="module")
def recorder(stage: Gateway) -> Iterator[Recorder]:
    with Recorder(stage.url) as running:
        yield running


@pytest.fixture(scope="module")
def runtime(recorder: Recorder) -> Iterator[Runtime]:
    """A CopilotKit runtime whose agent is the gateway. It adds what the page cannot say of its tools."""
    agent = {"url": f"{recorder.url}/agui", "tools": {RECIPE["name"]: RECIPE["metadata"]}}
    with Runtime({"hermes": agent}) as running:
        yield running


@dataclass
class Page:
    """One page on one thread of its own. `say` is for once: all turns of the conversation."""

    kind: Literal["1", "0", "copilotkit"]
    gateway: Gateway
    recorder: Recorder
    runtime: Runtime | None
    thread: str

    def say(self, *turns: dict[str, Any]) -> list[clients.RunRecord]:
        """Have the turns and check all that holds for every scenario; a record for each turn."""
        if self.runtime is not None:
            before, *records = talk(self.runtime, "hermes", self.thread, turns)
            assert (before.failed, before.warnings, before.messages) == (None, [], [])
            assert "".join(self.runtime.said) == ""
        else:
            assert self.kind != "copilotkit"
            records = clients.run_agent(self.kind, f"{self.recorder.url}/agui", self.thread, turns, timeout=90)
        for record in records:
            assert (record.failed, record.warnings) == (None, []), record
            assert record.of_type("RUN_ERROR") == []
        for exchange in self.exchanges:
            exchange.check()
        last = self.exchanges[-1]
        assert told(records[-1].messages) == told(fold(last.body["messages"], last.events))
        assert same(records[-1].state, patched(last.body.get("state") or {}, last.events))
        return records

    def come_back(self, next_turn: dict[str, Any]) -> tuple[list[Message], clients.RunRecord]:
        """A new page on the same thread: what it finds there, and its turn."""
        if self.runtime is not None:
            before, record = talk(self.runtime, "hermes", self.thread, [next_turn])
            assert (before.failed, before.warnings) == (None, [])
            there = before.messages
        else:
            assert self.kind != "copilotkit"
            there = reloaded(self.chat)
            run = {**next_turn, "messages": [*there, *next_turn["messages"]]}
            (record,) = clients.run_agent(self.kind, f"{self.recorder.url}/agui", self.thread, [run])
        assert (record.failed, record.warnings) == (None, []), record
        assert record.of_type("RUN_ERROR") == []
        self.exchanges[-1].check()
        return there, record

    @property
    def exchanges(self) -> list[Exchange]:
        """What reached the gateway."""
        return self.recorder.of(self.thread)

    @property
    def chat(self) -> Chat:
        return Chat(self.gateway, self.thread)


@pytest.fixture(params=["1", "0", pytest.param("copilotkit", marks=COPILOTKIT)])
def page(request: pytest.FixtureRequest, stage: Gateway, recorder: Recorder) -> Page:
    runtime = request.getfixturevalue("runtime") if request.param == "copilotkit" else None
    return Page(request.param, stage, recorder, runtime, unique())


def turn(content: str | list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A user message, and what the page does in its turn."""
    return {"messages": [{"id": unique("u"), "role": "user", "content": content}], **more}


def told(messages: Sequence[Message]) -> list[Message]:
    """Messages without members that have no value, and without activities, which no client sends."""
    kept = [
        {key: value for key, value in message.items() if value not in (None, "", [])}
        for message in messages
        if message["role"] != "activity"
    ]
    return [message for message in kept if set(message) != {"id", "role"}]


def roles(record: clients.RunRecord) -> list[str]:
    return [message["role"] for message in record.messages if message["role"] != "activity"]


def drawn(record: clients.RunRecord, kind: str) -> list[Any]:
    """What activities of this kind show."""
    return [message["content"] for message in record.messages if message.get("activityType") == kind]


def outcomes(record: clients.RunRecord) -> list[str]:
    """How the runs of a turn ended."""
    return [event.get("outcome", {}).get("type", "success") for event in record.of_type("RUN_FINISHED")]


def test_agentic_chat(page: Page, model: GatedModel) -> None:
    mark = unique("chat")
    context = [{"description": "The user's name", "value": "Ada Lovelace"}]
    first, second = page.say(
        turn(script({"text": "Hello, **Ada**."}, say=mark), context=context), turn(script({"text": "Still here."}))
    )
    assert roles(first) == ["user", "assistant"] and first.messages[-1]["content"] == "Hello, **Ada**."
    assert roles(second) == ["user", "assistant"] * 2 and second.messages[-1]["content"] == "Still here."
    assert "Ada Lovelace" in json.dumps(requests_of(model, mark)[0]["messages"])
    chat = page.chat
    assert len(chat.sessions()) == 1
    assert told(spoken(second.messages)) == told(spoken(reloaded(chat)))


def test_a_page_that_comes_back(page: Page) -> None:
    """A CopilotKit page gets the thread from the runtime's own log, other clients from ours; both go on with it."""
    folder = victim(page.gateway)
    tool = {"tools": [call("terminal", {"command": "echo seen"})], "reasoning": "I look."}
    *_, last = page.say(turn(script(tool, {"text": "Done."})), turn(deletes(folder), answers=[{"choice": "once"}]))
    again = turn(script({"text": "Welcome back."}))
    there, after = page.come_back(again)
    if page.runtime is not None:
        assert told(there) == told(last.messages)
    assert after.messages[-1]["content"] == "Welcome back."
    assert len(page.chat.sessions()) == 1


def test_back_end_tools(page: Page) -> None:
    one, two = unique("c"), unique("c")
    step = {
        "text": "I look at two things.",
        "tools": [
            call("terminal", {"command": "echo from-the-server"}, one),
            call("read_file", {"path": "no.such"}, two),
        ],
    }
    (record,) = page.say(turn(script(step, {"text": "Seen."})))
    assert roles(record) == ["user", "assistant", "tool", "tool", "assistant"]
    made = {item["id"]: item["function"] for item in record.messages[1]["toolCalls"]}
    assert json.loads(made[one]["arguments"]) == {"command": "echo from-the-server"}
    results = {message["toolCallId"]: message["content"] for message in record.messages if message["role"] == "tool"}
    assert set(results) == {one, two} and "from-the-server" in results[one]


def test_approval(page: Page, model: GatedModel) -> None:
    allowed, refused, one, two = victim(page.gateway), victim(page.gateway), unique("c"), unique("c")
    yes, no, after = page.say(
        turn(deletes(allowed, call_id=one), answers=[{"choice": "once"}]),
        turn(deletes(refused, call_id=two, then="As you say."), answers=[{"choice": "deny"}]),
        turn(script({"text": "And on."})),
    )
    assert outcomes(yes) == outcomes(no) == ["interrupt", "success"]
    assert not allowed.exists() and refused.exists()
    assert yes.messages[-1]["content"] == "The end." and no.messages[-1]["content"] == "As you say."
    assert after.interrupts == [] and after.messages[-1]["content"] == "And on."
    # The command was announced once, and the model was told once what came of it.
    assert [event["toolCallId"] for record in (yes, no) for event in record.of_type("TOOL_CALL_START")] == [one, two]
    assert set(tool_messages(requests_of(model, two)[-1])) == {one, two}
    assert len(page.chat.sessions()) == 1


def test_clarify(page: Page, model: GatedModel) -> None:
    one = unique("c")
    question = call("clarify", {"question": "Which color?", "choices": ["red", "blue"]}, one)
    choice, after = page.say(
        turn(script({"tools": [question]}, {"text": "Blue it is."}), answers=[{"answer": "blue"}]),
        turn(script({"text": "And on."})),
    )
    assert outcomes(choice) == ["interrupt", "success"]
    (interrupt,) = choice.of_type("RUN_FINISHED")[0]["outcome"]["interrupts"]
    assert "Which color?" in interrupt["message"]
    assert "blue" in tool_messages(requests_of(model, one)[-1])[one]
    assert choice.messages[-1]["content"] == "Blue it is." and after.messages[-1]["content"] == "And on."


def test_front_end_tools(page: Page, model: GatedModel) -> None:
    one, two, mixed = unique("k"), unique("k"), unique("k")
    both = script(
        {"tools": [call("terminal", {"command": "echo server-side"}), call("get_color", {"q": "x"}, mixed)]},
        {"text": "Both."},
    )
    given = {"tools": [COLOR], "results": {"get_color": "teal"}}
    first, second = page.say(turn(asks_client(one, two, then="Two colors."), **given), turn(both, **given))
    assert outcomes(first) == outcomes(second) == ["success", "success"]
    assert roles(first) == ["user", "assistant", "tool", "tool", "assistant"]
    results = tool_messages(requests_of(model, mixed)[-1])
    assert (results[one], results[two], results[mixed]) == ("teal", "teal", "teal")
    assert any("server-side" in result for result in results.values())
    assert second.messages[-1]["content"] == "Both."
    assert told(spoken(second.messages)) == told(spoken(reloaded(page.chat)))


def test_generative_ui_from_tools(page: Page) -> None:
    arguments = {"title": "Weather — Zürich ☀", "rows": [{"t": 21.5, "ok": True}, None]}
    items = [
        {"id": "1", "content": "Look", "status": "in_progress"},
        {"id": "2", "content": "Tell", "status": "pending"},
    ]
    done = [{**item, "status": "completed"} for item in items]
    card = script({"text": "A card:", "tools": [call("show_card", arguments)]}, {"text": "There."})
    plan = script(
        {"tools": [call("todo", {"todos": items})]}, {"tools": [call("todo", {"todos": done})]}, {"text": "Planned."}
    )
    shown, planned = page.say(turn(card, tools=[CARD], results={"show_card": "shown"}), turn(plan))
    (made,) = [item for message in shown.messages for item in message.get("toolCalls") or ()]
    assert made["function"]["name"] == "show_card" and json.loads(made["function"]["arguments"]) == arguments
    assert shown.messages[-1]["content"] == "There."
    # A UI that the agent's own work draws: the plan, as state and as an activity.
    assert drawn(planned, "hermes.plan") == [{"todos": done}] and planned.state["hermes"]["todos"] == done


def test_shared_state(page: Page, model: GatedModel) -> None:
    mark, one = unique("state"), unique("s")
    sets = call("set_app_state", {"changes": [{"pointer": "/recipe/title", "value": "Soup"}]})
    reads = call("read_app_state", {"pointer": "/recipe"}, one)
    first, second, third = page.say(
        turn(script({"tools": [sets]}, {"text": "Named."}), merge={"recipe": {"title": "", "steps": ["boil"]}}),
        turn(script({"text": "Noted."}, say=mark), merge={"guests": 4}),
        turn(script({"tools": [reads]}, {"text": "Read."})),
    )
    assert bare(first.state) == {"recipe": {"title": "Soup", "steps": ["boil"]}}
    assert bare(second.state) == bare(third.state) == {**bare(first.state), "guests": 4}
    assert "guests" in str(requests_of(model, mark)[0]["messages"][-1]["content"])
    assert "Soup" in tool_messages(requests_of(model, one)[-1])[one]
    assert same(third.state, state(page.chat)["state"])


def changes(events: Sequence[Event], pointer: str) -> list[str]:
    """The order of calls, changes at a pointer, and the run's end."""
    return [
        event["type"]
        for event in events
        if event["type"] in ("TOOL_CALL_END", "RUN_FINISHED")
        or any(
            operation["path"].startswith(pointer) for operation in event.get("delta", ()) if isinstance(operation, dict)
        )
    ]


def test_predictive_state(page: Page) -> None:
    """The page's document changes while the agent works: when its tool is called, before it has run."""
    recipe = {"title": "Soup", "steps": ["boil", "stir"]}
    steps = [call("set_app_state", {"changes": [{"pointer": "/progress", "value": value}]}) for value in (1, 2)]
    wrote, worked = page.say(
        turn(
            script({"tools": [call(RECIPE["name"], {"recipe": recipe})]}, {"text": "Written."}),
            merge={"recipe": {"title": "?"}},
            tools=[RECIPE],
            results={RECIPE["name"]: "shown"},
        ),
        turn(script(*({"tools": [step]} for step in steps), {"text": "Worked."})),
    )
    # Both of them in the run of the call, which waits for the page then.
    assert changes(page.exchanges[0].events, "/recipe") == ["TOOL_CALL_END", "STATE_DELTA", "RUN_FINISHED"]
    assert bare(wrote.state) == {"recipe": recipe}
    assert changes(worked.events, "/progress") == [*["TOOL_CALL_END", "STATE_DELTA"] * 2, "RUN_FINISHED"]
    assert bare(worked.state) == {"recipe": recipe, "progress": 2}


def test_subagents(page: Page, model: GatedModel) -> None:
    """Its work is an activity that every client draws; a client of 1.0 is told of it by events of their own too."""
    gate = unique("g")
    goal = script(
        {"text": "I look.", "tools": [call("terminal", {"command": "echo child"})]}, {"text": "The child's answer."}
    )
    delegates = script({"tools": [call("delegate_task", {"goal": goal})]}, {"text": f"{{gate:{gate}}} The end."})

    def open_when_told() -> None:
        try:
            wait_until(lambda: page.exchanges and b'"completed"' in page.exchanges[0].raw, "the subagent's end is told")
        finally:
            model.open_gate(gate)

    with running(open_when_told):
        (first,) = page.say(turn(delegates))
    (content,) = drawn(first, "hermes.subagent")
    assert content["status"] == "completed" and content["summary"] == "The child's answer."
    assert [step["text"] for step in content["steps"] if step["kind"] == "tool"] == ["echo child"]
    expected = ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] if page.kind == "1" else []
    assert [event["type"] for event in first.events if event["type"].startswith("SUBAGENT")] == expected
    # Hermes tells its agent of the end in a turn of its own, which nobody has asked for.
    wait_until(
        lambda: "ASYNC DELEGATION" in json.dumps([one["messages"] for one in requests_of(model, gate)]), "its turn"
    )
    idle(page.chat)
    _, after = page.come_back(turn(script({"text": "And on."})))
    assert after.messages[-1]["content"] == "And on."
    said = [message["content"] for message in reloaded(page.chat) if message["role"] == "user"]
    assert len(said) == 2 and not any("ASYNC" in str(one) for one in said)


class running:
    """A thread that lives as long as the block."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._thread.join()


def test_reasoning(page: Page) -> None:
    step = {"reasoning": "First I look.", "text": "Looking.", "tools": [call("terminal", {"command": "echo hi"})]}
    first, second = page.say(
        turn(script(step, {"reasoning": "Then I know.", "text": "Known."})),
        turn(script({"reasoning": "Easy.", "text": "Yes."})),
    )
    assert roles(first) == ["user", "reasoning", "assistant", "tool", "reasoning", "assistant"]
    thoughts = [message["content"] for message in second.messages if message["role"] == "reasoning"]
    assert thoughts == ["First I look.", "Then I know.", "Easy."]
    assert second.messages[-1]["content"] == "Yes."
    assert len(page.chat.sessions()) == 1


def test_multimodal(page: Page, model: GatedModel) -> None:
    mark, red = unique("see"), png((255, 0, 0))
    parts = [
        text(script({"text": "Red."}, say=mark)),
        part("image", red, "image/png", "red.png"),
        part("document", b"a,b\n1,2\n", "text/csv", "table.csv"),
    ]
    first, second = page.say(turn(parts), turn(script({"text": "And on."})))
    assert images(asked(model, mark, first=True)) == [red]
    assert first.messages[0]["content"] == parts and first.messages[-1]["content"] == "Red."
    assert second.messages[-1]["content"] == "And on."
    assert len(page.chat.sessions()) == 1
