"""The client's history and Hermes's: each row of that section of the design, with what the model got each time.

Nothing is ever deleted: what a rewind takes back stays in Hermes's database and can be restored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, request, trimmed
from tests.e2e.helpers import Chat, GatedModel, Message, Run, call, plain, query, script, unique


def user(text: str, message_id: str = "") -> Message:
    return {"id": message_id or unique("u"), "role": "user", "content": text}


def said(text: str, *calls: dict[str, Any]) -> Message:
    made: Message = {"id": unique("a"), "role": "assistant"}
    if text:
        made["content"] = text
    if calls:
        made["toolCalls"] = list(calls)
    return made


def of(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def got(model: GatedModel) -> list[tuple[str, Any]]:
    """What the model was sent last, without Hermes's own system prompt: role, and text or calls."""
    made = []
    for message in model.requests[-1]["messages"]:
        if message["role"] != "system":
            text = message.get("content") or ""
            if not isinstance(text, str):
                text = "".join(part.get("text", "") for part in text)
            # To the very first message of a home Hermes adds a note of its own.
            made.append((message["role"], text.partition("\n\n[System note: This is the user's very first")[0]))
    return made


def system(model: GatedModel) -> str:
    return str(next(m["content"] for m in model.requests[-1]["messages"] if m["role"] == "system"))


def rows(chat: Chat) -> dict[int, int]:
    """Row id → active, of everything that Hermes has of the thread."""
    return dict(
        query(
            chat.gateway,
            "SELECT m.id, m.active FROM messages m JOIN sessions s ON s.id = m.session_id WHERE s.chat_id = ?",
            chat.chat_id,
        )
    )


def customs(run: Run) -> list[str]:
    return [event["name"] for event in run.of("CUSTOM")]


@pytest.fixture
def chat(gateway: Gateway) -> Chat:
    """Three turns: u1 a1 u2 a2 u3 a3."""
    made = Chat(gateway)
    for number in (1, 2, 3):
        made.say(script({"text": f"Answer {number}."}, say=f"q{number}"), message_id=f"u{number}").succeeded()
    return made


def ask(number: int) -> tuple[str, str]:
    return ("user", script({"text": f"Answer {number}."}, say=f"q{number}"))


def answer(number: int) -> tuple[str, str]:
    return ("assistant", f"Answer {number}.")


def same(chat: Chat) -> None:
    """Client, GET and Hermes agree."""
    assert trimmed(history(chat)) == trimmed(chat.messages)
    chat.assert_as_transcript()


# --- going on


def test_the_new_tail_only(chat: Chat, model: GatedModel) -> None:
    new = script({"text": "Four."}, say="q4")
    run = chat.say(new).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3), ("user", new)]
    assert not run.of("MESSAGES_SNAPSHOT") and not customs(run)
    same(chat)


def test_several_new_messages_are_one_input(chat: Chat, model: GatedModel) -> None:
    chat.messages += [user("first thing"), user("second thing")]
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model)[-1] == ("user", "first thing\n\nsecond thing")
    assert got(model)[:-1] == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3)]
    assert trimmed(history(chat)) == trimmed(chat.messages)  # as two messages, as they were sent
    chat.messages += [user("and on")]
    run = chat.keep(chat.send().finish()).succeeded()
    assert not run.of("MESSAGES_SNAPSHOT")
    assert got(model)[6:] == [("user", "first thing\n\nsecond thing"), ("assistant", chat.messages[8]["content"]),
                              ("user", "and on")]  # fmt: skip


def test_repeated_identical_messages_are_both_kept(gateway: Gateway, model: GatedModel) -> None:
    chat, text = Chat(gateway), script({"text": "Same answer."}, say="the very same")
    for _ in range(3):
        chat.say(text).succeeded()
    assert got(model) == [("user", text), ("assistant", "Same answer.")] * 2 + [("user", text)]
    same(chat)
    assert len(history(chat)) == 6
    chat.messages += [user(text), user(text)]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model)[-1] == ("user", f"{text}\n\n{text}")
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_only_the_newest_message(chat: Chat, model: GatedModel) -> None:
    """A client without memory goes on, and is told the rest, in the right order."""
    before = list(chat.messages)
    new = user(script({"text": "Four."}, say="q4"))
    chat.messages = [new]
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3), ("user", new["content"])]
    assert chat.messages[:-1] == [*before, new]
    assert run.of("MESSAGES_SNAPSHOT")
    same(chat)


def test_a_client_that_lacks_the_middle_or_the_beginning(chat: Chat, model: GatedModel) -> None:
    for missing in (slice(0, 4), slice(2, 4), slice(0, -1)):
        whole, new = list(chat.messages), user(script({"text": "More."}, say=unique()))
        del chat.messages[missing]
        chat.messages.append(new)
        run = chat.keep(chat.send().finish()).succeeded()
        assert run.of("MESSAGES_SNAPSHOT")
        assert chat.messages[:-1] == [*whole, new]
        same(chat)
    assert got(model)[:6] == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3)]


def test_another_window_that_has_seen_less_is_told(chat: Chat, model: GatedModel) -> None:
    """It holds the last answer's question but not the answer: it goes on, behind the answer."""
    window = Chat(chat.gateway, thread=chat.thread, messages=chat.messages[:-1])
    new = user(script({"text": "Four."}, say="q4"))
    window.messages.append(new)
    run = window.keep(window.send().finish()).succeeded()
    # u3 is known and answered: only what is new is input.
    assert got(model)[-3:] == [ask(3), answer(3), ("user", new["content"])]
    assert run.of("MESSAGES_SNAPSHOT")
    assert [message["id"] for message in window.messages[:6]] == [message["id"] for message in chat.messages]
    same(window)


# --- going back


def test_regenerate(chat: Chat, model: GatedModel) -> None:
    before = rows(chat)
    old = chat.messages.pop()
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3)]
    (notice,) = [event for event in run.of("CUSTOM") if event["name"] == "hermes.rewound"]
    assert notice["value"] == {"messageId": "u3", "turns": 1}
    assert not run.of("MESSAGES_SNAPSHOT")
    assert old["id"] not in [message["id"] for message in history(chat)]
    same(chat)
    after = rows(chat)
    assert before.keys() <= after.keys()
    assert sorted(before[row] - after[row] for row in before) == [0] * (len(before) - 2) + [1, 1]
    chat.say(script({"text": "Four."}, say="q4")).succeeded()
    assert got(model)[:-1] == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3)]


def test_regenerate_again_and_again(chat: Chat, model: GatedModel) -> None:
    for _ in range(3):
        chat.messages.pop()
        chat.keep(chat.send().finish()).succeeded()
        assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3)]
        same(chat)


def test_regenerate_a_message_that_reads_like_hermess_own_words(chat: Chat, model: GatedModel) -> None:
    """What a client sent is the user's, whatever it looks like."""
    said = "[System note: " + script({"text": "Noted."}, say="it is late")
    chat.say(said).succeeded()
    chat.messages.pop()
    run = chat.keep(chat.send().finish()).succeeded()
    assert run.text() == "Noted."
    assert [one for one in got(model) if one[0] == "user"][-1] == ("user", said)
    assert next(e["value"]["turns"] for e in run.of("CUSTOM") if e["name"] == "hermes.rewound") == 1
    same(chat)


def test_regenerate_the_first_answer(chat: Chat, model: GatedModel) -> None:
    chat.messages = chat.messages[:1]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1)]
    same(chat)


def test_regenerate_without_any_history(chat: Chat, model: GatedModel) -> None:
    """The known message alone: it is answered again where it stands."""
    whole = list(chat.messages)
    chat.messages = whole[2:3]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2)]
    assert [message["id"] for message in chat.messages[:3]] == ["u1", whole[1]["id"], "u2"]
    same(chat)


def test_edit_in_the_middle_with_a_new_id(chat: Chat, model: GatedModel) -> None:
    before, new = rows(chat), user(script({"text": "Edited."}, say="q2 but better"))
    chat.messages = [*chat.messages[:2], new]
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ("user", new["content"])]
    assert next(e["value"] for e in run.of("CUSTOM") if e["name"] == "hermes.rewound") == {
        "messageId": "u2",
        "turns": 2,
    }
    same(chat)
    after = rows(chat)
    assert before.keys() <= after.keys()
    assert sum(before[row] - after[row] for row in before) == 4


def test_edited_text_under_the_same_id(chat: Chat, model: GatedModel) -> None:
    edited = script({"text": "Edited."}, say="q3 but better")
    chat.messages = [*chat.messages[:4], user(edited, "u3")]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ("user", edited)]
    same(chat)
    assert history(chat)[4] == {"id": "u3", "role": "user", "content": edited}
    earlier = script({"text": "Earlier."}, say="q2 but better")
    chat.messages = [*chat.messages[:2], user(earlier, "u2")]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ("user", earlier)]
    same(chat)


def test_a_truncated_history_with_a_new_message(chat: Chat, model: GatedModel) -> None:
    new = user(script({"text": "From the start."}))
    chat.messages = [*chat.messages[:1], new]  # not even the first answer is left
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ("user", new["content"])]
    assert run.of("MESSAGES_SNAPSHOT")  # the first answer is in the history, and so it comes back
    same(chat)


def test_a_message_that_shared_a_turn_with_one_that_is_taken_back_is_said_again(
    gateway: Gateway, model: GatedModel
) -> None:
    chat = Chat(gateway)
    chat.messages = [user("alpha", "ua"), user("beta", "ub")]
    chat.keep(chat.send().finish()).succeeded()
    new = user("gamma")
    chat.messages = [*chat.messages[:1], new]  # beta edited away; alpha stays
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [("user", "alpha\n\ngamma")]
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert [message["id"] for message in history(chat)][:2] == ["ua", new["id"]]


def test_what_was_taken_back_can_be_restored(chat: Chat) -> None:
    """Hermes's own `restore_rewound` finds every row."""
    before = chat.transcript()
    chat.messages = [*chat.messages[:2], user(script({"text": "Edited."}))]
    chat.keep(chat.send().finish()).succeeded()
    (session,) = chat.sessions()
    inactive = query(
        chat.gateway,
        "SELECT role, content FROM messages WHERE session_id = ? AND active = 0 AND compacted = 0 ORDER BY id",
        session,
    )
    assert [tuple(row) for row in inactive] == [(m["role"], m["content"]) for m in before[2:]]
    assert query(chat.gateway, "SELECT rewind_count FROM sessions WHERE id = ?", session) == [(1,)]


def test_a_history_that_was_cut_at_a_tool_is_refused_with_what_to_do(gateway: Gateway) -> None:
    chat = Chat(gateway)
    chat.say(script({"tools": [call("terminal", {"command": "echo x"})]}, {"text": "Done."})).succeeded()
    whole = list(chat.messages)
    for cut in (3, 2):
        chat.messages = whole[:cut]
        refused = chat.send().finish()
        assert refused.status in (400, 409), refused.raw
        assert refused.problem()["code"] in ("no_open_call", "no_input")
        assert refused.problem()["detail"]
    chat.messages = whole
    chat.say(script({"text": "Still here."})).succeeded()
    same(chat)


def test_a_conversation_that_went_on_elsewhere_is_told_what_the_agent_knows(chat: Chat, model: GatedModel) -> None:
    """The client holds turns that this agent never saw: they are taken from it, visibly."""
    new = user(script({"text": "Here again."}))
    chat.messages = [*chat.messages[:2], user("said elsewhere"), said("answered elsewhere"), new]
    run = chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ("user", new["content"])]
    assert run.of("MESSAGES_SNAPSHOT")
    same(chat)


# --- a second window, which sends an older list


@pytest.fixture(scope="module")
def gateways(model: GatedModel) -> Iterator[dict[str, Gateway]]:
    """One for each meaning of a list that ends early, but the usual."""
    with (
        Gateway(model, agui={"shorter_list": "append"}) as append,
        Gateway(model, agui={"shorter_list": "refuse"}) as refuse,
    ):
        yield {"append": append, "refuse": refuse}


def two_windows(gateway: Gateway) -> tuple[Chat, Chat]:
    """Two windows on one thread; the second one missed two of three turns."""
    first = Chat(gateway)
    first.say(script({"text": "Answer 1."}, say="q1"), message_id="u1").succeeded()
    second = Chat(gateway, thread=first.thread, messages=list(first.messages))
    for number in (2, 3):
        first.say(script({"text": f"Answer {number}."}, say=f"q{number}"), message_id=f"u{number}").succeeded()
    return first, second


def test_an_older_list_goes_on_where_the_operator_says_so(gateways: dict[str, Gateway], model: GatedModel) -> None:
    first, second = two_windows(gateways["append"])
    new = script({"text": "From the second window."})
    run = second.say(new).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3), ("user", new)]
    assert run.of("MESSAGES_SNAPSHOT") and not customs(run)
    assert second.messages[:6] == first.messages
    same(second)
    # What is surely meant so goes back all the same: answering again, and an edit under the same id.
    second.messages = second.messages[:5]
    assert "hermes.rewound" in customs(second.keep(second.send().finish()).succeeded())
    edited = script({"text": "Edited."}, say="q2 but better")
    second.messages = [*second.messages[:2], user(edited, "u2")]
    second.keep(second.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ("user", edited)]
    same(second)


def test_an_older_list_is_refused_where_the_operator_says_so(gateways: dict[str, Gateway], model: GatedModel) -> None:
    first, second = two_windows(gateways["refuse"])
    before, asked = rows(first), len(model.requests)
    refused = second.start(script({"text": "Lost?"})).finish()
    problem = refused.problem()
    assert (problem["status"], problem["code"]) == (409, "history_behind") and "u2" in problem["detail"]
    assert rows(first) == before and len(model.requests) == asked
    # It does as it was told to.
    second.messages = [*trimmed(history(first)), second.messages[-1]]
    second.keep(second.send().finish()).succeeded()
    assert got(model)[:-1] == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3)]
    same(second)
    second.messages = second.messages[:5]
    assert "hermes.rewound" in customs(second.keep(second.send().finish()).succeeded())


# --- a thread that Hermes has never seen


def test_a_thread_is_seeded_with_the_history_it_brings(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.messages = [
        user("My name is Bob."),
        said("Hello Bob."),
        user("What is the weather?"),
        said("I look.", of("weather", '{"city": "Bonn"}', "c1"), of("weather", "{bad", "c2"), of("f", "[1]", "c3")),
        {"id": unique("t"), "role": "tool", "toolCallId": "c2", "content": [{"type": "text", "text": "two"}]},
        {"id": unique("t"), "role": "tool", "toolCallId": "c1", "content": "one", "error": "no network"},
        {"id": unique("t"), "role": "tool", "toolCallId": "c9", "content": "of nobody"},
        {"id": unique("r"), "role": "reasoning", "content": "hm"},
        user([{"type": "text", "text": "look at this"}, {"type": "image", "source": {"type": "url", "value": "http://x/y"}}]),
        said("Nice."),
        user(script({"text": "Bob."}, say="What is my name?")),
    ]  # fmt: skip
    mine = list(chat.messages)
    chat.keep(chat.send().finish()).succeeded()
    sent = [message for message in model.requests[-1]["messages"] if message["role"] != "system"]
    roles = [message["role"] for message in sent]
    assert roles == ["user", "assistant"] * 2 + ["tool"] * 3 + ["user", "assistant", "user"]
    calls = {
        made["id"]: (made["function"]["name"], json.loads(made["function"]["arguments"]))
        for made in sent[3]["tool_calls"]
    }
    assert calls == {"c1": ("weather", {"city": "Bonn"}), "c2": ("weather", {}), "c3": ("f", {})}
    results = {message["tool_call_id"]: message["content"] for message in sent[4:7]}
    assert "no network" in results["c1"] and results["c2"] == "two" and "no result" in results["c3"]
    assert sent[7]["content"].startswith("look at this")
    # It keeps the client's ids, and goes on as any other thread.
    kept = {message["id"] for message in history(chat)}
    assert {message["id"] for message in mine if message["role"] in ("user", "assistant")} <= kept
    chat.say(script({"text": "Next."})).succeeded()
    assert [m["role"] for m in model.requests[-1]["messages"]][1:] == [*roles, "assistant", "user"]


def test_seeding_happens_once(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.messages = [user("My name is Bob."), said("Hello Bob.")]
    for number in range(3):
        chat.say(script({"text": f"Answer {number}."}, say=str(number))).succeeded()
        same(chat)
    assert [text for role, text in got(model) if text == "Hello Bob."] == ["Hello Bob."]


def test_a_seeded_thread_can_be_edited(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.messages = [user("one"), said("1"), user("two"), said("2")]
    chat.say(script({"text": "3"})).succeeded()
    new = user(script({"text": "Other."}))
    chat.messages = [*chat.messages[:2], new]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [("user", "one"), ("assistant", "1"), ("user", new["content"])]
    same(chat)


def test_a_greeting_of_the_application_is_part_of_the_conversation(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.messages = [said("Welcome! What can I do for you?")]
    chat.say(script({"text": "Yes."})).succeeded()
    assert got(model)[0] == ("assistant", "Welcome! What can I do for you?") or got(model)[0][0] == "user"
    chat.say(script({"text": "And yes."})).succeeded()
    assert [message["role"] for message in history(chat)] == ["assistant", "user", "assistant", "user", "assistant"]


# --- system and developer messages


def _instructed(chat: Chat, *texts: str) -> None:
    roles = ("system", "developer")
    chat.messages = [
        {"id": f"s{number}", "role": roles[number % 2], "content": text} for number, text in enumerate(texts)
    ] + [message for message in chat.messages if message["role"] not in roles]


def test_the_clients_instructions_reach_the_model_and_the_cache_stays_warm(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("mark")
    _instructed(chat, f"Speak like a pirate {mark}.", "Be brief.")
    prompts = []
    for number in range(3):
        chat.say(script({"text": f"Arr {number}."}, say=f"{mark}-{number}")).succeeded()
        prompts.append(system(model))
        assert prompts[-1].count(f"Speak like a pirate {mark}.") == 1 and prompts[-1].count("Be brief.") == 1
        assert prompts[-1].index(mark) < prompts[-1].index("Be brief.")
        assert f"pirate {mark}" not in json.dumps(got(model))
    assert prompts[0] == prompts[1] == prompts[2]
    first, second, third = [r for r in model.requests if f"pirate {mark}" in json.dumps(r)]
    for earlier, later in ((first, second), (second, third)):  # what a provider caches is a prefix
        begin = earlier["messages"]
        assert json.dumps(later["messages"][: len(begin)]) == json.dumps(begin)
    assert [message["role"] for message in chat.messages[:2]] == ["system", "developer"]


def test_instructions_change_when_the_client_changes_them(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    _instructed(chat, "Instruction one.")
    chat.say(script({"text": "1"})).succeeded()
    _instructed(chat, "Instruction two.")
    chat.say(script({"text": "2"})).succeeded()
    assert "Instruction two." in system(model) and "Instruction one." not in system(model)
    # One that sends only its newest message has not taken them back; one that sends the rest without them has.
    kept, chat.messages = chat.messages, []
    chat.say(script({"text": "3"})).succeeded()
    assert "Instruction two." in system(model)
    chat.messages = [message for message in chat.messages if message["role"] != "system"]
    assert len(chat.messages) == len(kept) + 1
    chat.say(script({"text": "4"})).succeeded()
    assert "Instruction two." not in system(model)


def test_a_snapshot_leaves_the_clients_instructions(gateway: Gateway) -> None:
    chat = Chat(gateway)
    _instructed(chat, "Be brief.")
    chat.say(script({"text": "1"})).succeeded()
    chat.messages = chat.messages[:1]
    run = chat.say(script({"text": "2"})).succeeded()
    assert run.of("MESSAGES_SNAPSHOT")
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_an_instruction_in_the_middle_rides_with_its_message(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.say(script({"text": "1"})).succeeded()
    before = system(model)
    chat.messages.append({"id": unique("d"), "role": "developer", "content": "From now on in French."})
    chat.say(script({"text": "2"})).succeeded()
    assert system(model) == before
    assert "From now on in French." in got(model)[-1][1]
    chat.say(script({"text": "3"})).succeeded()
    assert json.dumps(got(model)).count("From now on in French.") == 1  # told once, and it stays where it was said


def test_instructions_survive_a_restart(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    _instructed(chat, "Be brief.")
    chat.say(script({"text": "1"})).succeeded()
    before = system(model)
    gateway.stop()
    gateway.start()
    chat.messages = []
    chat.say(script({"text": "2"})).succeeded()
    assert system(model) == before and "Be brief." in before


# --- commands that change the history


def _confirmed(chat: Chat, command: str) -> Run:
    run = chat.say(command)
    if run.end.get("outcome", {}).get("type") == "interrupt":
        (asked,) = run.end["outcome"]["interrupts"]
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": {"choice": "once"}}]
        run = chat.keep(chat.send(resume=resume).finish())
    return run.succeeded()


def test_after_new(chat: Chat, model: GatedModel) -> None:
    _confirmed(chat, "/new")
    assert [message["content"] for message in history(chat) if message["role"] == "user"] == ["/new"]
    new = script({"text": "Fresh."})
    run = chat.say(new).succeeded()
    assert got(model) == [("user", new)]
    assert run.of("MESSAGES_SNAPSHOT")  # the agent has forgotten, and the client is told so
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert len(chat.sessions()) == 2
    # A window that still shows the old conversation.
    window = Chat(chat.gateway, thread=chat.thread)
    window.messages = [user(script({"text": "x"}), "u1"), said("Answer 1.")]
    again = script({"text": "Fresher."})
    window.say(again).succeeded()
    assert got(model)[-1] == ("user", again) and len(got(model)) == 3
    assert trimmed(history(window)) == trimmed(window.messages)


def test_after_undo(chat: Chat, model: GatedModel) -> None:
    _confirmed(chat, "/undo")
    new = script({"text": "Instead."})
    chat.say(new).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ("user", new)]
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert "u3" not in [message["id"] for message in chat.messages]
    # And one may go back beyond it.
    chat.messages = chat.messages[:3]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2)]
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_after_retry(chat: Chat, model: GatedModel) -> None:
    """Hermes writes the session anew for it: ids stay all the same."""
    ids = [message["id"] for message in chat.messages]
    chat.say("/retry").succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3)]
    assert [message["id"] for message in history(chat)][:5] == ids[:5]
    chat.say(script({"text": "On."})).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert ids[5] not in [message["id"] for message in chat.messages]
    chat.messages = chat.messages[:3]
    chat.keep(chat.send().finish()).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2)]
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_going_back_to_a_command(chat: Chat, model: GatedModel) -> None:
    chat.say("/help").succeeded()
    chat.say(script({"text": "Four."}, say="q4")).succeeded()
    chat.messages = chat.messages[:7]  # … u3 a3 /help
    assert chat.messages[-1]["content"] == "/help"
    chat.keep(chat.send().finish()).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)
    new = script({"text": "Five."})
    chat.say(new).succeeded()
    assert got(model) == [ask(1), answer(1), ask(2), answer(2), ask(3), answer(3), ("user", new)]


def test_a_message_that_failed_is_answered_again(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.say(script({"text": "One."}, say="q1")).succeeded()
    chat.say(script({"status": 401, "message": "no", "times": 1}, {"text": "x"}, say="broken")).failed("provider_auth")
    chat.messages[-1] = user(script({"text": "Repaired."}), chat.messages[-1]["id"])
    chat.keep(chat.send().finish()).succeeded()
    assert [role for role, _ in got(model)] == ["user", "assistant", "user"]
    assert plain(history(chat)) == plain(chat.messages)
    assert [message["id"] for message in history(chat)] == [message["id"] for message in chat.messages]


def test_nothing_to_do_is_refused(chat: Chat) -> None:
    for messages in ([], chat.messages, [{"id": "s", "role": "system", "content": "x"}]):
        one = Chat(chat.gateway, thread=chat.thread, messages=list(messages))
        refused = one.send().finish()
        assert refused.status == 400 and refused.problem()["code"] == "no_input"
    assert request(chat, "GET").status_code == 200
    same(chat)
