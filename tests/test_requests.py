"""Requests: opened, answered once, expired, cancelled; places for workers; what moves to a new turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agui_adapter.errors import AguiError
from agui_adapter.log import EventLog
from agui_adapter.requests import DENY, Answer, Pending, Requests, new_id, read_answer
from agui_adapter.session import SCOPES, Principal, Thread, Turn
from agui_adapter.stream import Request, RequestClosed, RequestKind, RequestOpened, TurnParked

APPROVAL = ("once", "session", "always", "deny")
LOCAL, ALICE = (Principal(name, scopes=SCOPES) for name in ("local", "alice"))


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    yield Requests(asyncio.get_running_loop(), 2)


@pytest.fixture
async def turn() -> Turn:
    return new_turn()


def new_turn(thread: Thread | None = None) -> Turn:
    thread = thread or Thread(LOCAL, "t", "local.t")
    return thread.begin(EventLog(asyncio.get_running_loop()))


def request(kind: RequestKind = "approval", **more: Any) -> Request:
    return Request(new_id(kind), kind, "?", choices=APPROVAL if kind == "approval" else (), **more)


def events(turn: Turn, *kinds: type) -> list[Any]:
    return [event for event in turn.log.events() if isinstance(event, kinds)]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (other threads change it)
            await asyncio.sleep(0.005)


class TestOpen:
    async def test_it_is_in_the_log_and_in_the_lists(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request())
        assert events(turn, RequestOpened) == [RequestOpened(pending.request, True)]
        assert requests.open_requests(turn) == (pending.request,)
        assert pending.request.expires_at == 0 and not requests.parked(turn)

    async def test_ids_name_nothing_of_another_thread(self, requests: Requests, turn: Turn) -> None:
        other = new_turn()
        pending = requests.open(turn, request())
        assert requests.find([turn], pending.request.id) is pending
        assert requests.find([other], pending.request.id) is None
        assert requests.find_call([other], "") is None
        assert len({new_id("approval") for _ in range(100)}) == 100

    async def test_only_client_calls_are_found_by_their_call(self, requests: Requests, turn: Turn) -> None:
        requests.open(turn, request(call_id="c"))
        assert requests.find_call([turn], "c") is None
        pending = requests.open(turn, request("client_tool", call_id="c"))
        assert requests.find_call([turn], "c") is pending


class TestAnswer:
    async def test_the_first_counts_the_same_again_is_harmless(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request())
        assert requests.answer(pending, Answer(choice="once"), LOCAL) is True
        assert requests.answer(pending, Answer(choice="once"), LOCAL) is False
        with pytest.raises(AguiError) as refused:
            requests.answer(pending, Answer(choice=DENY), LOCAL)
        assert (refused.value.status, refused.value.code) == (409, "request_answered")
        assert pending.answer == Answer(choice="once")
        assert events(turn, RequestClosed) == [RequestClosed(pending.request.id, "answered", "once")]

    async def test_it_releases_before_anybody_else_knows(self, requests: Requests, turn: Turn) -> None:
        released: list[Pending] = []
        pending = requests.open(turn, request(), on_close=released.append)
        requests.answer(pending, Answer(choice="once"), LOCAL)
        assert released == [pending] and pending.event.is_set()

    @pytest.mark.parametrize("how", ["expired", "cancelled"])
    async def test_a_closed_one_says_how(self, requests: Requests, turn: Turn, how: Any) -> None:
        pending = requests.open(turn, request())
        assert requests.close(pending, how) is True
        assert requests.close(pending, "answered") is False
        with pytest.raises(AguiError) as refused:
            requests.answer(pending, Answer(choice="once"), LOCAL)
        assert refused.value.code == f"request_{how}"

    async def test_many_at_once_have_one_winner(self, requests: Requests, turn: Turn) -> None:
        for _ in range(50):
            pending = requests.open(turn, request())
            won: list[str] = []
            start = threading.Barrier(5)

            def race(how: str, pending: Pending = pending, won: list[str] = won, start: Any = start) -> None:
                start.wait()
                if how == "answer":
                    try:
                        if requests.answer(pending, Answer(choice="once"), LOCAL):
                            won.append(how)
                    except AguiError:
                        return
                elif requests.close(pending, "expired"):
                    won.append(how)

            threads = [threading.Thread(target=race, args=(how,)) for how in ("answer", "expire") * 2]
            for thread in threads:
                thread.start()
            await asyncio.to_thread(start.wait)
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert pending.closed == ("answered" if won == ["answer"] else "expired")
        assert len(events(turn, RequestClosed)) == 50

    async def test_the_operator_reads_who_answered_and_never_what(
        self, requests: Requests, turn: Turn, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "hermes_agui")
        pending = requests.open(turn, request())
        requests.answer(pending, Answer(choice=DENY, text="a private reason"), ALICE)
        (line,) = [record.getMessage() for record in caplog.records if "audit" in record.getMessage()]
        assert pending.request.id in line and "local.t" in line and "answered by alice: deny" in line
        assert "private" not in line


class TestExpiry:
    async def test_it_closes_by_itself(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request(), seconds=0.05)
        assert 0 < pending.request.expires_at - time.time() <= 0.05
        await until(lambda: pending.closed)
        assert pending.closed == "expired" and pending.event.is_set()

    async def test_an_answer_behind_the_limit_is_late_though_the_timer_is_not_there_yet(
        self, requests: Requests, turn: Turn
    ) -> None:
        pending = requests.open(turn, request(), seconds=0.02)
        time.sleep(0.03)  # noqa: ASYNC251 (the loop must not come to its timer)
        assert pending.closed is None
        with pytest.raises(AguiError) as refused:
            requests.answer(pending, Answer(choice="once"), LOCAL)
        assert refused.value.code == "request_expired" and pending.answer is None

    async def test_an_answered_one_does_not_expire(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request(), seconds=0.02)
        requests.answer(pending, Answer(choice="once"), LOCAL)
        await asyncio.sleep(0.05)
        assert pending.closed == "answered" and len(events(turn, RequestClosed)) == 1


class TestWaiting:
    async def test_a_worker_waits_and_the_turn_is_parked(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request("client_tool"))

        def work() -> Pending:
            assert requests.take_place(turn)
            requests.hold(pending)
            requests.park(pending)
            return requests.wait(pending, lambda: "", slice_seconds=0.01)

        waiting = asyncio.create_task(asyncio.to_thread(work))
        await until(lambda: requests.parked(turn))
        assert events(turn, TurnParked) == [TurnParked((pending.request,))]
        assert turn.parked_at == turn.log.last
        assert requests.parked_turns() == [turn]
        requests.answer(pending, Answer(text="x"), LOCAL)
        assert not requests.parked(turn)  # though the worker has not woken yet
        assert await waiting is pending
        assert pending.position == turn.parked_at  # what follows the answer follows the park

    async def test_a_word_from_keep_cancels(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request("client_tool"))
        requests.park(pending)
        await asyncio.to_thread(requests.wait, pending, lambda: "stopped", 0.01)
        assert pending.closed == "cancelled" and pending.answer == Answer(error="stopped")

    async def test_a_closed_one_does_not_park(self, requests: Requests, turn: Turn) -> None:
        pending = requests.open(turn, request("client_tool"))
        requests.answer(pending, Answer(text="early"), LOCAL)
        requests.park(pending)
        assert events(turn, TurnParked) == []
        await asyncio.to_thread(requests.wait, pending, lambda: "never asked")
        assert pending.answer == Answer(text="early")

    async def test_places_are_counted_and_given_back_once(self, requests: Requests, turn: Turn) -> None:
        first, second = (requests.open(turn, request("client_tool")) for _ in range(2))
        for pending in (first, second):
            assert requests.take_place(turn)
            requests.hold(pending)
        assert not requests.take_place(turn)
        requests.resumed(first)
        requests.resumed(first)
        assert requests.take_place(turn) and not requests.take_place(turn)

    async def test_one_principal_does_not_take_them_all(self, turn: Turn) -> None:
        requests = Requests(asyncio.get_running_loop(), 3, max_parked_each=2)
        other = Thread(Principal("other"), "t", "other.t").begin(EventLog(asyncio.get_running_loop()))
        assert [requests.take_place(turn) for _ in range(3)] == [True, True, False]
        assert [requests.take_place(other) for _ in range(2)] == [True, False]
        assert requests.waiting == 3

    async def test_nobody_may_wait_with_no_place(self, turn: Turn) -> None:
        assert Requests(asyncio.get_running_loop(), 0).take_place(turn) is False

    async def test_an_answer_to_another_request_parks_again(self, requests: Requests, turn: Turn) -> None:
        first, second = (requests.open(turn, request("client_tool")) for _ in range(2))
        requests.park(first)
        requests.answer(second, Answer(text="x"), LOCAL)
        assert requests.still_parked(turn) is True
        assert events(turn, TurnParked)[-1] == TurnParked((first.request,))
        requests.answer(first, Answer(text="x"), LOCAL)
        assert requests.still_parked(turn) is False


class TestEnds:
    async def test_the_end_of_a_turn_cancels_what_is_its_own(self, requests: Requests, turn: Turn) -> None:
        own, beside = requests.open(turn, request()), requests.open(turn, request(), parks=False)
        assert requests.cancel_turn(turn, "The user stopped the turn.") == 1
        assert own.closed == "cancelled" and own.answer == Answer(choice=DENY, error="The user stopped the turn.")
        assert beside.closed is None
        requests.forget(turn)
        assert beside.closed == "cancelled"
        assert requests.of_turn(turn) == [] and requests.find([turn], own.request.id) is None

    async def test_the_end_of_the_process_cancels_all(self, requests: Requests, turn: Turn) -> None:
        other = new_turn()
        every = [requests.open(one, request(), parks=parks) for one in (turn, other) for parks in (True, False)]
        requests.cancel_all("The gateway is shutting down.")
        assert {pending.closed for pending in every} == {"cancelled"}

    async def test_a_new_turn_takes_over_what_is_asked_beside(self, requests: Requests, turn: Turn) -> None:
        own, beside = requests.open(turn, request()), requests.open(turn, request(), parks=False)
        answered = requests.open(turn, request(), parks=False)
        requests.answer(answered, Answer(choice=DENY), LOCAL)
        newer = new_turn(turn.thread)
        requests.adopt(turn.thread.turns.values(), newer)
        assert requests.of_turn(newer) == [beside] and beside.turn is newer
        assert events(newer, RequestOpened) == [RequestOpened(beside.request, False)]
        assert requests.of_turn(turn) == [own, answered]
        requests.answer(beside, Answer(choice="once"), LOCAL)
        assert events(newer, RequestClosed) and beside.position == 1

    async def test_the_adapter_hears_of_every_close(self, turn: Turn) -> None:
        heard: list[Pending] = []
        requests = Requests(asyncio.get_running_loop(), 2, heard.append)
        pending = requests.open(turn, request())
        await asyncio.to_thread(requests.close, pending, "cancelled")
        await until(lambda: heard)
        assert heard == [pending]


def approval(*choices: str) -> Request:
    return Request("a", "approval", choices=choices or APPROVAL)


def clarify(*choices: str, free: bool = True) -> Request:
    return Request("c", "clarify", choices=choices, free_text=free)


CONFIRM = Request("s", "confirm", choices=("once", "always", "cancel"))


@pytest.mark.parametrize(
    ("asked", "payload", "answer"),
    [
        (approval(), {"choice": "session"}, Answer(choice="session")),
        (approval(), {"choice": "deny", "reason": "no"}, Answer(choice="deny", text="no")),
        (approval(), {"approved": True}, Answer(choice="once")),
        (approval(), {"approved": False, "reason": "no"}, Answer(choice="deny", text="no")),
        (approval(), {"choice": "once", "reason": None}, Answer(choice="once")),
        (approval(), True, Answer(choice="once")),
        (approval(), False, Answer(choice="deny")),
        (approval(), "always", Answer(choice="always")),
        (approval(), {"choice": "deny", "reason": "x" * 5000}, Answer(choice="deny", text="x" * 2000)),
        (CONFIRM, {"choice": "always"}, Answer(choice="always")),
        (CONFIRM, {"approved": True}, Answer(choice="once")),
        (CONFIRM, False, Answer(choice="cancel")),
        (clarify(), {"answer": "a"}, Answer(text="a")),
        (clarify(), {"text": " a "}, Answer(text=" a ")),
        (clarify(), "a", Answer(text="a")),
        (clarify("a", "b"), {"choice": "b"}, Answer(text="b")),
        (clarify("a", "b"), "c", Answer(text="c")),
        (clarify("a", "b", free=False), "b", Answer(text="b")),
    ],
)
def test_what_may_be_answered(asked: Request, payload: Any, answer: Answer) -> None:
    assert read_answer(asked, payload) == answer


@pytest.mark.parametrize(
    ("asked", "payload", "told"),
    [
        (approval(), {"choice": "yes"}, "once, session, always, deny"),
        (approval("once", "deny"), {"choice": "always"}, "once, deny"),
        (approval(), {"approved": "maybe"}, "once"),
        (approval(), {"approved": 1}, "once"),
        (approval(), None, "once"),
        (approval(), {}, "once"),
        (approval(), {"choice": ["once"]}, "once"),
        (approval(), {"choice": "once", "reason": 5}, "reason"),
        (approval(), 1, "once"),
        (CONFIRM, {"choice": "session"}, "once, always, cancel"),
        (clarify(), {"answer": ""}, "not empty"),
        (clarify(), {"answer": 5}, "not empty"),
        (clarify(), " \n", "not empty"),
        (clarify(), None, "not empty"),
        (clarify("a", "b", free=False), "c", "one of: a, b"),
    ],
)
def test_what_may_not(asked: Request, payload: Any, told: str) -> None:
    with pytest.raises(AguiError) as refused:
        read_answer(asked, payload)
    assert (refused.value.status, refused.value.code) == (422, "invalid_answer")
    assert told in refused.value.message and refused.value.message.endswith("The request stays open.")


@pytest.mark.parametrize(("asked", "choice"), [(approval(), "deny"), (CONFIRM, "cancel"), (clarify(), "")])
def test_cancelled_is_no(asked: Request, choice: str) -> None:
    answer = read_answer(asked, {"choice": "once", "answer": "a"}, cancelled=True)
    assert answer.choice == choice and "closed the question" in answer.text + answer.error
