"""The MCP door over a real socket, with the SDK's server behind it and a scripted source of events for the agent."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.auth import OWNER
from agui_adapter.config import MCP_TOOLS
from agui_adapter.requests import read_answer
from agui_adapter.session import Turn
from agui_adapter.stream import (
    GatewayNotice,
    MessageChunk,
    MessageStart,
    Request,
    ToolCall,
    ToolResult,
    TurnFinished,
    Usage,
)
from tests.mcp_wire import Refused, Wire, wire
from tests.scripted import Gate, ScriptedAdapter, serving, until

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the package mcp")

KEY = "0123456789abcdef-key"
HELLO = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), Usage("p", "m", 10, 5), TurnFinished()]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def served(stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def serve(key: str = "", **extra: Any) -> tuple[ScriptedAdapter, str]:
        adapter, url = await stack.enter_async_context(serving(extra, tmp_path, monkeypatch, key=key))
        adapter.script = HELLO
        return adapter, url

    return serve


@pytest.fixture
async def adapter(served: Any) -> ScriptedAdapter:
    made, made.url = await served()
    return made  # type: ignore[no-any-return]


@pytest.fixture
async def client(adapter: ScriptedAdapter, stack: AsyncExitStack) -> Wire:
    return await stack.enter_async_context(wire(adapter.url))


def asks(adapter: ScriptedAdapter, request: Request) -> Any:
    """A step of a script: the worker asks and waits for the answer, which becomes text."""

    def step(turn: Turn) -> None:
        pending = adapter.requests.open(turn, request, seconds=60)
        if pending.closed is None:
            adapter.requests.park(pending)
            adapter.requests.wait(pending, lambda: "", 0.05)
        assert pending.closed is not None
        answer = pending.answer
        turn.append(MessageStart("m9"))
        turn.append(MessageChunk(f"{pending.closed}: {(answer.choice or answer.text) if answer else ''}"))

    return step


def approval(request_id: str = "q1") -> Request:
    detail = {"command": "rm -rf x", "description": "deletes"}
    return Request(request_id, "approval", "Allow?", choices=("once", "deny"), detail=detail)


QUESTION = Request("q2", "clarify", "Which colour?", choices=("red", "blue"), free_text=True)


class TestTheOffer:
    async def test_what_the_server_says_of_itself(self, adapter: ScriptedAdapter) -> None:
        async with aiohttp.ClientSession() as http:
            about = await Wire(http, adapter.url).initialize()
        assert about["serverInfo"]["name"] == "hermes-agui"
        assert "ask your user first" in about["instructions"]
        capabilities = about["capabilities"]
        assert capabilities["resources"]["subscribe"] is True
        assert {"tools", "prompts", "logging", "completions"} <= capabilities.keys()

    async def test_the_tools(self, client: Wire) -> None:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert tuple(tools) == MCP_TOOLS
        reads = {name for name, tool in tools.items() if tool["annotations"]["readOnlyHint"]}
        assert reads == {"status", "wait", "events", "threads", "history"}
        assert tools["ask"]["annotations"]["destructiveHint"] and not tools["branch"]["annotations"]["destructiveHint"]
        assert tools["ask"]["inputSchema"]["required"] == ["message"]
        assert all("description" in one for one in tools["ask"]["inputSchema"]["properties"].values())
        assert tools["ask"]["outputSchema"]["required"]

    async def test_read_only(self, served: Any) -> None:
        _, url = await served(mcp_read_only=True)
        async with wire(url) as client:
            names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
            refused = await client.call("ask", message="x")
        assert names == ["status", "wait", "events", "threads", "history"]
        assert refused["isError"] and "There is no tool 'ask'" in refused["content"][0]["text"]

    async def test_only_the_listed_tools(self, served: Any) -> None:
        _, url = await served(mcp_tools=["ask", "threads"])
        async with wire(url) as client:
            assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["ask", "threads"]
            assert (await client.call("stop", thread="t"))["isError"]
            assert (await client.ok("ask", message="x"))["text"] == "Hello"

    async def test_wrong_arguments_are_named(self, client: Wire) -> None:
        result = await client.call("ask", messag="x")
        assert result["isError"]
        assert "message: Field required" in result["content"][0]["text"] and "messag" in result["content"][0]["text"]


class TestWork:
    async def test_ask(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [
            MessageStart("m1"),
            MessageChunk("Let me see."),
            ToolCall("terminal", call_id="c1", arguments='{"command": "ls"}', message_id="m1"),
            ToolResult("terminal", call_id="c1", content="a file", message_id="t1"),
            GatewayNotice("notice", "Something else"),
            MessageStart("m2"),
            MessageChunk("One file."),
            TurnFinished(),
        ]
        result = await client.call("ask", message="What is here?", token="p1")
        told = result["structuredContent"]
        assert (told["status"], told["text"], told["notices"]) == ("done", "One file.", ["Something else"])
        (call,) = told["tool_calls"]
        assert (call["name"], call["status"], call["result"]) == ("terminal", "ok", "a file")
        assert result["content"][0]["text"].startswith("One file.") and told["thread"] in result["content"][0]["text"]
        progress = client.of("notifications/progress")
        assert {one["progressToken"] for one in progress} == {"p1"}
        assert [one["progress"] for one in progress] == sorted({one["progress"] for one in progress})
        assert 'Let me see.\n· terminal {"command": "ls"}\nOne file.' in client.progress()
        assert [one["data"] for one in client.of("notifications/message")] == ["Something else"]

    async def test_half_a_surrogate_pair(self, adapter: ScriptedAdapter, client: Wire) -> None:
        half = "a\ud800b"
        adapter.script = [MessageStart("m1"), MessageChunk(half), GatewayNotice("x", half), TurnFinished()]
        result = await client.ok("ask", message="x", thread="t")
        assert result["text"] == "a\ufffdb" and result["notices"] == ["a\ufffdb"]
        assert "a\ufffdb" in str(await client.ok("events", thread="t"))

    async def test_progress_comes_while_it_works(self, adapter: ScriptedAdapter, client: Wire) -> None:
        gate = Gate()
        adapter.script = [MessageStart("m1"), MessageChunk("first"), gate, MessageChunk(" second"), TurnFinished()]
        asking = asyncio.create_task(client.call("ask", message="x", token="p"))
        await until(lambda: "first" in client.progress())
        assert not asking.done()
        gate.open()
        assert (await asking)["structuredContent"]["text"] == "first second"

    async def test_a_failure_is_an_error(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [TurnFinished("failed", "provider_auth", "The key is wrong.")]
        result = await client.call("ask", message="x")
        assert result["isError"] and "The key is wrong." in result["content"][0]["text"]
        assert result["structuredContent"]["error"] == {"code": "provider_auth", "message": "The key is wrong."}

    async def test_a_thread_goes_on(self, adapter: ScriptedAdapter, client: Wire) -> None:
        first = await client.ok("ask", message="x")
        again = await client.ok("ask", message="y", thread=first["thread"])
        assert again["thread"] == first["thread"] and again["turn"] != first["turn"]

    async def test_start_then_wait(self, adapter: ScriptedAdapter, client: Wire) -> None:
        gate = Gate()
        adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
        started = await client.ok("start", message="x")
        assert started["status"] == "running"
        thread = started["thread"]
        assert (await client.ok("wait", thread=thread, timeout=0.2))["status"] == "running"
        await until(lambda: adapter.submitted[0].log.last >= 2)
        assert (await client.ok("status", thread=thread))["text"] == "a"
        busy = await client.call("ask", message="y", thread=thread)
        assert busy["isError"] and "thread_busy" in busy["content"][0]["text"]
        gate.open()
        done = await client.ok("wait", thread=thread)
        assert (done["status"], done["text"]) == ("done", "ab")

    async def test_a_timeout_stops_nothing(self, adapter: ScriptedAdapter, client: Wire) -> None:
        gate = Gate()
        adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
        result = await client.call("ask", message="x", timeout=0.3)
        told = result["structuredContent"]
        assert told["status"] == "running" and "Call `wait`" in result["content"][0]["text"]
        gate.open()
        assert (await client.ok("wait", thread=told["thread"]))["text"] == "ab"

    async def test_the_same_key_runs_once(self, adapter: ScriptedAdapter, client: Wire) -> None:
        asked = [client.ok("ask", message="x", idempotency_key="k") for _ in range(5)]
        turns = {told["turn"] for told in await asyncio.gather(*asked)}
        assert len(turns) == 1 and len(adapter.submitted) == 1
        other = await client.call("ask", message="y", idempotency_key="k")
        assert other["isError"] and "idempotency_conflict" in other["content"][0]["text"]

    async def test_a_key_outlives_the_log(self, adapter: ScriptedAdapter, client: Wire) -> None:
        told = await client.ok("ask", message="x", idempotency_key="k")
        adapter.threads.by_chat(f"local.{told['thread']}").turns.clear()  # type: ignore[union-attr]
        again = await client.call("ask", message="x", idempotency_key="k")
        assert again["isError"] and told["thread"] in again["content"][0]["text"] and len(adapter.submitted) == 1

    async def test_files(self, adapter: ScriptedAdapter, client: Wire) -> None:
        files = [{"name": "a.txt", "text": "the secret word is plum"}]
        told = [await client.ok("ask", message="Read it", files=files, idempotency_key="k") for _ in range(2)]
        assert "plum" in adapter.submitted[0].text and told[0]["turn"] == told[1]["turn"]
        wrong = await client.call("ask", message="x", files=[{"name": "a.txt"}])
        assert wrong["isError"] and "one of data, text and url" in wrong["content"][0]["text"]


class TestWaiting:
    async def test_without_elicitation_the_call_to_make_is_told(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [asks(adapter, approval()), TurnFinished()]
        result = await client.call("ask", message="x")
        told = result["structuredContent"]
        assert told["status"] == "needs_answer"
        (request,) = told["requests"]
        assert request["detail"]["command"] == "rm -rf x" and request["choices"] == ["once", "deny"]
        assert request["answer_with"]["tool"] == "answer"
        assert "rm -rf x" in result["content"][0]["text"] and "Call `answer`" in result["content"][0]["text"]
        arguments = request["answer_with"]["arguments"] | {"choice": "once"}
        assert (await client.ok("answer", **arguments))["text"] == "answered: once"
        again = await client.ok("answer", **arguments)
        assert again["text"] == "answered: once"
        other = await client.call("answer", request="q1", choice="deny")
        assert other["isError"] and "request_answered" in other["content"][0]["text"]

    async def test_a_wrong_answer_leaves_it_open(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [asks(adapter, QUESTION), TurnFinished()]
        thread = (await client.ok("ask", message="x"))["thread"]
        wrong = await client.call("answer", request="q2")
        assert wrong["isError"] and "invalid_answer" in wrong["content"][0]["text"]
        assert (await client.ok("status", thread=thread))["status"] == "needs_answer"
        assert (await client.ok("wait", thread=thread))["requests"][0]["id"] == "q2"
        assert (await client.ok("answer", request="q2", text="green"))["text"] == "answered: green"

    async def test_the_result_of_a_client_s_tool(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [asks(adapter, Request("q3", "client_tool", "Run chart.", "c1")), TurnFinished()]
        (request,) = (await client.ok("ask", message="x"))["requests"]
        assert request["answer_with"]["arguments"].keys() == {"request", "text"}
        wrong = await client.call("answer", request="q3")
        assert wrong["isError"] and "invalid_answer" in wrong["content"][0]["text"]
        assert (await client.ok("answer", request="q3", text="a chart"))["text"] == "answered: a chart"

    @pytest.mark.parametrize(
        ("reply", "outcome"),
        [
            ({"action": "accept", "content": {"choice": "once"}}, "answered: once"),
            ({"action": "accept", "content": {"choice": "deny", "reason": "no"}}, "answered: deny"),
            ({"action": "decline"}, "answered: deny"),
            ({"action": "cancel"}, "answered: deny"),
        ],
    )
    async def test_elicitation(self, adapter: ScriptedAdapter, reply: Any, outcome: str) -> None:
        adapter.script = [asks(adapter, approval()), TurnFinished()]
        async with wire(adapter.url, elicitation={}) as client:
            client.replies = lambda asked: {"result": reply}
            assert (await client.ok("ask", message="x"))["text"] == outcome
        (asked,) = client.of("elicitation/create")
        assert "rm -rf x" in asked["message"]
        assert asked["requestedSchema"]["properties"]["choice"]["enum"] == ["once", "deny"]

    async def test_a_client_that_cannot_after_all(self, adapter: ScriptedAdapter) -> None:
        adapter.script = [asks(adapter, QUESTION), TurnFinished()]
        async with wire(adapter.url, elicitation={}) as client:
            client.replies = lambda asked: {"error": {"code": -32601, "message": "no"}}
            assert (await client.ok("ask", message="x"))["status"] == "needs_answer"

    async def test_answered_elsewhere_the_form_is_taken_back(self, adapter: ScriptedAdapter) -> None:
        adapter.script = [asks(adapter, QUESTION), TurnFinished()]
        async with wire(adapter.url, elicitation={}) as client:
            asking = asyncio.create_task(client.ok("ask", message="x"))
            await until(lambda: client.of("elicitation/create"))
            (pending,) = adapter.requests.of_turn(adapter.submitted[0])
            adapter.requests.answer(pending, read_answer(pending.request, "blue"), OWNER)
            assert (await asking)["text"] == "answered: blue"
            assert client.of("notifications/cancelled")

    async def test_another_principal_knows_nothing_of_it(self, served: Any) -> None:
        adapter, url = await served(key=KEY)
        adapter.script = [asks(adapter, approval()), TurnFinished()]
        async with wire(url) as anna, wire(url, KEY) as owner:
            thread = (await anna.ok("ask", message="x", thread="t"))["thread"]
            for name, arguments in {
                "answer": {"request": "q1", "choice": "once"},
                **{name: {"thread": thread} for name in ("status", "wait", "events", "history", "stop", "branch")},
                "steer": {"thread": thread, "text": "x"},
            }.items():
                made_up = arguments | ({"thread": "nope"} if "thread" in arguments else {"request": "nope"})
                assert await owner.call(name, **arguments) == await owner.call(name, **made_up), name
            assert (await owner.ok("threads"))["threads"] == []
            assert "error" in await owner.request("resources/read", uri="hermes://threads/t")
            assert "error" in await owner.request("resources/subscribe", uri="hermes://threads/t")


class TestLeaving:
    async def test_cancelling_stops_the_turn(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        asking = asyncio.create_task(client.call("ask", rid=77, message="x", token="p"))
        await until(lambda: "a" in client.progress())
        await client.notify("notifications/cancelled", requestId=77)
        await until(lambda: adapter.submitted[0].done.is_set())
        assert adapter.submitted[0].log.events()[-1] == TurnFinished("cancelled")
        asking.cancel()

    async def test_cancelling_wait_stops_only_the_waiting(self, adapter: ScriptedAdapter, client: Wire) -> None:
        gate = Gate()
        adapter.script = [gate, MessageStart("m1"), MessageChunk("a"), TurnFinished()]
        thread = (await client.ok("start", message="x"))["thread"]
        waiting = asyncio.create_task(client.call("wait", rid=78, thread=thread, token="p"))
        await until(lambda: client.progress())
        await client.notify("notifications/cancelled", requestId=78)
        waiting.cancel()
        gate.open()
        assert (await client.ok("wait", thread=thread))["text"] == "a"

    async def test_a_client_that_goes_stops_nothing(self, adapter: ScriptedAdapter) -> None:
        gate = Gate()
        adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
        async with wire(adapter.url) as client:
            asking = asyncio.create_task(client.call("ask", message="x", thread="t", token="p"))
            await until(lambda: "a" in client.progress())
            asking.cancel()
            await asyncio.wait([asking])
        gate.open()
        async with wire(adapter.url) as client:
            assert (await client.ok("wait", thread="t"))["text"] == "ab"

    async def test_deleting_the_session_leaves_the_turn_and_no_call(self, adapter: ScriptedAdapter) -> None:
        gate = Gate()
        adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
        async with wire(adapter.url) as client:
            asking = asyncio.create_task(client.call("ask", message="x", thread="t", token="p"))
            await until(lambda: "a" in client.progress())
            assert await client.delete() == 200
            await asyncio.wait([asking])
            await until(lambda: adapter.submitted[0].readers == 0)
            with pytest.raises(Refused) as gone:
                await client.request("tools/list")
            assert gone.value.status == 404
        assert not adapter.submitted[0].done.is_set()
        gate.open()
        await until(adapter.submitted[0].done.is_set)

    async def test_steer_and_stop_where_nothing_runs(self, client: Wire) -> None:
        thread = (await client.ok("ask", message="x"))["thread"]
        assert (await client.call("steer", thread=thread, text="y"))["isError"]
        assert (await client.ok("stop", thread=thread))["stopped"] is False

    async def test_stop(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        thread = (await client.ok("start", message="x"))["thread"]
        assert (await client.ok("stop", thread=thread))["stopped"] is True
        assert (await client.ok("status", thread=thread))["status"] == "stopped"

    async def test_the_gateway_stops_with_calls_and_streams_open(self, served: Any) -> None:
        adapter, url = await served()
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        async with wire(url) as client, client.listening():
            asking = asyncio.create_task(client.call("ask", message="x", token="p"))
            await until(lambda: "a" in client.progress())
            began = time.monotonic()
            await adapter.disconnect()
            assert time.monotonic() - began < 8
            await asyncio.wait([asking])


class TestReading:
    async def test_events(self, adapter: ScriptedAdapter, client: Wire) -> None:
        gate = Gate()
        adapter.script = [*HELLO[:3], gate, asks(adapter, QUESTION), TurnFinished()]
        thread = (await client.ok("start", message="x"))["thread"]
        found = await client.ok("events", thread=thread, wait=5)
        while not found["events"] or found["events"][-1].get("text") != "Hello":
            found = await client.ok("events", thread=thread)
        waiting = asyncio.create_task(client.ok("events", thread=thread, after=found["next"], wait=30))
        gate.open()
        more = await waiting
        assert more["events"][0]["type"] == "request" and more["events"][0]["answer_with"]
        await client.ok("answer", request="q2", text="red")
        rest = await client.ok("events", thread=thread, after=more["next"])
        kinds = [event["type"] for event in rest["events"]]
        assert kinds[-3:] == ["request_closed", "text", "end"]
        await client.ok("ask", message="y", thread=thread, timeout=0.1)
        later = await client.ok("events", thread=thread, after=rest["next"], wait=5)
        assert later["events"] and later["next"].split(".")[0] != rest["next"].split(".")[0]
        assert (await client.call("events", thread=thread, after="made.up"))["isError"]

    async def test_events_behind_a_place_that_was_merged(self, served: Any, stack: AsyncExitStack) -> None:
        adapter, url = await served(log_bytes_per_turn=65536)
        client, words = await stack.enter_async_context(wire(url)), [f"{n} " for n in range(6000)]
        gate = Gate()
        adapter.script = [MessageStart("m1"), *map(MessageChunk, words[:9]), gate, *map(MessageChunk, words[9:])]
        adapter.script = [*adapter.script, TurnFinished()]
        thread = (await client.ok("start", message="x"))["thread"]
        first = await client.ok("events", thread=thread, limit=1, wait=5)
        gate.open()
        await client.ok("wait", thread=thread)
        rest = (await client.ok("events", thread=thread, after=first["next"], limit=500))["events"]
        assert [one["type"] for one in rest] == ["revised", "text", "end"]
        assert rest[0]["text"] + rest[1]["text"] == "".join(words)

    async def test_resources(self, adapter: ScriptedAdapter, client: Wire) -> None:
        await client.ok("ask", message="x", thread="a/b c")
        found = (await client.request("resources/list"))["resources"]
        assert [one["uri"] for one in found] == ["hermes://threads", "hermes://threads/a%2Fb%20c"]
        (content,) = (await client.request("resources/read", uri=found[1]["uri"]))["contents"]
        assert content["mimeType"] == "text/markdown"
        (content,) = (await client.request("resources/read", uri="hermes://threads"))["contents"]
        assert "a/b c" in content["text"]
        assert (await client.request("resources/templates/list"))["resourceTemplates"][0]["uriTemplate"]
        completed = await client.request(
            "completion/complete",
            ref={"type": "ref/resource", "uri": "hermes://threads/{thread}"},
            argument={"name": "thread", "value": "a/"},
        )
        assert completed["completion"]["values"] == ["a/b c"]
        for uri in ("hermes://threads/nope", "file:///etc/passwd"):
            assert (await client.request("resources/read", uri=uri))["error"]["code"] == -32002

    async def test_a_subscriber_is_told(self, adapter: ScriptedAdapter, client: Wire) -> None:
        await client.ok("ask", message="x", thread="t")
        uri = "hermes://threads/t"
        async with client.listening():
            await client.request("resources/subscribe", uri=uri)
            gate = Gate()
            adapter.script = [gate, *HELLO]
            await client.ok("start", message="y", thread="t")
            await until(lambda: len(client.of("notifications/resources/updated")) == 1)
            gate.open()
            await until(lambda: len(client.of("notifications/resources/updated")) == 2)
            assert {one["uri"] for one in client.of("notifications/resources/updated")} == {uri}
            await client.request("resources/unsubscribe", uri=uri)
            before = len(client.told)
            await client.ok("ask", message="z", thread="t")
            await client.request("ping")
            assert not [one for one in client.told[before:] if "resources" in one["method"]]

    async def test_prompts(self, client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        skill = {"name": "pdf", "description": "Works with PDF.", "kind": "skill", "argsHint": ""}
        monkeypatch.setattr("agui_adapter.mcp_door.prompts.Actions.commands", lambda *_: [skill, skill | {"kind": "x"}])
        found = [one["name"] for one in (await client.request("prompts/list"))["prompts"]]
        assert found == ["delegate", "skill-pdf"]
        made = await client.request("prompts/get", name="skill-pdf", arguments={"task": "Join two files"})
        assert "Join two files" in made["messages"][0]["content"]["text"]
        assert "error" in await client.request("prompts/get", name="nope", arguments={"task": "x"})
        assert "error" in await client.request("prompts/get", name="delegate")

    async def test_log_level(self, adapter: ScriptedAdapter, client: Wire) -> None:
        adapter.script = [GatewayNotice("notice", "psst"), TurnFinished()]
        await client.request("logging/setLevel", level="error")
        await client.ok("ask", message="x")
        assert not client.of("notifications/message")

    async def test_hidden_tools_stay_hidden(self, served: Any) -> None:
        adapter, url = await served(tool_output="names")
        adapter.script = [
            ToolCall("terminal", call_id="c1", arguments='{"command": "hush"}', message_id="m1"),
            ToolResult("terminal", call_id="c1", content="hush", message_id="t1"),
            TurnFinished(),
        ]
        async with wire(url) as client:
            result = await client.call("ask", message="x", token="p")
            steps = await client.ok("events", thread=result["structuredContent"]["thread"])
            assert "hush" not in f"{result}{steps}{client.told}" and "terminal" in client.progress()


class TestComingIn:
    async def test_a_token_is_demanded_with_metadata(self, served: Any) -> None:
        _, url = await served(key=KEY, require_token=True)
        async with aiohttp.ClientSession() as http:
            for token, error in (("", None), ("wrong", 'error="invalid_token"')):
                with pytest.raises(Refused) as refused:
                    await Wire(http, url, token).initialize()
                assert refused.value.status == 401
                challenge = refused.value.headers["WWW-Authenticate"]
                assert challenge.startswith("Bearer ") and (error is None or error in challenge)
            metadata = challenge.split('resource_metadata="')[1].split('"')[0]
            async with http.get(metadata) as response:
                assert response.status == 200
                about = await response.json()
            assert about["resource"] == f"{url}/mcp" and about["bearer_methods_supported"] == ["header"]
        async with wire(url, KEY) as client:
            assert (await client.ok("ask", message="x"))["text"] == "Hello"

    async def test_a_session_is_its_principals(self, served: Any) -> None:
        _, url = await served(key=KEY)
        async with wire(url) as anna, wire(url, KEY) as owner:
            owner.headers["Mcp-Session-Id"] = anna.headers["Mcp-Session-Id"]
            with pytest.raises(Refused) as foreign:
                await owner.request("tools/list")
            owner.headers["Mcp-Session-Id"] = "f" * 32
            with pytest.raises(Refused) as made_up:
                await owner.request("tools/list")
            assert foreign.value.status == made_up.value.status == 404
            assert foreign.value.text == made_up.value.text
            assert (await anna.request("tools/list"))["tools"]

    async def test_no_session_is_left_of_a_request_that_begins_none(self, adapter: ScriptedAdapter) -> None:
        async with aiohttp.ClientSession() as http:
            client = Wire(http, adapter.url)
            with pytest.raises(Refused) as refused:
                await client.request("tools/list")
            assert refused.value.status == 400
            async with http.post(client.url, data="{", headers=client.headers) as response:
                assert response.status == 400
            async with http.put(client.url) as response:
                assert response.status == 405
            for one in ({"Accept": "text/plain"}, {"Content-Type": "text/plain"}):
                async with http.post(client.url, data="{}", headers=client.headers | one) as response:
                    assert response.status in (400, 406, 415)
        door = _door(adapter)
        assert not door._sessions and not door._manager._server_instances

    async def test_the_least_used_session_makes_room(self, served: Any) -> None:
        adapter, url = await served(mcp_max_sessions=2)
        async with wire(url) as first, wire(url) as second, first.listening(), wire(url) as third:
            with pytest.raises(Refused):
                await second.request("tools/list")
            assert (await first.request("tools/list"))["tools"] and (await third.request("tools/list"))["tools"]
            async with third.listening():
                with pytest.raises(Refused) as full:
                    async with wire(url):
                        pass
                assert full.value.status == 503 and "Retry-After" in full.value.headers
        assert len(_door(adapter)._manager._server_instances) == 2

    async def test_an_unused_session_ends(self, served: Any) -> None:
        adapter, url = await served(mcp_session_seconds=1)
        async with wire(url):
            await until(lambda: not _door(adapter)._sessions)
            assert not _door(adapter)._manager._server_instances

    async def test_a_page_of_another_origin_stays_out(self, adapter: ScriptedAdapter) -> None:
        async with aiohttp.ClientSession() as http:
            for headers, status in (({"Origin": "http://evil.test"}, 403), ({"Host": "evil.test"}, 421)):
                async with http.post(f"{adapter.url}/mcp", data="{}", headers=headers) as response:
                    assert response.status == status

    async def test_off(self, served: Any) -> None:
        _, url = await served(mcp=False)
        async with aiohttp.ClientSession() as http, http.post(f"{url}/mcp", json={}) as response:
            assert response.status == 404
            assert (await response.json())["code"] == "mcp_off"

    async def test_without_the_package(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "mcp" else found(name))
        _, url = await served()
        async with aiohttp.ClientSession() as http, http.get(f"{url}/mcp") as response:
            assert response.status == 404
            assert "pip install 'hermes-agui[mcp]'" in (await response.json())["detail"]


def _door(adapter: ScriptedAdapter) -> Any:
    """The door of a running adapter."""
    assert adapter._server is not None and adapter._server._runner is not None
    app = adapter._server._runner.app
    return next(one.__self__ for one in app.on_shutdown if type(getattr(one, "__self__", None)).__name__ == "McpDoor")
