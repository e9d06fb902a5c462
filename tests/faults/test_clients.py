"""Clients that fail: slow, stopped, half-open, gone at any byte, back again and again."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import following, idle, rest
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until
from tests.faults.invariants import RawClient, busy, consistent, ended_once, request_bytes, unharmed

HEARTBEAT = b": keep-alive\n\n"
LARGE = "z" * 6_000_000


def run_body(chat: Chat, text: str) -> bytes:
    """A run's body; the message is the chat's from now on."""
    chat.messages.append({"id": unique("u"), "role": "user", "content": text})
    body = {"threadId": chat.thread, "runId": unique("r"), "protocolVersion": "1.0", "messages": chat.messages}
    return json.dumps(body).encode()


# --- silence


def test_heartbeats_from_the_first_second_of_silence(faulty: Gateway) -> None:
    """Before the model's first token, during a tool, and while nothing happens on a thread at all."""
    with unharmed(faulty):
        chat = Chat(faulty)
        tool = call("terminal", {"command": "sleep 1.2"}, unique("c"))
        run = chat.start(script({"text": "I wait. ", "first_ms": 1200, "tools": [tool]}, {"text": "Done."}))
        run.wait(lambda run: "RUN_STARTED" in run.types, "the start")
        began = time.monotonic()
        run.wait(lambda run: HEARTBEAT in run.raw, "the first heartbeat")
        assert time.monotonic() - began < 1.2, "it came with the answer only"
        ended_once(run).succeeded()
        before, _, after = run.raw.partition(b"TOOL_CALL_END")
        assert before.partition(b"TEXT_MESSAGE_START")[0].count(HEARTBEAT) >= 2
        assert after.partition(b"TOOL_CALL_RESULT")[0].count(HEARTBEAT) >= 2
        consistent(chat, run)


def test_heartbeats_on_an_idle_feed(faulty: Gateway) -> None:
    chat = Chat(faulty)
    chat.say(script({"text": "Hello."})).succeeded()
    with unharmed(faulty):
        head = f"GET /agui/threads/{chat.thread}/events HTTP/1.1\r\nHost: 127.0.0.1:{faulty.port}\r\n\r\n"
        client = RawClient(faulty).send(head.encode())
        for _ in range(4):
            client.until(HEARTBEAT)
        client.reset()


def test_a_stopped_reader_does_not_delay_the_heartbeats_of_others(faulty: Gateway) -> None:
    with unharmed(faulty):
        stopped = [stopped_reader(faulty) for _ in range(3)]
        tool = call("terminal", {"command": "sleep 1.5"}, unique("c"))
        run = ended_once(Chat(faulty).start(script({"tools": [tool]}, {"text": "Done."}))).succeeded()
        assert run.raw.count(HEARTBEAT) >= 2
        wait_until(lambda: busy(faulty)[2] == 0, "they are dropped")  # who reads again before that is a slow reader
        assert all(client.gone() for client in stopped)


def stopped_reader(gateway: Gateway, chat: Chat | None = None) -> RawClient:
    """A run whose client reads nothing of an answer that is more than the kernel's buffers take."""
    body = run_body(chat or Chat(gateway), script({"text": LARGE, "chunk": 200_000}))
    client = RawClient(gateway, window=2048).send(request_bytes(gateway, body))
    client.until(b"RUN_STARTED")
    return client


# --- readers that are slow, or stop


def test_a_slow_reader_gets_everything_and_holds_up_nobody(faulty: Gateway) -> None:
    with unharmed(faulty):
        chat = Chat(faulty)
        text = " ".join(f"word{number}" for number in range(4000))
        client = RawClient(faulty, window=32_768).send(request_bytes(faulty, run_body(chat, script({"text": text}))))
        client.until(b"RUN_STARTED")
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(_slowly, client)
            others = [Chat(faulty).say(script({"text": "Quick."})).succeeded() for _ in range(3)]
            assert all(run.text() == "Quick." for run in others)
            data = slow.result(90)
        assert data.count(b'"RUN_FINISHED"') == 1 and b"RUN_ERROR" not in data
        idle(chat)
        assert chat.transcript()[-1]["content"].split() == text.split()


def _slowly(client: RawClient) -> bytes:
    data = b""
    while b'"RUN_FINISHED"' not in data[-4000:]:
        piece = client.socket.recv(65536)
        if not piece:
            break
        data += piece
        time.sleep(0.005)
    client.reset()
    return data


def test_a_reader_that_takes_nothing_is_dropped_and_the_turn_goes_on(faulty: Gateway) -> None:
    with unharmed(faulty):
        chat = Chat(faulty)
        client = stopped_reader(faulty, chat)
        wait_until(lambda: busy(faulty)[2] == 0, "its stream is closed")
        idle(chat)
        assert chat.transcript()[-1]["content"] == LARGE
        assert client.gone()


# --- sockets that are half open


@pytest.mark.parametrize("what", ["nothing", "half a head", "half a body", "no body"])
def test_a_request_that_never_comes_whole(faulty: Gateway, what: str) -> None:
    with unharmed(faulty):
        chat = Chat(faulty)
        whole = request_bytes(faulty, run_body(chat, script({"text": "Never."})))
        head = whole.index(b"\r\n\r\n") + 4
        sent = {"nothing": 0, "half a head": head // 2, "half a body": head + 20, "no body": head}[what]
        client = RawClient(faulty).send(whole[:sent])
        if what in ("half a body", "no body"):
            answer = client.read(12)
            assert answer == b"HTTP/1.1 408", answer
            assert client.gone()
        else:
            client.reset()
        assert not chat.sessions()


def test_a_client_that_says_it_will_send_no_more(faulty: Gateway) -> None:
    """Half-closed: it may read on, or the server takes it for gone; the turn ends either way."""
    with unharmed(faulty):
        chat = Chat(faulty)
        client = RawClient(faulty).send(request_bytes(faulty, run_body(chat, script({"text": "Said."}))))
        client.until(b"RUN_STARTED")
        client.socket.shutdown(1)
        wait_until(lambda: chat.transcript()[-1:] == [{"role": "assistant", "content": "Said."}], "the turn is over")
        client.reset()


# --- gone at any byte


def test_an_abort_at_any_byte_of_the_request(faulty: Gateway) -> None:
    """Nothing of a request that was not whole is run."""
    with unharmed(faulty):
        chats = [Chat(faulty) for _ in range(24)]

        def one(chat: Chat) -> None:
            whole = request_bytes(faulty, run_body(chat, script({"text": "Never."})))
            RawClient(faulty).send(whole[: random.randrange(len(whole))]).reset()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, chats))
    assert not any(chat.sessions() for chat in chats)


def test_an_abort_at_any_byte_of_the_answer(faulty: Gateway) -> None:
    """The turn goes on without its reader: one answer in the history, the same that another reader gets."""
    with unharmed(faulty):
        chats = [Chat(faulty) for _ in range(16)]
        text = "one two three four five six seven eight nine ten. " * 4
        tool = call("terminal", {"command": "echo hello"})
        steps = script({"text": "I look. ", "tools": [tool]}, {"text": text, "delta_ms": 2})

        def one(chat: Chat) -> None:
            client = RawClient(faulty).send(request_bytes(faulty, run_body(chat, steps)))
            client.read(random.choice((1, 20, 200, 400, random.randrange(6000))))
            client.reset()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, chats))
        for chat in chats:
            wait_until(lambda chat=chat: len(chat.transcript()) == 4, "the turn is over")
            assert chat.transcript()[-1]["content"].strip() == text.strip()
            assert len(chat.sessions()) == 1


# --- back again


def test_a_reader_that_comes_back_ten_times_has_every_event_once(faulty: Gateway, model: GatedModel) -> None:
    with unharmed(faulty):
        chat, gates = Chat(faulty), [unique("g") for _ in range(10)]
        text = " ".join(f"part{number} {{gate:{gate}}}" for number, gate in enumerate(gates))
        run = chat.start(script({"text": text + " the end."}))
        run.wait_text(gates[0])
        start = run.frames[0].id
        run.leave()
        seen: list[Any] = []
        last = start
        for gate in gates[1:]:
            model.open_gate(gates[gates.index(gate) - 1])
            with following(chat, last) as frames:
                for line in frames:
                    seen.append(line)
                    last = line.id or last
                    if gate in json.dumps(line.event):
                        break
        model.open_gate(gates[-1])
        seen += rest(chat, last)
        said = "".join(line.event["delta"] for line in seen if line.event["type"] == "TEXT_MESSAGE_CONTENT")
        assert said == text + " the end."
        assert [line.event["type"] for line in seen].count("RUN_FINISHED") == 1
        assert chat.transcript()[-1]["content"] == said
