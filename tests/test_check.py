"""The sequence checker: one row per stream in `check_cases`, then its reader, its patches and its command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agui_adapter.check import RULES, Finding, Peer, check_events, check_text, parse_stream
from agui_adapter.check.patch import PatchError, apply_patch
from tests.check_cases import CASES, FINISH, START, Case, ev, run, sse, text

HTTP_RULES = {"content-type", "body-open"}


@pytest.mark.parametrize("peer", ["1.0", "0.0.59"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_findings(case: Case, peer: Peer) -> None:
    findings = check_text(case.frames, peer=peer, state=case.state, known_calls=case.known_calls)
    wanted = case.rules if peer == "1.0" else case.peer_rules
    assert {finding.rule for finding in findings} == wanted, "\n".join(map(str, findings))
    assert all(1 <= finding.line <= case.frames.count("\n") + 1 for finding in findings)


def test_every_rule_has_a_case() -> None:
    shown = {rule for case in CASES for rule in case.rules | case.peer_rules}
    assert shown | HTTP_RULES == set(RULES)


def test_json_lines_and_sse_give_the_same_findings() -> None:
    events = run(text()[:2], ev("META"))
    lines = "\n".join(map(json.dumps, events))
    assert [(finding.rule, finding.line) for finding in check_text(lines)] == [
        ("unknown-event", 4),
        ("open-at-finish", 5),
    ]
    assert [(finding.rule, finding.line) for finding in check_text(sse(events))] == [
        ("unknown-event", 7),
        ("open-at-finish", 9),
    ]


def test_a_finding_is_at_the_first_data_line_of_its_frame() -> None:
    frames = f": hello\n\nid: 1\ndata: {{\ndata: {json.dumps(FINISH)[1:]}\n\n"
    assert [(finding.rule, finding.line) for finding in check_text(frames)] == [("first-event", 4)]


def test_a_plain_json_body_is_no_sse() -> None:
    assert check_text(json.dumps(START) + "\n" + json.dumps(FINISH)) == []
    rules = {finding.rule for finding in check_text(json.dumps(START) + "\n" + json.dumps(FINISH), sse=True)}
    assert rules == {"sse-field", "empty-stream"}


def test_blank_json_lines_are_skipped_and_crlf_is_only_wrong_in_sse() -> None:
    assert check_text("\r\n".join(["", json.dumps(START), "", json.dumps(FINISH), ""])) == []


def test_parse_stream_takes_lines_with_and_without_their_ends() -> None:
    frames = sse([START, FINISH])
    bare = list(parse_stream(frames.split("\n")))
    assert bare == list(parse_stream(frames.splitlines(keepends=True))) == [(1, START), (3, FINISH)]


def test_check_events_takes_any_object() -> None:
    assert [finding.rule for finding in check_events([(1, START), (2, 5), (3, FINISH)])] == ["not-object"]


def test_the_wanted_run_and_thread() -> None:
    events = list(enumerate(run(), 1))
    assert check_events(events, thread_id="t", run_id="r") == []
    assert [finding.rule for finding in check_events(events, thread_id="x")] == ["wrong-thread"]
    assert [finding.rule for finding in check_events(events, run_id="x")] == ["wrong-run"]


def test_inputs_are_not_changed() -> None:
    state: dict[str, Any] = {"a": [1]}
    delta = ev("STATE_DELTA", delta=[{"op": "add", "path": "/a/-", "value": {"deep": []}}])
    events = run(delta, delta)
    before = json.dumps([state, events])
    assert check_events(enumerate(events, 1), state=state) == []
    assert json.dumps([state, events]) == before


@pytest.mark.parametrize(
    ("document", "operation", "wanted"),
    [
        ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
        ([1, 3], {"op": "add", "path": "/1", "value": 2}, [1, 2, 3]),
        ([1], {"op": "add", "path": "/1", "value": 2}, [1, 2]),
        ({"a/b": {"~": 1}}, {"op": "remove", "path": "/a~1b/~0"}, {"a/b": {}}),
        ({"": 1}, {"op": "replace", "path": "/", "value": 2}, {"": 2}),
        ({"a": [1, 2]}, {"op": "move", "from": "/a/0", "path": "/a/1"}, {"a": [2, 1]}),
        ({"a": 1}, {"op": "copy", "from": "", "path": "/b"}, {"a": 1, "b": {"a": 1}}),
        ("x", {"op": "replace", "path": "", "value": None}, None),
    ],
)
def test_patches(document: Any, operation: dict[str, Any], wanted: Any) -> None:
    assert apply_patch(document, [operation]) == wanted


def test_a_value_cannot_move_into_itself() -> None:
    with pytest.raises(PatchError, match="into itself"):
        apply_patch({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}])


def check(*arguments: str, given: str = "") -> tuple[int, str, str]:
    """Run the command; exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "agui_adapter.check", *arguments],
        input=given.encode(),
        capture_output=True,
        cwd=Path(__file__).parent.parent,
        timeout=60,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_command_on_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.sse"
    file.write_text(sse(run(text())))
    assert check(str(file)) == (0, f"{file}: 0 errors, 0 warnings\n", "")
    file.write_text(sse(run(text()[:2])), newline="")
    code, out, _ = check(str(file))
    assert code == 1
    assert out.splitlines() == [
        "line 7: error open-at-finish: RUN_FINISHED while these are open: text message 'm'",
        f"{file}: 1 error, 0 warnings",
    ]


def test_command_on_stdin_sees_carriage_returns() -> None:
    code, out, _ = check("-", "--json", given=sse(run()).replace("\n", "\r\n"))
    assert code == 1
    assert [Finding(**json.loads(line)).rule for line in out.splitlines()] == ["cr-framing"]


def test_command_with_warnings_only_succeeds() -> None:
    code, out, _ = check("-", given=json.dumps(START) + "\n" + json.dumps({**FINISH, "colour": "red"}))
    assert code == 0
    assert "line 2: warning unknown-field" in out


def test_command_for_an_older_peer() -> None:
    events = run(end={**FINISH, "outcome": {"type": "cancelled"}})
    assert check("-", given=sse(events))[0] == 0
    code, out, _ = check("-", "--peer", "0.0.59", given=sse(events))
    assert code == 1
    assert "peer-cancelled" in out


@pytest.mark.parametrize(
    "arguments", [("/nonexistent/file",), (), ("-", "--peer", "2.0"), ("http://127.0.0.1:1/agui",)]
)
def test_command_without_a_stream(arguments: tuple[str, ...]) -> None:
    code, out, err = check(*arguments)
    assert code == 2
    assert out == ""
    assert err


def test_the_checker_does_not_load_hermes_or_the_stream_vocabulary() -> None:
    probe = (
        "import sys, agui_adapter.check as c; assert 'pydantic' not in sys.modules and 'aiohttp' not in sys.modules\n"
        "c.check_text('{}')\n"
        "assert not {'gateway', 'agui_adapter.stream', 'hermes_cli', 'run_agent'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", probe], check=True, cwd=Path(__file__).parent.parent, timeout=60)


class Endpoint:
    """A real server that answers POST / as `answer` says and keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: dict[str, Any] = {}
        self.headers: dict[str, str] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked = await request.json()
        self.headers = dict(request.headers)
        return await self.answer(request, self.asked)

    async def check(self, *arguments: str) -> tuple[int, str, str]:
        app = web.Application()
        app.router.add_post("/", self.handle)
        async with TestServer(app) as server:
            return await asyncio.to_thread(check, str(server.make_url("/")), *arguments)


def reply(
    *events: dict[str, Any],
    content_type: str = "text/event-stream",
    status: int = 200,
    hold: bool = False,
    echo: bool = True,
) -> Any:
    """An answer that streams `events`, with the asked ids where `echo`; `hold` keeps the body open."""

    async def answer(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
        await response.prepare(request)
        ids = {"threadId": asked["threadId"], "runId": asked["runId"]} if echo else {}
        for event in events:
            await response.write(sse([{**event, **ids} if "runId" in event else event]).encode())
        if hold:
            await asyncio.sleep(60)
        return response

    return answer


async def test_command_on_a_url() -> None:
    endpoint = Endpoint(reply(*run(text())))
    code, out, err = await endpoint.check("--message", "hi", "--token", "secret-token", "--thread", "mine")
    assert (code, err) == (0, "")
    assert "0 errors, 0 warnings" in out
    assert endpoint.asked["threadId"] == "mine"
    assert endpoint.asked["protocolVersion"] == "1.0"
    assert [message["content"] for message in endpoint.asked["messages"]] == ["hi"]
    assert endpoint.headers["Accept"] == "text/event-stream"
    assert endpoint.headers["Authorization"] == "Bearer secret-token"


async def test_command_on_a_url_for_an_older_peer_sends_no_version() -> None:
    endpoint = Endpoint(reply(*run()))
    assert (await endpoint.check("--peer", "0.0.59"))[0] == 0
    assert "protocolVersion" not in endpoint.asked


async def test_command_on_a_url_that_answers_another_run() -> None:
    code, out, _ = await Endpoint(reply(*run(), echo=False)).check()
    assert code == 1
    assert "error wrong-thread" in out
    assert "error wrong-run" in out


async def test_command_on_a_url_that_is_no_stream() -> None:
    code, out, _ = await Endpoint(reply(*run(), content_type="application/json")).check()
    assert code == 1
    assert "error content-type" in out


async def test_command_on_a_url_that_refuses() -> None:
    code, out, err = await Endpoint(reply(status=401)).check()
    assert (code, out) == (2, "")
    assert "HTTP 401" in err


async def test_command_on_a_url_that_stays_open() -> None:
    code, out, _ = await Endpoint(reply(*run(), hold=True)).check("--timeout", "2")
    assert code == 1
    assert "error body-open" in out
    assert "truncated" not in out
