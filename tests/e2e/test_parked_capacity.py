"""Many turns that wait, and the gateway goes on as if they did not: Hermes 0.19 alone has ten workers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import (
    COLOR,
    asks_client,
    deletes,
    give,
    open_requests,
    pending,
    requests_of,
    tool_messages,
    victim,
)
from tests.e2e.helpers import Chat, GatedModel, unique, wait_until

TOOLS = [COLOR]


def park(gateway: Gateway, count: int) -> list[tuple[Chat, str]]:
    """So many threads that wait for their client, each with its call's id."""

    def one(_: int) -> tuple[Chat, str]:
        chat, call_id = Chat(gateway), unique("k")
        assert pending(chat.say(asks_client(call_id), tools=TOOLS)) == [call_id]
        return chat, call_id

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(count)))


def answer(parked: list[tuple[Chat, str]], model: GatedModel) -> None:
    """Answer all of them, and assert that each got its own answer."""

    def one(held: tuple[Chat, str]) -> None:
        chat, call_id = held
        give(chat, (call_id, f"for {call_id}")).succeeded()
        # The model keeps only its newest requests, so at once.
        newest = requests_of(model, call_id)[-1]
        assert tool_messages(newest) == {call_id: f"for {call_id}"}
        assert newest["tools"][-1]["function"]["name"] == COLOR["name"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, parked))


def seconds_of_a_turn(gateway: Gateway) -> float:
    """A fresh thread's turn of 200 deltas."""
    began = time.monotonic()
    run = Chat(gateway).say("count to 200").succeeded()
    assert len(run.of("TEXT_MESSAGE_CONTENT")) == 200
    return time.monotonic() - began


def test_more_than_hermes_has_workers(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway()
    parked = park(gateway, 14)
    Chat(gateway).say("count to 20").succeeded()
    answer(parked, model)


def test_beyond_the_cap_nothing_waits(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """The turn goes on at once: its model is told why, and nothing dangerous runs."""
    gateway = make_gateway(agui={"max_parked": 2})
    parked = park(gateway, 2)
    chat, call_id, folder = Chat(gateway), unique("k"), victim(gateway)
    run = chat.say(asks_client(call_id), tools=TOOLS).succeeded()
    assert run.text() == "The end."
    assert "Too many" in tool_messages(requests_of(model, call_id)[-1])[call_id]
    chat.assert_as_transcript()
    one = unique("c")
    chat.say(deletes(folder, call_id=one)).succeeded()
    assert "Too many" in tool_messages(requests_of(model, one)[-1])[one]
    assert folder.exists()
    # A place that is given back is taken again.
    answer(parked[:1], model)
    answer(park(gateway, 1), model)
    answer(parked[1:], model)


def test_one_principal_does_not_take_all_places(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    key = "capacity-test-key-0123456789"
    gateway = make_gateway(agui={"max_parked": 3, "max_parked_per_principal": 2}, env={"AGUI_API_KEY": key})
    parked, call_id = park(gateway, 2), unique("k")
    Chat(gateway).say(asks_client(call_id), tools=TOOLS).succeeded()
    assert "Too many" in tool_messages(requests_of(model, call_id)[-1])[call_id]
    other, one = Chat(gateway, key=key), unique("k")
    assert pending(other.say(asks_client(one), tools=TOOLS)) == [one]
    answer([*parked, (other, one)], model)


def test_no_parking_at_all(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"max_parked": 0})
    folder, one = victim(gateway), unique("c")
    Chat(gateway).say(deletes(folder, call_id=one)).succeeded()
    assert folder.exists() and "BLOCKED" in tool_messages(requests_of(model, one)[-1])[one]


@pytest.mark.slow
def test_sixty_four_wait_and_another_streams(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(agui={"max_parked_per_principal": 64})
    seconds_of_a_turn(gateway)
    undisturbed = min(seconds_of_a_turn(gateway) for _ in range(3))
    parked = park(gateway, 64)
    assert all(len(open_requests(chat)) == 1 for chat, _ in parked)
    beside = min(seconds_of_a_turn(gateway) for _ in range(3))
    print(json.dumps({"undisturbed": round(undisturbed, 3), "beside 64 parked": round(beside, 3)}))
    assert beside < undisturbed * 3 + 1
    answer(parked, model)


@pytest.mark.slow
def test_agents_of_waiting_turns_are_not_evicted(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """Hermes keeps 128 agents: more threads than that come and go while some wait."""
    gateway = make_gateway()
    parked = park(gateway, 8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Chat(gateway).say("count to 2").succeeded(), range(140)))
    wait_until(lambda: all(open_requests(chat) for chat, _ in parked), "all of them still wait", 5)
    answer(parked, model)
