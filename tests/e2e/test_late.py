"""What comes later: turns that the gateway begins by itself, and messages from elsewhere.

Each is shown at once to who follows the thread, stands in the history of who comes later, and costs nobody a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import Watcher, history
from tests.e2e.helpers import Chat, GatedModel, Message, call, fold, hermes, script, unique, wait_until

TOOLSETS = ("terminal", "file", "todo", "clarify", "delegation")


@pytest.fixture(scope="module")
def later(model: GatedModel) -> Iterator[Gateway]:
    """A gateway whose agents delegate, with a home channel that nobody has used."""
    with Gateway(model, toolsets=TOOLSETS, env={"AGUI_HOME_CHANNEL": "local.home"}) as running:
        yield running


class Follower(Watcher):
    """A reader of a thread's feed that waits for what is said there."""

    def hears(self, part: str) -> list[Message]:
        """Until `part` was said and its run is over; the messages that the follower holds then."""

        def over(self: Watcher) -> bool:
            texts = [event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT"]
            return part in "".join(texts) and self.types[-1] == "RUN_FINISHED"

        self.wait(over, f"{part!r} on the feed")
        return fold([], self.events)


def said(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant" and message.get("content")]


def ids(messages: list[Message]) -> list[str]:
    """Of what was said and done; reasoning and activities are the client's own."""
    return [message["id"] for message in messages if message["role"] not in ("reasoning", "activity")]


def goes_on(chat: Chat, model: GatedModel, *known: str) -> None:
    """A client that has not seen what came in between writes again: nothing is taken back, all is told to it."""
    run = chat.say(script({"text": "And on."}, say=unique("mark"))).succeeded()
    assert not [event for event in run.of("CUSTOM") if event["name"] == "hermes.rewound"]
    assert said(chat.messages) == [*known, "And on."]
    assert ids(history(chat)) == ids(chat.messages)


# --- turns that the gateway begins


def test_the_result_of_a_background_delegation(later: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(later), unique("g")
    goal = script({"text": f"The child has {{gate:{gate}}} finished."})
    run = chat.say(script({"tools": [call("delegate_task", {"goal": goal})]}, {"text": "Delegated."})).succeeded()
    assert '"dispatched"' in next(iter(run.results().values()))  # the thread has a feed: the promise can be kept
    follower = Follower(chat)
    model.open_gate(gate)
    held = follower.hears("finished.")
    assert said(held)[0] == "Delegated." and said(held)[-1].endswith("finished.")
    # What Hermes tells the model of the child is no message of the user's.
    assert [message["role"] for message in history(chat)].count("user") == 1
    assert ids(history(chat)) == ids(held)
    assert "DELEGATION" in json.dumps(chat.transcript())
    goes_on(chat, model, "Delegated.", said(held)[-1])


def test_a_background_process_that_ends(later: Gateway, model: GatedModel) -> None:
    chat = Chat(later)
    command = {"command": "sleep 1; echo from-the-background", "background": True, "notify_on_complete": True}
    chat.say(script({"tools": [call("terminal", command)]}, {"text": "Started."})).succeeded()
    follower = Follower(chat)
    wait_until(lambda: "from-the-background" in json.dumps(model.requests[-1]), "the turn of its end")
    held = follower.hears("scripted demo model")
    assert [message["role"] for message in history(chat)].count("user") == 1
    assert said(history(chat)) == said(held)
    goes_on(chat, model, *said(held))


def test_a_result_that_comes_while_the_thread_answers_waits_for_its_turn(later: Gateway, model: GatedModel) -> None:
    chat, child, gate = Chat(later), unique("g"), unique("g")
    goal = script({"text": f"Child {{gate:{child}}} done."})
    chat.say(script({"tools": [call("delegate_task", {"goal": goal})]}, {"text": "Delegated."})).succeeded()
    wait_until(lambda: model.reached(child), "the child")
    run = chat.start(script({"text": f"An answer {{gate:{gate}}} of its own."})).wait_text(gate)
    model.open_gate(child)
    wait_until(lambda: "ASYNC DELEGATION" in later.log_text() or _delivered(later, chat), "the child's end", 20)
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert "An answer" in run.text()
    wait_until(lambda: any("done." in text for text in said(history(chat))), "the result")
    first, second = said(history(chat))[1:3]
    assert "of its own." in first and "done." in second


def test_a_goal_is_worked_on_without_being_asked(later: Gateway, model: GatedModel) -> None:
    chat = Chat(later)
    chat.say(script({"text": "Hello."})).succeeded()
    follower = Follower(chat)
    chat.say("/goal " + script({"text": "Working on the goal."})).succeeded()
    follower.hears("Working on the goal.")
    wait_until(lambda: said(history(chat))[-1] == "Working on the goal.", "the goal's turn")
    assert [message["role"] for message in history(chat)].count("user") == 2


def _delivered(gateway: Gateway, chat: Chat) -> bool:
    """The gateway has taken the child's result for the thread."""
    from tests.e2e.helpers import query

    rows = query(gateway, "SELECT name FROM sqlite_master WHERE name LIKE '%delegation%'")
    for (table,) in rows:
        columns = [row[1] for row in query(gateway, f"PRAGMA table_info({table})")]
        if "state" in columns or "status" in columns:
            name = "state" if "state" in columns else "status"
            return any(row[0] not in ("running", "pending") for row in query(gateway, f"SELECT {name} FROM {table}"))
    return False


def test_a_turn_that_a_crash_cut_is_gone_on_with(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """kill -9 in mid-turn: the message is there once, under its id, and the resumed turn is told to who comes back."""
    gateway = make_gateway()
    chat, gate = Chat(gateway), unique("g")
    chat.say(script({"text": "Before."})).succeeded()
    chat.start(script({"text": f"Never {{gate:{gate}}} finished."}, say=gate), message_id="cut").wait_text(gate)
    gateway.kill()
    model.open_gate(gate)
    gateway.start()
    wait_until(lambda: len(said(history(chat))) == 2, "the resumed turn")
    messages = history(chat)
    assert [message["id"] for message in messages if message["role"] == "user"] == [chat.messages[0]["id"], "cut"]
    answer = said(messages)[-1]
    assert [message["role"] for message in messages if message["role"] != "reasoning"][-2:] == ["user", "assistant"]
    # The client has the cut message and no answer; it writes again.
    goes_on(chat, model, "Before.", answer)
    asked = json.dumps(model.requests[-1])
    assert asked.count(gate) >= 1 and asked.count("Before.") >= 1
    users = [message for message in chat.messages if message["role"] == "user"]
    assert len(users) == 3


# --- messages from elsewhere


def cron_job(gateway: Gateway, text: str, deliver: str) -> None:
    """A job that says `text` without a model, due at the next tick."""
    name = unique("job")
    scripts = gateway.home / "scripts"
    scripts.mkdir(exist_ok=True)
    (scripts / f"{name}.sh").write_text(f"echo '{text}'\n")
    hermes(
        gateway,
        "cron",
        "create",
        "every 2h",
        "--name",
        name,
        "--no-agent",
        "--script",
        f"{name}.sh",
        "--deliver",
        deliver,
    )
    path = gateway.home / "cron" / "jobs.json"
    jobs: Any = json.loads(path.read_text())
    next(job for job in jobs["jobs"] if job["name"] == name)["next_run_at"] = _a_minute_ago()
    path.write_text(json.dumps(jobs))


def _a_minute_ago() -> str:
    return (datetime.now(UTC) - timedelta(minutes=1)).isoformat()


def test_a_cron_job_run_by_hand_delivers_into_a_thread(later: Gateway, model: GatedModel) -> None:
    """Out of process: through the plugin's own file, while the gateway runs."""
    chat = Chat(later)
    chat.say(script({"text": "Hello."})).succeeded()
    follower = Follower(chat)
    text = unique("cron")
    cron_job(later, text, f"agui:{chat.chat_id}")
    hermes(later, "cron", "tick")
    held = follower.hears(text)
    assert ids(history(chat)) == ids(held)
    assert said(history(chat))[0] == "Hello." and text in said(history(chat))[1]
    goes_on(chat, model, "Hello.", said(held)[-1])


def test_a_cron_job_of_the_gateway_delivers_into_a_thread_it_has_not_met(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    """In process, right after the start."""
    gateway = make_gateway()
    chat = Chat(gateway)
    chat.say(script({"text": "Hello."})).succeeded()
    by_cron = unique("cron")
    gateway.stop()
    cron_job(gateway, by_cron, f"agui:{chat.chat_id}")
    gateway.start()
    wait_until(lambda: any(by_cron in text for text in said(history(chat))), "the delivery")
    log = gateway.home / "logs" / "agent.log"
    wait_until(lambda: "via live adapter" in log.read_text(), "Hermes's word that it was delivered in process")
    goes_on(chat, model, "Hello.", said(history(chat))[-1])


def test_hermes_send_reaches_the_home_thread(later: Gateway, model: GatedModel) -> None:
    """`hermes send --to agui`: a thread that was never used, then one with a session, which keeps a mirror of it."""
    first, second, third = unique("first"), unique("second"), unique("third")
    home = Chat(later, thread="home")
    hermes(later, "send", "--to", "agui", first)
    wait_until(lambda: httpx.get(f"{later.url}/agui/threads/home").status_code == 200, "the thread")
    wait_until(lambda: said(history(home)) == [first], "the first message")
    listed = httpx.get(f"{later.url}/agui/threads").json()["threads"]
    assert "home" in [thread["threadId"] for thread in listed]
    home.say(script({"text": "I am home."})).succeeded()
    assert said(home.messages) == [first, "I am home."]
    follower = Follower(home)
    hermes(later, "send", "--to", "agui", second)
    held = follower.hears(second)
    assert said(held) == [first, "I am home.", second]
    assert second in json.dumps(home.transcript())  # Hermes has it in the session's history: once for the client
    assert ids(history(home)) == ids(held)
    goes_on(home, model, first, "I am home.", second)
    assert second in json.dumps(model.requests[-1])
    # While a turn runs: announced in it at once, a message of its own behind it.
    gate = unique("g")
    run = home.start(script({"text": f"A long {{gate:{gate}}} answer."})).wait_text(gate)
    hermes(later, "send", "--to", "agui", third)
    run.wait(lambda run: third in run.notices(), "the notice")
    model.open_gate(gate)
    home.keep(run.finish()).succeeded()
    wait_until(lambda: third in said(history(home)), "the message")
    # Hermes wrote its mirror into the session while the turn ran, so there it stands before the answer.
    assert sorted(said(history(home))[-2:]) == sorted([f"A long {{gate:{gate}}} answer.", third])
    told = next(event["value"]["extra"] for event in run.of("CUSTOM") if event["value"].get("text") == third)
    assert [message["content"] for message in history(home) if message["id"] == told["messageId"]] == [third]


def test_a_message_that_was_left_while_no_gateway_ran(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(env={"AGUI_HOME_CHANNEL": "local.inbox"})
    gateway.stop()
    text = unique("left")
    hermes(gateway, "send", "--to", "agui", text)
    gateway.start()
    inbox = Chat(gateway, thread="inbox")
    wait_until(lambda: httpx.get(f"{gateway.url}/agui/threads/inbox").status_code == 200, "the thread")
    wait_until(lambda: said(history(inbox)) == [text], "the message")
    goes_on(inbox, model, text)


def test_a_message_for_no_thread_is_refused(later: Gateway) -> None:
    told = hermes(later, "send", "--to", "agui", "hello", fails=True, AGUI_HOME_CHANNEL="nobody")
    assert "<principal>.<thread id>" in told


def test_sethome_makes_a_thread_the_home(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    first = chat.say(script({"text": "Hello."})).succeeded()
    assert not first.notices()  # nobody is bothered with a home channel in a browser tab
    chat.say("/sethome").succeeded()
    text = unique("late")
    hermes(gateway, "send", "--to", "agui", text)
    wait_until(lambda: text in said(history(chat)), "the message")
