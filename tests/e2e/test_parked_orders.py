"""Every order of events around a turn that waits: repeated, stale, foreign, wrong, late and racing answers, other
messages instead of one, stop, and readers that go."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import (
    COLOR,
    answer_by_route,
    asks_client,
    deletes,
    give,
    idle,
    interrupt,
    open_requests,
    pending,
    requests_of,
    resume,
    state,
    stop,
    tool_messages,
    victim,
)
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until

TOOLS = [COLOR]
KEY = "a-key-for-the-tests-0123456789"


def expired(run: Run) -> list[dict[str, Any]]:
    return [event["value"] for event in run.of("CUSTOM") if event["name"] == "hermes.request_expired"]


def asks_question(call_id: str) -> str:
    return script({"tools": [call("clarify", {"question": "Which?"}, call_id)]}, {"text": "Thanks."})


# --- wrong payloads


@pytest.mark.parametrize(
    "payload",
    [
        {"approved": "maybe"},
        {"choice": "yes"},
        {"choice": ""},
        {},
        [],
        "maybe",
        1,
        {"choice": "deny", "reason": 5},
        {"choice": []},
    ],
)
def test_a_wrong_payload_is_refused_and_the_request_stays(gateway: Gateway, chat: Chat, payload: Any) -> None:
    folder = victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    error = resume(chat, (asked["id"], payload)).failed("invalid_answer")
    assert "once" in error["message"] and "stays open" in error["message"]
    assert answer_by_route(chat, asked["id"], {"choice": "maybe"}).status_code == 422
    assert [one["id"] for one in open_requests(chat)] == [asked["id"]] and folder.exists()
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert not folder.exists()


def test_one_wrong_answer_of_two_does_nothing(gateway: Gateway, chat: Chat) -> None:
    server, client = unique("k"), unique("k")
    folder = victim(gateway)
    calls = [call("terminal", {"command": f"rm -rf {folder}"}, server), call("get_color", {"q": "x"}, client)]
    asked = interrupt(chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS))
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": "maybe"}
    before = list(chat.messages)
    give(chat, (client, "red"), resume=[entry]).failed("invalid_answer")
    assert len(open_requests(chat)) == 2 and folder.exists()
    chat.messages = before
    give(chat, (client, "red"), resume=[entry | {"payload": "deny"}]).succeeded()
    assert folder.exists()


# --- repeated answers


def test_the_same_answer_again_is_harmless(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    one, folder = unique("c"), victim(gateway)
    asked = interrupt(chat.say(deletes(folder, call_id=one)))
    before = list(chat.messages)
    first = resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    after = chat.messages
    folder.mkdir()
    for held in (before, after):  # by a client that lost the first response, and by one that has it
        again = Chat(gateway, thread=chat.thread, messages=list(held), calls=chat.calls)
        run = resume(again, (asked["id"], {"choice": "once"})).succeeded()
        assert run.text() == first.text() and run.results() == first.results()
        assert again.messages == after
    assert folder.exists() and len(requests_of(model, one)) == 2


def test_the_same_run_again_is_harmless(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    """CopilotKit also sends the run id of the interrupted run again: two runs of one id are told apart."""
    one, folder, run_id = unique("c"), victim(gateway), unique("r")
    asked = interrupt(chat.say(deletes(folder, call_id=one), run_id=run_id))
    held = list(chat.messages)
    first = resume(chat, (asked["id"], {"choice": "once"}), run_id=run_id).succeeded()
    after, chat.messages = chat.messages, held
    second = resume(chat, (asked["id"], {"choice": "once"}), run_id=run_id).succeeded()
    assert second.events == first.events and chat.messages == after
    assert len(requests_of(model, one)) == 2


def test_another_answer_afterwards_is_refused(gateway: Gateway, chat: Chat) -> None:
    folder = victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    resume(chat, (asked["id"], {"choice": "deny"})).succeeded()
    resume(chat, (asked["id"], {"choice": "once"})).failed("request_answered")
    refused = answer_by_route(chat, asked["id"], {"choice": "once"})
    assert refused.status_code == 409 and refused.json()["code"] == "request_answered"
    assert folder.exists()


def test_many_answers_at_once_count_once(gateway: Gateway, chat: Chat) -> None:
    counter, folder = gateway.work_dir / unique("counter"), victim(gateway)
    command = f"rm -rf {folder}; echo ran >> {counter}"
    run = chat.say(script({"tools": [call("terminal", {"command": command}, unique("c"))]}, {"text": "ok"}))
    asked = interrupt(run)
    found: list[str] = []

    def answer() -> None:
        found.append(answer_by_route(chat, asked["id"], {"choice": "once"}).json()["status"])

    threads = [threading.Thread(target=answer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["answered", *["repeated"] * 7]
    idle(chat)
    assert counter.read_text() == "ran\n"


def test_a_result_again_with_the_next_one(chat: Chat, model: GatedModel) -> None:
    """The second run's history has the first result too: it is the same answer, not another one."""
    one, two = unique("k"), unique("k")
    chat.say(asks_client(one, two), tools=TOOLS)
    give(chat, (one, "red"))
    held = list(chat.messages)
    give(chat, (two, "blue")).succeeded()
    # The last answer again, by a client that lost what followed it: it goes on behind the newest of its answers.
    again = Chat(chat.gateway, thread=chat.thread, messages=held, calls=chat.calls)
    assert give(again, (two, "blue")).succeeded().text() == "The end."
    assert len(requests_of(model, one)) == 2


# --- stale and foreign ids


def test_a_stale_id_touches_nothing(gateway: Gateway, chat: Chat) -> None:
    first, second = victim(gateway), victim(gateway)
    old = interrupt(chat.say(deletes(first)))
    new = interrupt(chat.say(deletes(second)))  # a new message instead of an answer: the first is cancelled
    resume(chat, (old["id"], {"choice": "once"})).failed("request_cancelled")
    assert first.exists() and second.exists()
    assert [one["id"] for one in open_requests(chat)] == [new["id"]]
    resume(chat, (new["id"], {"choice": "deny"})).succeeded()


def test_an_unknown_id_is_told_what_to_do(chat: Chat) -> None:
    chat.say("hello").succeeded()
    assert "Send a message" in resume(chat, ("approval-0", {"choice": "once"})).failed("request_unknown")["message"]
    assert answer_by_route(chat, "approval-0", {"choice": "once"}).status_code == 404
    # With something to do beside it, it is left out.
    entry = {"interruptId": "approval-0", "status": "resolved", "payload": True}
    assert chat.say("count to 3", resume=[entry]).succeeded().text() == "1 2 3"


def test_another_threads_id_is_unknown(gateway: Gateway, chat: Chat) -> None:
    folder = victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    other = Chat(gateway)
    other.say("hello").succeeded()
    resume(other, (asked["id"], {"choice": "once"})).failed("request_unknown")
    assert answer_by_route(other, asked["id"], {"choice": "once"}).status_code == 404
    assert folder.exists()
    resume(chat, (asked["id"], {"choice": "deny"})).succeeded()


def test_another_principals_id_is_unknown(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY})
    owner, folder, one = Chat(gateway, key=KEY), victim(gateway), unique("k")
    local = Chat(gateway, thread=owner.thread)  # the same thread id, but another principal: another thread
    asked = interrupt(owner.say(deletes(folder)))
    local.say("hello").succeeded()
    resume(local, (asked["id"], {"choice": "once"})).failed("request_unknown")
    assert answer_by_route(local, asked["id"], {"choice": "once"}).status_code == 404
    assert open_requests(local) == [] and len(open_requests(owner)) == 1
    assert stop(local) == {"threadId": local.thread, "stopped": False}
    assert folder.exists()
    resume(owner, (asked["id"], {"choice": "deny"})).succeeded()

    owner.say(asks_client(one), tools=TOOLS)
    refused = httpx.post(f"{gateway.url}/agui/threads/{owner.thread}/requests/{unique()}", json={}, trust_env=False)
    assert refused.status_code == 404
    thief = Chat(gateway, thread=owner.thread, messages=list(owner.messages))
    give(thief, (one, "stolen"))
    assert len(open_requests(owner)) == 1
    give(owner, (one, "mine")).succeeded()
    assert "stolen" not in json.dumps(requests_of(model, one)[-1]["messages"])


# --- a request while another is open


@pytest.mark.parametrize("second", ["approval", "clarify", "client", "confirm"])
@pytest.mark.parametrize("first", ["approval", "clarify", "client", "confirm"])
def test_a_request_of_each_kind_after_each_kind(gateway: Gateway, first: str, second: str) -> None:
    """On one thread, one turn after the other, each stays answerable while another thread waits for the first kind."""
    waiting, chat = Chat(gateway), Chat(gateway)

    def ask(chat: Chat, kind: str) -> tuple[str, str]:
        one = unique("k")
        text = {
            "approval": deletes(victim(gateway), call_id=one),
            "clarify": asks_question(one),
            "client": asks_client(one),
            "confirm": "/reload-mcp",
        }[kind]
        run = chat.say(text, tools=TOOLS)
        return (kind, pending(run)[0] if kind == "client" else interrupt(run)["id"])

    def answer(chat: Chat, asked: tuple[str, str]) -> None:
        kind, name = asked
        payload = {"approval": {"choice": "deny"}, "clarify": {"answer": "a"}, "confirm": {"choice": "cancel"}}
        run = give(chat, (name, "x")) if kind == "client" else resume(chat, (name, payload[kind]), tools=TOOLS)
        run.succeeded()

    held = ask(waiting, first)
    answer(chat, ask(chat, first))
    answer(chat, ask(chat, second))
    assert len(open_requests(waiting)) == 1
    answer(waiting, held)
    assert open_requests(waiting) == open_requests(chat) == []


# --- expiry


def test_an_approval_expires(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"approval_timeout_seconds": 1.5}, config={"approvals": {"timeout": 1}})
    chat, folder, one = Chat(gateway), victim(gateway), unique("c")
    asked = interrupt(chat.say(deletes(folder, call_id=one)))
    idle(chat)
    assert folder.exists()
    assert "timed out" in tool_messages(requests_of(model, one)[-1])[one]
    assert chat.transcript()[-1]["content"] == "The end."  # what it said with nobody reading is in the history
    run = resume(chat, (asked["id"], {"choice": "once"}))
    assert expired(run) == [{"id": asked["id"], "kind": "approval", "toolCallId": one}]
    assert run.succeeded().text() == "The end." and list(run.results()) == [one]
    chat.assert_as_transcript()
    assert folder.exists()
    refused = answer_by_route(chat, asked["id"], {"choice": "once"})
    assert refused.status_code == 409 and refused.json()["code"] == "request_expired"


def test_a_client_call_expires(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"client_tool_timeout_seconds": 0.5})
    chat, one = Chat(gateway), unique("k")
    chat.say(asks_client(one), tools=TOOLS)
    idle(chat)
    assert "in time" in tool_messages(requests_of(model, one)[-1])[one]
    run = give(chat, (one, "too late"))
    assert expired(run) == [{"id": expired(run)[0]["id"], "kind": "client_tool", "toolCallId": one}]
    run.succeeded()
    # The history has Hermes's own result; the client's is corrected.
    chat.assert_as_transcript()
    assert "too late" not in json.dumps(chat.messages)
    assert len(requests_of(model, one)) == 2


def test_one_of_two_calls_expired(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"client_tool_timeout_seconds": 3})
    chat, one, two = Chat(gateway), unique("k"), unique("k")
    chat.say(script({"tools": [call("get_color", {}, one)]}, {"tools": [call("get_color", {}, two)]}), tools=TOOLS)
    wait_until(lambda: [asked["toolCallId"] for asked in open_requests(chat)] == [two], "the first expired")
    run = give(chat, (one, "late"))
    assert [value["toolCallId"] for value in expired(run)] == [one]
    assert pending(run) == [two]
    give(chat, (two, "in time")).succeeded()
    assert tool_messages(requests_of(model, one)[-1])[two] == "in time"
    chat.assert_as_transcript()


def test_no_limit(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"client_tool_timeout_seconds": 0})
    chat, one = Chat(gateway), unique("k")
    chat.say(asks_client(one), tools=TOOLS)
    assert "expiresAt" not in open_requests(chat)[0]
    give(chat, (one, "red")).succeeded()


def test_an_answer_races_with_its_expiry(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """Whoever wins, the caller is told, and the model got exactly that."""
    gateway = make_gateway(
        agui={"client_tool_timeout_seconds": 1, "approval_timeout_seconds": 1}, config={"approvals": {"timeout": 1}}
    )
    wins = 0
    for round_number in range(6):
        client, human = Chat(gateway), Chat(gateway)
        one, two, folder = unique("k"), unique("c"), victim(gateway)
        client.say(asks_client(one), tools=TOOLS)
        waits = open_requests(client)  # none on a machine that took a second for this
        asked = interrupt(human.say(deletes(folder, call_id=two)))
        expires = _seconds(waits[0]["expiresAt"]) if waits else time.time()
        early = 0.15 - 0.06 * round_number  # from well before to well behind, whatever the machine does to it
        wait_until(lambda expires=expires, early=early: time.time() >= expires - early, "the moment")
        run = give(client, (one, "red"))
        idle(client)
        won = not expired(run)
        assert tool_messages(requests_of(model, one)[-1])[one] == ("red" if won else _late(model, one))
        client.assert_as_transcript()

        answered = answer_by_route(human, asked["id"], {"choice": "once"})
        idle(human)
        assert answered.status_code in (200, 409)
        assert folder.exists() is (answered.status_code == 409)
        wins += won
    assert 0 <= wins <= 6


def _late(model: GatedModel, call_id: str) -> Any:
    content = tool_messages(requests_of(model, call_id)[-1])[call_id]
    assert "in time" in content
    return content


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


# --- a new message instead of an answer


def test_a_new_message_cancels_by_default(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    one, two, folder = unique("k"), unique("c"), victim(gateway)
    chat.say(asks_client(one, then="never said"), tools=TOOLS)
    run = chat.say("never mind, count to 3", tools=TOOLS).succeeded()
    assert run.text() == "1 2 3"
    told = tool_messages(requests_of(model, one)[-1])[one]
    assert "cancelled" in told and "new message" in told
    asked = interrupt(chat.say(deletes(folder, call_id=two)))
    chat.say("no, count to 4").succeeded()
    assert "BLOCKED" in tool_messages(requests_of(model, two)[-1])[two]
    assert folder.exists() and open_requests(chat) == []
    resume(chat, (asked["id"], {"choice": "once"})).failed("request_cancelled")
    assert folder.exists()


def test_a_new_message_is_refused_by_setting(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"parked": "refuse"})
    for kind in ("client", "approval", "clarify"):
        chat, one, folder = Chat(gateway), unique("k"), victim(gateway)
        text = {"client": asks_client(one), "approval": deletes(folder, call_id=one), "clarify": asks_question(one)}
        run = chat.say(text[kind], tools=TOOLS)
        marker = unique("m")
        refused = chat.start(marker, tools=TOOLS).finish()
        chat.messages.pop()
        assert refused.status == 409 and refused.problem()["code"] == "thread_waiting"
        assert open_requests(chat)[0]["id"] in refused.problem()["detail"]
        assert requests_of(model, marker) == []
        if kind == "client":
            give(chat, (one, "red")).succeeded()
        else:
            payload = {"choice": "deny"} if kind == "approval" else {"answer": "a"}
            resume(chat, (interrupt(run)["id"], payload)).succeeded()
        chat.say(marker).succeeded()


def test_a_message_with_the_answer_is_not_lost(chat: Chat, model: GatedModel) -> None:
    """Answer and message in one request: the turn gets the answer, and the message with it."""
    one = unique("k")
    chat.say(asks_client(one), tools=TOOLS)
    marker = unique("also")
    chat.messages.append({"id": unique("tm"), "role": "tool", "toolCallId": one, "content": "red"})
    chat.messages.append({"id": unique("u"), "role": "user", "content": marker})
    chat.keep(chat.send(tools=TOOLS).finish()).succeeded()
    newest = requests_of(model, one)[-1]
    assert tool_messages(newest)[one].startswith("red")
    assert marker in json.dumps(newest["messages"])


def test_nothing_new_is_told_what_is_open(chat: Chat) -> None:
    one = unique("k")
    chat.say(asks_client(one), tools=TOOLS)
    assert pending(chat.send(tools=TOOLS).finish()) == [one]
    give(chat, (one, "red")).succeeded()
    asked = interrupt(chat.say(deletes(victim(chat.gateway))))
    assert interrupt(chat.send().finish())["id"] == asked["id"]
    resume(chat, (asked["id"], {"choice": "deny"})).succeeded()


# --- stop, and readers that go


@pytest.mark.parametrize("kind", ["client", "approval", "clarify"])
def test_stop_while_parked(gateway: Gateway, chat: Chat, model: GatedModel, kind: str) -> None:
    one, folder = unique("k"), victim(gateway)
    text = {"client": asks_client(one), "approval": deletes(folder, call_id=one), "clarify": asks_question(one)}[kind]
    chat.say(text, tools=TOOLS)
    (asked,) = open_requests(chat)
    assert stop(chat) == {"threadId": chat.thread, "stopped": True}
    assert state(chat)["status"] == "idle" and open_requests(chat) == []
    assert stop(chat) == {"threadId": chat.thread, "stopped": False}
    assert len(requests_of(model, one)) == 1 and folder.exists()
    refused = answer_by_route(chat, asked["id"], {"choice": "once", "answer": "a", "content": "a"})
    assert refused.status_code == 409 and refused.json()["code"] == "request_cancelled"
    # The thread goes on, and the model knows what became of the call.
    assert chat.say("count to 3", tools=TOOLS).text() == "1 2 3"
    assert one in tool_messages(requests_of(model, one)[-1])
    assert folder.exists()


def test_the_reader_leaves_before_the_question(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    """It is asked with nobody there, can be found, and answered: the answer's run shows what is open or follows."""
    one, gate = unique("k"), unique("g")
    text = script(
        {"text": f"wait {{gate:{gate}}} now", "tools": [call("get_color", {"q": "x"}, one)]}, {"text": "The end."}
    )
    run = chat.start(text, tools=TOOLS).wait_text("wait ")
    run.leave()
    model.open_gate(gate)
    (asked,) = wait_until(lambda: open_requests(chat), "it is asked")
    assert asked["toolCallId"] == one
    chat.messages = [message | {} for message in state(chat)["messages"]]
    assert chat.messages[-1]["toolCalls"][0]["id"] == one
    chat.calls = [one]
    give(chat, (one, "red")).succeeded()
    chat.assert_as_transcript()


def test_the_reader_of_the_answer_leaves(chat: Chat, model: GatedModel) -> None:
    """The turn goes on, and what it says is in the history."""
    one, gate = unique("k"), unique("g")
    chat.say(script({"tools": [call("get_color", {"q": "x"}, one)]}, {"text": f"on {{gate:{gate}}} end"}), tools=TOOLS)
    chat.messages.append({"id": unique("tm"), "role": "tool", "toolCallId": one, "content": "red"})
    run = chat.send(tools=TOOLS).wait_text("on ")
    run.leave()
    model.open_gate(gate)
    idle(chat)
    assert chat.transcript()[-1]["content"] == f"on {{gate:{gate}}} end"
    again = chat.keep(chat.send(tools=TOOLS, run_id=unique("r")).finish())
    assert again.succeeded().text() == f"on {{gate:{gate}}} end"
    chat.assert_as_transcript()


def test_who_answered_is_logged(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(verbose=True)
    chat = Chat(gateway)
    asked = interrupt(chat.say(deletes(victim(gateway))))
    resume(chat, (asked["id"], {"choice": "deny", "reason": "a private reason"})).succeeded()
    (line,) = [line for line in gateway.log_text().splitlines() if "audit" in line and asked["id"] in line]
    assert "approval" in line and "answered by local: deny" in line and chat.chat_id in line
    assert "a private reason" not in line


def test_leaving_at_any_moment_leaves_no_stuck_turn(gateway: Gateway) -> None:
    """A turn that was accepted is processed, though its client left in that very moment."""
    chats = [Chat(gateway) for _ in range(14)]  # fewer than one caller may have at once
    for number, chat in enumerate(chats):
        run = chat.start(f"count to {number}")
        time.sleep(number * 0.004)
        run.leave()
    for chat in chats:
        url = f"{gateway.url}/agui/threads/{chat.thread}"
        if httpx.get(url, trust_env=False, timeout=30).status_code == 200:
            idle(chat)
        chat.messages = []
        assert chat.say("count to 3").succeeded().text() == "1 2 3"
