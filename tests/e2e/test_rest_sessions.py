"""`/api/sessions`: the threads of every other door, listed, made, read, changed and rewound; for their owner only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, call, query, script, unique, wait_until
from tests.e2e.rest import KEY, ask, ok, refused

WORDS = "word " * 200


@pytest.fixture(scope="module")
def served(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with two principals and delegation."""
    with Gateway(model, toolsets=["terminal", "file", "delegation"], env={"AGUI_API_KEY": KEY}) as running:
        yield running


def session(chat: Chat, method: str = "GET", rest: str = "", body: Any = None, *, key: str | None = None) -> Any:
    return ask(chat.gateway, method, f"/api/sessions/{chat.thread}{rest}", body, key=key or chat.key)


def talked(gateway: Gateway, *answers: str, key: str | None = None) -> Chat:
    chat = Chat(gateway, key=key)
    for answer in answers or ("One.", "Two."):
        chat.say(script({"text": answer})).succeeded()
    return chat


def read(chat: Chat) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = ok(session(chat, rest="/messages"))["data"]
    return data


def rows(chat: Chat) -> list[int]:
    return [message["row_id"] for message in read(chat) if message["role"] == "user"]


# --- list, create, read, rename, delete


def test_a_session_is_the_thread_of_the_other_doors(served: Gateway) -> None:
    chat = Chat(served)
    steps = script({"text": "I look.", "tools": [call("terminal", {"command": "echo a"}, "call-1")]}, {"text": "One."})
    chat.say(steps).succeeded()
    told = ok(session(chat))
    assert told["object"] == "hermes.session"
    one = told["session"]
    assert (one["id"], one["source"], one["status"]) == (chat.thread, "agui", "idle")
    assert one["run_id"] is None and one["requests"] == [] and not one["archived"]
    assert one["message_count"] == 4 and 1_600_000_000 < one["started_at"] <= one["last_active"]
    assert one["usage"]["model"] == "scripted-1" and one["usage"]["api_call_count"] == 2
    assert ok(session(chat, rest="/usage")) == {"session_id": chat.thread, "usage": one["usage"]}
    data = read(chat)
    assert [(m["role"], m["id"]) for m in data] == [(m["role"], m["id"]) for m in chat.messages]
    user, assistant, tool, answer = data
    (row,) = query(served, "SELECT id FROM messages WHERE role = 'user' AND session_id = ?", chat.sessions()[0])
    assert user["row_id"] == row[0] and user["content"] == steps
    assert assistant["tool_calls"][0]["function"]["name"] == "terminal" and "row_id" not in assistant
    assert (tool["tool_call_id"], answer["content"]) == ("call-1", "One.")
    listed = ok(ask(served, "GET", "/api/sessions?limit=200"))
    assert one["id"] in [other["id"] for other in listed["data"]] and listed["object"] == "list"


def test_sessions_come_in_pages(served: Gateway) -> None:
    mark = unique("page")
    for number in range(3):
        ok(ask(served, "POST", "/api/sessions", {"id": f"{mark}-{number}", "title": f"{mark} {number}"}), 201)
    pages = [ok(ask(served, "GET", f"/api/sessions?q={mark}&limit=2&offset={offset}")) for offset in (0, 2)]
    assert [one["id"] for page in pages for one in page["data"]] == [f"{mark}-{n}" for n in (2, 1, 0)]
    assert [page["has_more"] for page in pages] == [True, False] and pages[0]["total"] == 3
    for wrong in ("limit=x", "limit=-1", "limit=201", "offset=-1", "archived=perhaps"):
        assert refused(ask(served, "GET", f"/api/sessions?{wrong}")) == (422, "invalid_input"), wrong


def test_a_session_made_by_name_is_talked_to(served: Gateway, model: GatedModel) -> None:
    name, mark = unique("made"), unique("system")
    body = {"id": name, "title": f"A plan {name}", "system_prompt": f"Think of {mark}."}
    made = ok(ask(served, "POST", "/api/sessions", body), 201)["session"]
    assert (made["id"], made["title"], made["message_count"]) == (name, body["title"], 0)
    assert refused(ask(served, "POST", "/api/sessions", body)) == (409, "session_exists")
    chat = Chat(served, thread=name)
    assert read(chat) == []
    said = chat.say(script({"text": "Hello."})).succeeded()
    assert said.text() == "Hello."
    assert [message["content"] for message in read(chat)][1:] == ["Hello."]
    again = Chat(served, thread=talked(served, "There.").thread)
    assert refused(ask(served, "POST", "/api/sessions", {"id": again.thread})) == (409, "session_exists")
    nameless = ok(ask(served, "POST", "/api/sessions"), 201)["session"]
    assert nameless["id"].startswith("session-") and nameless["title"] == ""


def test_an_instruction_of_a_session_is_told_to_the_model(served: Gateway, model: GatedModel) -> None:
    name, mark = unique("made"), unique("system")
    ok(ask(served, "POST", "/api/sessions", {"id": name, "system_prompt": f"Think of {mark}."}), 201)
    ok(ask(served, "POST", f"/api/sessions/{name}/chat", {"message": script({"text": "Yes."})}))
    assert mark in json.dumps(model.requests[-1]["messages"][0])


def test_rename_put_aside_and_delete(served: Gateway) -> None:
    chat = talked(served)
    title = f"A name {chat.thread}"
    assert ok(session(chat, "PATCH", body={"title": f" {title} "}))["session"]["title"] == title
    assert ok(session(chat, "PATCH", body={"archived": True}))["session"]["archived"] is True
    ids = [one["id"] for one in ok(ask(served, "GET", "/api/sessions?archived=true&limit=200"))["data"]]
    assert chat.thread in ids
    for wrong in ({}, {"title": " "}, {"title": 1}, {"archived": "yes"}, {"titel": "x"}, {"title": "x" * 201}):
        assert refused(session(chat, "PATCH", body=wrong)) == (422, "invalid_input"), wrong
    assert ok(session(chat, "DELETE")) == {"object": "hermes.session.deleted", "id": chat.thread, "deleted": True}
    assert refused(session(chat)) == (404, "session_not_found")
    said = "SELECT 1 FROM messages JOIN sessions ON session_id = sessions.id WHERE chat_id = ?"
    assert query(served, said, chat.chat_id) == []


def test_bodies_that_are_none(served: Gateway) -> None:
    url = f"{served.url}/api/sessions"
    assert refused(httpx.post(url, content=b"{", headers={"Content-Type": "application/json"})) == (400, "invalid_json")
    assert refused(httpx.post(url, content=b"[]", headers={"Content-Type": "application/json"})) == (
        400,
        "invalid_input",
    )
    assert refused(httpx.post(url, content=b"x", headers={"Content-Type": "text/plain"})) == (415, "not_json")
    for wrong in ({"id": ""}, {"id": " "}, {"id": 1}, {"id": "x" * 5000}, {"unknown": 1}, {"system_prompt": 1}):
        assert refused(ask(served, "POST", "/api/sessions", wrong)) == (422, "invalid_input"), wrong
    problem = ask(served, "POST", "/api/sessions", {"title": ""}).json()
    assert problem["param"] == "title" and problem["detail"].startswith("title: ")


# --- fork, compress


def test_a_fork_goes_on_by_itself(served: Gateway) -> None:
    chat = talked(served)
    made = ok(session(chat, "POST", "/fork", {"title": f"Fork {chat.thread}"}), 201)
    assert made["forked_from"] == chat.thread and made["session"]["title"] == f"Fork {chat.thread}"
    fork = Chat(served, thread=made["session"]["id"], messages=list(chat.messages))
    assert [m["content"] for m in read(fork)] == [m["content"] for m in chat.messages]
    fork.say(script({"text": "In the fork."})).succeeded()
    assert len(read(chat)) == 4 and len(read(fork)) == 6
    assert refused(session(chat, "POST", "/fork", {"id": fork.thread})) == (409, "session_exists")
    empty = ok(ask(served, "POST", "/api/sessions"), 201)["session"]["id"]
    assert refused(ask(served, "POST", f"/api/sessions/{empty}/fork")) == (409, "nothing_to_branch")


def test_compress_leaves_what_people_see(served: Gateway) -> None:
    chat = talked(served, *(f"Answer {number}: {WORDS}." for number in range(7)))
    before = read(chat)
    told = ok(session(chat, "POST", "/compress", {"focus": "the answers"}))
    assert told["compressed"] is True and "the answers" in told["text"]
    assert [m["content"] for m in read(chat)] == [m["content"] for m in before]
    # The newest turns are in the agent's memory under other rows now; what was summed up has none.
    after = rows(chat)
    assert after[-1] is not None and None in after
    stale = session(chat, "POST", "/rewind", {"truncate_before_row_id": before[-2]["row_id"], "confirm_truncate": True})
    if before[-2]["row_id"] not in after:
        assert refused(stale) == (409, "truncate_target_unknown") and stale.json()["hermes_code"] == 4018
    gone = session(
        chat, "POST", "/rewind", {"truncate_before_user_ordinal": after.index(None), "confirm_truncate": True}
    )
    assert refused(gone) == (409, "truncate_target_unknown")
    done = ok(session(chat, "POST", "/rewind", {"truncate_before_row_id": after[-1], "confirm_truncate": True}))
    assert done["survivor_user_row_ids"] == after[:-1]


# --- rewind


def test_a_rewind_names_a_row_and_is_confirmed(served: Gateway, model: GatedModel) -> None:
    chat = talked(served, "One.", "Two.", "Three.")
    first, second, third = rows(chat)
    done = ok(session(chat, "POST", "/rewind", {"truncate_before_row_id": second, "confirm_truncate": True}))
    assert done == {"session_id": chat.thread, "turns_undone": 2, "survivor_user_row_ids": [first]}
    assert [m["content"] for m in read(chat) if m["role"] == "assistant"] == ["One."]
    assert rows(chat) == [first]  # the row is the same as before: nothing that was kept has to be named anew
    ok(session(chat, "POST", "/chat", {"message": script({"text": "Two, otherwise."})}))
    texts = json.dumps(model.requests[-1]["messages"])
    assert '"One."' in texts and '"Two."' not in texts and '"Three."' not in texts
    assert [m["content"] for m in read(chat) if m["role"] == "assistant"] == ["One.", "Two, otherwise."]
    assert refused(session(chat, "POST", "/rewind", {"truncate_before_row_id": third, "confirm_truncate": True})) == (
        409,
        "truncate_target_unknown",
    )


def test_a_rewind_by_place_and_one_of_everything(served: Gateway) -> None:
    chat = talked(served, "One.", "Two.")
    first, second = rows(chat)
    both = {"truncate_before_row_id": second, "truncate_before_user_ordinal": 1, "confirm_truncate": True}
    assert ok(session(chat, "POST", "/rewind", both))["survivor_user_row_ids"] == [first]
    all_of_it = {"truncate_before_user_ordinal": 0, "confirm_truncate": True}
    assert refused(session(chat, "POST", "/rewind", all_of_it)) == (422, "truncate_empty_unconfirmed")
    done = ok(session(chat, "POST", "/rewind", {**all_of_it, "confirm_empty_truncate": True}))
    assert done["survivor_user_row_ids"] == [] and done["turns_undone"] == 1 and read(chat) == []


def test_what_is_no_rewind_takes_nothing_back(served: Gateway) -> None:
    chat = talked(served)
    second = rows(chat)[1]
    before = read(chat)
    confirmed = {"confirm_truncate": True}
    for body, status, code, number in (
        ({"truncate_before_row_id": second}, 422, "truncate_unconfirmed", 4029),
        ({"truncate_before_user_ordinal": 1}, 422, "truncate_unconfirmed", 4029),
        ({"truncate_before_user_ordinal": 1, "confirm_truncate": False}, 422, "truncate_unconfirmed", 4029),
        ({"truncate_before_user_ordinal": 0, **confirmed}, 422, "truncate_empty_unconfirmed", 4029),
        (confirmed, 422, "truncate_target_missing", 4004),
        ({}, 422, "truncate_target_missing", 4004),
        ({"truncate_before_user_ordinal": True, **confirmed}, 422, "invalid_input", 4004),
        ({"truncate_before_user_ordinal": "1", **confirmed}, 422, "invalid_input", 4004),
        ({"truncate_before_user_ordinal": -1, **confirmed}, 422, "invalid_input", 4004),
        ({"truncate_before_row_id": True, **confirmed}, 422, "invalid_input", 4004),
        ({"truncate_before_row_id": second, "confirm_truncate": 1}, 422, "invalid_input", 4004),
        ({"truncate_before_user_ordinal": 7, **confirmed}, 409, "truncate_target_unknown", 4018),
        ({"truncate_before_row_id": 10**9, **confirmed}, 409, "truncate_target_unknown", 4018),
        # A row that is not there is not looked for by its place instead.
        (
            {"truncate_before_row_id": 10**9, "truncate_before_user_ordinal": 1, **confirmed},
            409,
            "truncate_target_unknown",
            4018,
        ),
        (
            {"truncate_before_row_id": second, "truncate_before_user_ordinal": 0, **confirmed},
            409,
            "truncate_mismatch",
            4030,
        ),
    ):
        response = session(chat, "POST", "/rewind", body)
        assert refused(response) == (status, code), body
        assert response.json()["hermes_code"] == number, body
    assert read(chat) == before
    other = talked(served)
    foreign = {"truncate_before_row_id": rows(other)[1], **confirmed}
    assert refused(session(chat, "POST", "/rewind", foreign)) == (409, "truncate_target_unknown")
    assert len(read(other)) == 4


def test_a_rewind_is_refused_while_a_turn_runs(served: Gateway, model: GatedModel) -> None:
    chat, gate = talked(served), unique("g")
    second = rows(chat)[1]
    run = chat.start(script({"text": f"An {{gate:{gate}}} answer."})).wait_text(gate)
    body = {"truncate_before_row_id": second, "confirm_truncate": True}
    assert refused(session(chat, "POST", "/rewind", body)) == (409, "thread_busy")
    one = ok(session(chat))["session"]
    assert one["status"] == "running" and one["run_id"]
    model.open_gate(gate)
    chat.keep(run.finish())
    assert len(rows(chat)) == 3


# --- stop, steer, answer


def test_a_running_session_is_steered_and_stopped(served: Gateway, model: GatedModel) -> None:
    chat, mark, flag = Chat(served), unique("hint"), served.work_dir / unique("flag")
    command = f"until [ -e {flag.name} ]; do sleep 0.05; done"
    steps = script({"text": "I work.", "tools": [call("terminal", {"command": command})]}, {"text": "Done."})
    assert refused(session(chat, "POST", "/steer", {"text": "x"})) == (404, "session_not_found")
    run = chat.start(steps).wait(lambda run: run.calls(), "the call")
    told = ok(session(chat, "POST", "/steer", {"text": f"Think of {mark}"}), 202)
    assert told == {"session_id": chat.thread, "run_id": told["run_id"], "status": "steered"}
    for wrong in ({}, {"text": ""}, {"text": " "}, {"text": 1}, {"txt": "x"}):
        assert refused(session(chat, "POST", "/steer", wrong)) == (422, "invalid_input"), wrong
    assert refused(session(chat, "POST", "/steer", {"text": "/stop"})) == (422, "command_not_steerable")
    flag.touch()
    chat.keep(run.finish()).succeeded()
    assert any(mark in json.dumps(request["messages"][-1]) for request in model.requests)
    assert refused(session(chat, "POST", "/steer", {"text": "x"})) == (409, "run_not_accepting_steer")
    assert ok(session(chat, "POST", "/stop")) == {"session_id": chat.thread, "stopped": False}
    gate = unique("g")
    run = chat.start(script({"text": f"An {{gate:{gate}}} answer."})).wait_text(gate)
    assert ok(session(chat, "POST", "/stop"))["stopped"] is True
    model.open_gate(gate)
    run.finish()
    assert ok(session(chat))["session"]["status"] == "idle"


def test_what_a_session_waits_for_is_listed_and_answered(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(config={"approvals": {"mode": "manual"}})
    chat, target = Chat(gateway), gateway.work_dir / unique("dir")
    target.mkdir()
    command = {"command": f"rm -r {target.name}"}
    run = chat.start(script({"tools": [call("terminal", command)]}, {"text": "It is gone."}))
    chat.keep(run.finish())
    one = ok(session(chat))["session"]
    assert one["status"] == "waiting"
    (request,) = one["requests"]
    assert request["kind"] == "approval" and "rm -r" in request["detail"]["command"] and "once" in request["choices"]
    where = f"/requests/{request['id']}"
    for wrong in ({"choice": "perhaps"}, {}, {"approved": "yes"}):
        assert refused(session(chat, "POST", where, wrong))[0] == 422, wrong
    assert refused(session(chat, "POST", "/requests/approval-0", {"choice": "once"})) == (404, "no_such_request")
    assert ok(session(chat, "POST", where, {"choice": "once"})) == {"request_id": request["id"], "status": "answered"}
    assert ok(session(chat, "POST", where, {"choice": "once"}))["status"] == "repeated"
    assert refused(session(chat, "POST", where, {"choice": "deny"})) == (409, "request_answered")
    wait_until(lambda: ok(session(chat))["session"]["status"] == "idle", "the turn went on")
    assert not target.exists() and read(chat)[-1]["content"] == "It is gone."


# --- subagents, processes


def test_subagents_of_a_session(served: Gateway, model: GatedModel) -> None:
    chat, other = Chat(served), talked(served)
    mark, flag = unique("child"), served.work_dir / unique("flag")
    wait = {"command": f"until [ -e {flag.name} ]; do sleep 0.05; done"}
    child = script({"text": mark, "tools": [call("terminal", wait)]}, {"text": f"{mark} is done."})
    chat.say(script({"text": "I ask.", "tools": [call("delegate_task", {"goal": child})]}, {"text": "Asked."}))
    (one,) = wait_until(
        lambda: [s for s in ok(session(chat, rest="/subagents"))["data"] if s["tool_count"]], "the child's tool runs"
    )
    assert mark in one["goal"] and one["last_tool"] == "terminal" and one["started_at"] > 1_600_000_000
    told = ok(session(chat, rest="/delegation"))
    assert [active["id"] for active in told["active"]] == [one["id"]]
    assert told["paused"] is False and told["max_spawn_depth"] >= 1 and told["max_concurrent_children"] >= 1
    assert ok(session(other, rest="/subagents"))["data"] == [] == ok(session(other, rest="/delegation"))["active"]
    where = f"/subagents/{one['id']}"
    for what, body in (("/stop", None), ("/steer", {"text": "x"})):
        assert refused(session(other, "POST", where + what, body)) == (404, "no_such_subagent")
    assert refused(session(chat, "POST", f"{where}/steer", {"text": ""})) == (422, "invalid_input")
    assert ok(session(chat, "POST", f"{where}/steer", {"text": f"{mark}-hint"}), 202)["status"] == "steered"
    flag.touch()
    wait_until(lambda: not ok(session(chat, rest="/subagents"))["data"], "the child ended")
    assert any(f"{mark}-hint" in json.dumps(request["messages"][-1]) for request in model.requests)
    assert refused(session(chat, "POST", f"{where}/stop")) == (404, "no_such_subagent")


def test_processes_of_a_session(served: Gateway) -> None:
    chat, other = Chat(served), talked(served)
    start = {"command": "echo begun; sleep 300", "background": True}
    chat.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."})).succeeded()
    (one,) = wait_until(
        lambda: [p for p in ok(session(chat, rest="/processes"))["data"] if "begun" in p["output"]], "its output"
    )
    assert one["status"] == "running" and one["command"] == start["command"]
    assert ok(session(other, rest="/processes"))["data"] == []
    where = f"/processes/{one['id']}/stop"
    assert refused(session(other, "POST", where)) == (404, "no_such_process")
    stopped = ok(session(chat, "POST", where))
    assert stopped["process_id"] == one["id"] and stopped["stopped"] is True and "begun" in stopped["output"]
    assert ok(session(chat, "POST", where))["stopped"] is False


# --- everybody else


def test_anothers_session_is_nobodys(served: Gateway) -> None:
    mine = talked(served)
    before = read(mine)
    for method, rest, body in (
        ("GET", "", None),
        ("PATCH", "", {"title": "Mine now"}),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("GET", "/usage", None),
        ("POST", "/fork", {}),
        ("POST", "/compress", {}),
        ("POST", "/rewind", {"truncate_before_user_ordinal": 1, "confirm_truncate": True}),
        ("POST", "/stop", None),
        ("POST", "/steer", {"text": "x"}),
        ("POST", "/requests/approval-0", {"choice": "once"}),
        ("GET", "/subagents", None),
        ("POST", "/subagents/x/stop", None),
        ("POST", "/subagents/x/steer", {"text": "x"}),
        ("GET", "/delegation", None),
        ("GET", "/processes", None),
        ("POST", "/processes/x/stop", None),
    ):
        assert refused(session(mine, method, rest, body, key=KEY)) == (404, "session_not_found"), (method, rest)
        made_up = Chat(served, thread=unique("none"))
        assert refused(session(made_up, method, rest, body)) == (404, "session_not_found"), (method, rest)
    assert mine.thread not in [one["id"] for one in ok(ask(served, "GET", "/api/sessions?limit=200", key=KEY))["data"]]
    assert read(mine) == before
    # The same id is a session of their own.
    assert ok(ask(served, "POST", "/api/sessions", {"id": mine.thread}, key=KEY), 201)["session"]["message_count"] == 0
    assert read(mine) == before
