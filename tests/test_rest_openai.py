"""OpenAI's API over a real socket and a scripted source of events: what comes in, what goes out, and to whom."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.config import load
from agui_adapter.errors import AguiError
from agui_adapter.rest.conversation import read_messages
from agui_adapter.rest.items import MAX_INLINE_CHARS, kept, messages_of, read_items
from agui_adapter.rest.options import read_options
from agui_adapter.rest.response_store import ResponseRecord, ResponseStore
from agui_adapter.session import Turn
from agui_adapter.store import Store
from agui_adapter.stream import (
    MessageChunk,
    MessageStart,
    Request,
    ToolCall,
    ToolResult,
    TurnFinished,
    Usage,
)
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, serving, until

KEY = "the-owners-key-0123456789abcdef"
ANNA, BERT = "anna" * 10, "bert" * 10  # two devices, each a principal of its own
HELLO = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), Usage("p", "m", 3, 2), TurnFinished()]
CHART = {"type": "function", "function": {"name": "draw_chart", "parameters": {"type": "object"}}}


class Api:
    """A client of the served adapter."""

    def __init__(self, adapter: ScriptedAdapter, url: str, http: aiohttp.ClientSession) -> None:
        self.adapter, self.url, self.http = adapter, url, http

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = ANNA, **headers: str
    ) -> tuple[int, Any, Any]:
        """Status, body and headers; the body of a stream as the list of its data."""
        given = {"Authorization": f"Bearer {who}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with (
            asyncio.timeout(PATIENCE),
            self.http.request(method, self.url + path, json=body, headers=given) as response,
        ):
            text = await response.text()
            if response.content_type == "text/event-stream":
                return response.status, [line[6:] for line in text.split("\n") if line.startswith("data: ")], response
            return response.status, json.loads(text), response

    async def chat(self, *messages: Any, who: str = ANNA, headers: dict[str, str] | None = None, **more: Any) -> Any:
        said = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
        status, made, _ = await self.call(
            "POST", "/v1/chat/completions", {"messages": said, **more}, who=who, **(headers or {})
        )
        assert status == 200, made
        return made

    async def refused(self, code: str, status: int, path: str, body: Any, **more: str) -> Any:
        found, made, _ = await self.call("POST", path, body, **more)
        assert (found, made["error"]["code"]) == (status, code), made
        assert made["error"]["message"] and made["error"]["type"]
        return made["error"]

    def parks(self, *call_ids: str) -> list[Any]:
        """A script that waits for these calls of the client's, and then greets."""

        def wait(turn: Turn) -> None:
            opened = [
                self.adapter.requests.open(turn, Request(f"q-{turn.id}-{one}", "client_tool", call_id=one), seconds=60)
                for one in call_ids
            ]
            for pending in opened:
                if pending.closed is None:
                    self.adapter.requests.park(pending)
                    self.adapter.requests.wait(pending, lambda: "", 0.05)
                turn.append(ToolResult("draw_chart", call_id=pending.request.call_id, content="x", client=True))

        calls = [ToolCall("draw_chart", call_id=one, message_id="m0", client=True) for one in call_ids]
        return [*calls, wait, *HELLO]


Open = Callable[..., Any]


@pytest.fixture
def open_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    @asynccontextmanager
    async def opened(**extra: Any) -> AsyncIterator[Api]:
        async with serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, url), aiohttp.ClientSession() as http:
            adapter.script = HELLO
            yield Api(adapter, url, http)

    return opened


@pytest.fixture
async def api(open_api: Open) -> AsyncIterator[Api]:
    async with open_api() as made:
        yield made


class TestOneTruth:
    async def test_the_same_script_says_the_same_on_every_route(self, api: Api) -> None:
        """Chat plain and streamed, responses plain and streamed, AG-UI: text, calls' absence, usage, end."""
        plain = await api.chat("Hi")
        streamed = await api.chat("Hi", stream=True, stream_options={"include_usage": True})
        assert streamed[-1] == "[DONE]"
        parts = [json.loads(one) for one in streamed[:-1]]
        text = "".join(one["choices"][0]["delta"].get("content") or "" for one in parts if one["choices"])
        assert text == plain["choices"][0]["message"]["content"] == "Hello"
        assert parts[-1]["usage"] == plain["usage"]
        _, response, _ = await api.call("POST", "/v1/responses", {"input": "Hi"})
        _, events, _ = await api.call("POST", "/v1/responses", {"input": "Hi", "stream": True})
        last = json.loads(events[-1])["response"]
        for made in (response, last):
            assert made["output"][0]["content"][0]["text"] == "Hello" and made["status"] == "completed"
            assert made["usage"]["total_tokens"] == plain["usage"]["total_tokens"] == 5
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "Hi"}]}
        _, agui, _ = await api.call("POST", "/agui", body)
        assert "".join(json.loads(one).get("delta", "") for one in agui) == "Hello"

    async def test_a_broken_translator_ends_the_stream_with_an_error(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from agui_adapter.rest.chunks import ChatStream

        def broken(*_: Any) -> Any:
            raise ZeroDivisionError("secret detail")

        monkeypatch.setattr(ChatStream, "_text", broken)
        data = await api.chat("Hi", stream=True)
        assert json.loads(data[-2])["error"]["code"] == "internal" and data[-1] == "[DONE]"
        assert "secret detail" not in "".join(data)


class TestTwoCallers:
    async def test_calls_are_answered_by_their_own_caller_only(self, api: Api) -> None:
        api.adapter.script = api.parks("c1")
        first = await api.chat("Draw", tools=[CHART])
        assert first["choices"][0]["finish_reason"] == "tool_calls"
        (turn,) = api.adapter.submitted
        going_on = [
            {"role": "user", "content": "Draw"},
            first["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ]
        api.adapter.script = HELLO
        await api.chat(*going_on, who=BERT)  # to Bert it is a conversation that he brings
        assert len(api.adapter.submitted) == 2 and not turn.done.is_set()
        assert (await api.chat(*going_on))["choices"][0]["message"]["content"] == "Hello"
        assert len(api.adapter.submitted) == 2 and turn.done.is_set()
        # The same request again is the same answer.
        assert (await api.chat(*going_on))["choices"][0]["message"]["content"] == "Hello"
        assert len(api.adapter.submitted) == 2

    async def test_ids_that_a_provider_repeats_never_meet(self, api: Api) -> None:
        """Two stateless conversations of one caller wait for calls of the same id at the same time."""
        threads = api.adapter.threads
        one = threads.passing(threads.get(_principal("anna"), "x").principal, "once-1")
        two = threads.passing(one.principal, "once-2")
        assert one.client_call_ids is two.client_call_ids
        other = threads.passing(_principal("bert"), "once-3")
        assert other.client_call_ids is not one.client_call_ids

    async def test_sessions_and_responses_are_their_callers(self, api: Api) -> None:
        named = {"X_Hermes_Session_Id": "mine"}
        await api.chat("I am Anna", headers=named)
        await api.chat("I am Bert", who=BERT, headers=named)
        anna, bert = (turn.thread for turn in api.adapter.submitted)
        assert anna is not bert
        _, made, _ = await api.call("POST", "/v1/responses", {"input": "Hi"})
        path = f"/v1/responses/{made['id']}"
        for method, address in (("GET", path), ("DELETE", path), ("GET", f"{path}/input_items")):
            status, told, _ = await api.call(method, address, who=BERT)
            assert (status, told["error"]["code"]) == (404, "response_not_found")
        await api.refused("response_not_found", 404, f"{path}/cancel", None, who=BERT)
        await api.refused(
            "previous_response_not_found",
            404,
            "/v1/responses",
            {"input": "x", "previous_response_id": made["id"]},
            who=BERT,
        )
        assert (await api.call("GET", path))[0] == 200

    async def test_anothers_memory_cannot_be_named(self, api: Api) -> None:
        """Whatever key a caller names, memory is scoped by the caller too; the same key is the same memory."""
        for key, who in (("k", ANNA), ("k", ANNA), ("k", BERT), ("token-anna.k", BERT), ("agent:main:agui:dm:x", BERT)):
            await api.chat("Hi", who=who, headers={"X_Hermes_Session_Key": key})
        first, again, *others = (turn.memory for turn in api.adapter.submitted)
        assert first == again and len({first, *others}) == 4
        assert not {"k", "token-anna.k", "agent:main:agui:dm:x"} & {first, *others}

    async def test_keys_of_idempotency_too(self, api: Api) -> None:
        key = {"Idempotency_Key": "k"}
        first, again = await api.chat("Hi", headers=key), await api.chat("Hi", headers=key)
        assert first == again and len(api.adapter.submitted) == 1
        await api.chat("Hi", who=BERT, headers=key)
        assert len(api.adapter.submitted) == 2
        await api.refused("idempotency_conflict", 409, "/v1/chat/completions", _body("Ho"), **key)

    async def test_at_once_it_runs_once(self, api: Api) -> None:
        gate = Gate()
        api.adapter.script = [gate, *HELLO]
        both = [asyncio.ensure_future(api.chat("Hi", headers={"Idempotency_Key": "k"})) for _ in range(2)]
        await until(lambda: getattr(api.adapter, "submitted", None))
        gate.open()
        first, second = await asyncio.gather(*both)
        assert first == second and len(api.adapter.submitted) == 1


class TestRefused:
    async def test_a_wrong_token(self, api: Api) -> None:
        wrong = {"Authorization": "Bearer short"}
        async with api.http.post(f"{api.url}/v1/chat/completions", json=_body("Hi"), headers=wrong) as response:
            assert response.status == 401 and (await response.json())["error"]["type"] == "authentication_error"

    @pytest.mark.parametrize(
        ("body", "status", "code", "param"),
        [
            ({}, 422, "invalid_input", "messages"),
            ({"messages": []}, 422, "invalid_input", "messages"),
            ({"messages": [1]}, 422, "invalid_input", "messages[0]"),
            ({"messages": [{"role": "user", "content": 5}]}, 422, "invalid_input", "messages[0].content"),
            (
                {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
                422,
                "invalid_input",
                "messages[0].content[0].type",
            ),
            ({"messages": [{"role": "user", "content": " "}]}, 400, "no_input", None),
            ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "no_input", None),
            ({"n": 2}, 422, "invalid_input", "n"),
            ({"tools": {}}, 422, "invalid_input", "tools"),
            ({"tools": [CHART, CHART]}, 422, "invalid_tool", None),
            ({"response_format": {"type": "xml"}}, 422, "invalid_input", "response_format.type"),
            ({"model": 5}, 422, "invalid_input", "model"),
        ],
    )
    async def test_a_wrong_body(self, api: Api, body: Any, status: int, code: str, param: str | None) -> None:
        whole = body if "messages" in body or not body else {**_body("Hi"), **body}
        error = await api.refused(code, status, "/v1/chat/completions", whole)
        assert error["param"] == param
        assert not getattr(api.adapter, "submitted", [])

    async def test_wrong_headers(self, api: Api) -> None:
        for name, code in (
            ("X_Hermes_Session_Id", "invalid_session_id"),
            ("X_Hermes_Session_Key", "invalid_session_key"),
        ):
            await api.refused(code, 422, "/v1/chat/completions", _body("Hi"), **{name: "x" * 2000})
        await api.refused("invalid_input", 422, "/v1/chat/completions", _body("Hi"), X_Hermes_Tools="all")

    async def test_a_page_may_send_what_openais_sdk_sends(self, open_api: Open) -> None:
        async with open_api(cors_origins=["https://app.example"]) as api:
            asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
            async with api.http.options(f"{api.url}/v1/chat/completions", headers=asked) as response:
                allowed = response.headers["Access-Control-Allow-Headers"].lower()
                assert response.status == 204 and "x-stainless-os" in allowed and "x-hermes-session-id" in allowed


class TestStored:
    async def test_a_response_that_is_being_made(self, api: Api) -> None:
        gate = Gate()
        api.adapter.script = [MessageStart("m"), MessageChunk("So far"), gate, *HELLO]
        _, made, _ = await api.call("POST", "/v1/responses", {"input": "Hi", "background": True})
        assert made["status"] == "in_progress" and made["background"] is True
        path = f"/v1/responses/{made['id']}"

        async def now() -> Any:
            return (await api.call("GET", path))[1]

        while "So far" not in json.dumps(told := await now()):
            assert told["status"] == "in_progress"
        gate.open()
        while (told := await now())["status"] != "completed":
            pass
        assert [one["content"][0]["text"] for one in told["output"]] == ["So far", "Hello"]

    async def test_one_that_the_process_died_in_has_failed(self, open_api: Open) -> None:
        async with open_api() as api:
            api.adapter.script = [MessageStart("m")]
            _, made, _ = await api.call("POST", "/v1/responses", {"input": "Hi", "background": True})
            stored = ResponseStore(api.adapter.archive.store, most=10)
            (turn,) = api.adapter.submitted
        async with open_api() as api:
            archive = api.adapter.archive
            stored = ResponseStore(archive.store, most=10)
            record = await archive.run(lambda: stored.get(turn.thread.principal.id, made["id"]))
            assert record is not None
            await archive.run(lambda: stored.save(made["id"], {**record.body, "status": "in_progress"}))
            _, told, _ = await api.call("GET", f"/v1/responses/{made['id']}")
            assert told["status"] == "failed" and told["error"]["message"]

    async def test_nobody_lists_their_threads(self, api: Api) -> None:
        _, first, _ = await api.call("POST", "/v1/responses", {"input": "Hi"})
        await api.call("POST", "/v1/responses", {"input": "More", "previous_response_id": first["id"]})
        one, two = api.adapter.submitted
        assert one.thread is two.thread and one.thread.hidden
        assert (await api.call("GET", "/agui/threads"))[1]["total"] == 0
        # From the older link another one begins.
        await api.call("POST", "/v1/responses", {"input": "Else", "previous_response_id": first["id"]})
        assert api.adapter.submitted[-1].thread is not one.thread
        assert (await api.call("GET", "/agui/threads"))[1]["total"] == 0

    async def test_input_items_by_pages(self, api: Api) -> None:
        items = [{"role": "user", "content": str(number)} for number in range(5)]
        _, made, _ = await api.call("POST", "/v1/responses", {"input": items})
        path = f"/v1/responses/{made['id']}/input_items"
        _, page, _ = await api.call("GET", f"{path}?limit=2&order=asc")
        assert [one["content"][0]["text"] for one in page["data"]] == ["0", "1"] and page["has_more"]
        _, rest, _ = await api.call("GET", f"{path}?order=asc&after={page['last_id']}")
        assert [one["content"][0]["text"] for one in rest["data"]] == ["2", "3", "4"] and not rest["has_more"]
        _, newest, _ = await api.call("GET", f"{path}?limit=1")
        assert newest["data"][0]["content"][0]["text"] == "4"
        assert (await api.call("GET", f"{path}?limit=0"))[0] == 422

    def test_it_is_bounded_and_expires(self, tmp_path: Path) -> None:
        store = Store(tmp_path / "agui.db")
        store.open()
        stored, now = ResponseStore(store, most=2), time.time()
        base = ResponseRecord("r0", "anna", "chat", "t", "key", True, "turn", 0, "", now, now + 60, {"status": "x"}, [])
        for number in range(4):
            stored.add(replace(base, response_id=f"r{number}", created=now + number, chat_id=f"chat{number}"))
        stored.add(replace(base, response_id="old", chat_id="old", created=now + 9, expires=now - 1))
        assert stored.get("anna", "old") is None and stored.get("bert", "r3") is None
        assert sorted(chat for chat, _ in stored.prune()) == ["chat0", "chat1", "old"]
        left = [name for name in ("r0", "r1", "r2", "r3") if stored.get("anna", name)]
        assert left == ["r2", "r3"]
        assert stored.delete(base) == [("chat", "key")] and stored.prune() == []
        store.close()


class TestReading:
    def test_a_conversation_is_sorted_out(self) -> None:
        said = read_messages(
            [
                {"role": "system", "content": "A"},
                {"role": "developer", "content": [{"type": "text", "text": "B"}]},
                {"role": "user", "content": "1", "name": "x"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "2"},
                {"role": "user", "content": "3"},
                {"role": "system", "content": "late"},
            ],
            most=10,
            prefix="p",
        )
        assert (said.instructions, said.late) == ("A\n\nB", "late")
        assert [one["role"] for one in said.history] == ["user", "assistant"]
        assert [one["content"] for one in said.results + said.new] == ["2", "3"]
        with pytest.raises(AguiError) as many:
            read_messages([{}] * 11, most=10, prefix="p")
        assert many.value.status == 413

    def test_parts(self) -> None:
        content = [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "https://h/a.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"type": "file", "file": {"file_data": "data:text/plain;base64,QQ==", "filename": "a.txt"}},
        ]
        (message,) = read_messages([{"role": "user", "content": content}], most=10, prefix="p").new
        assert message["content"] == [
            {"type": "text", "text": "See"},
            {"type": "image", "source": {"type": "url", "value": "https://h/a.png"}},
            {"type": "audio", "source": {"type": "data", "value": "AAAA", "mimeType": "audio/mpeg"}},
            {
                "type": "document",
                "source": {"type": "url", "value": "data:text/plain;base64,QQ=="},
                "metadata": {"filename": "a.txt"},
            },
        ]

    def test_items_of_responses(self) -> None:
        items = read_items(
            [
                {"role": "user", "content": "1"},
                {"type": "reasoning", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "3"}]},
            ],
            most=10,
            prefix="p",
        )
        user, assistant, tool = messages_of(items)
        assert (user["content"], assistant["content"], tool["content"]) == ("1", "2", "3")
        assert assistant["toolCalls"][0]["id"] == tool["toolCallId"] == "c"
        large = "A" * (MAX_INLINE_CHARS + 1)
        assert large not in json.dumps(kept([{"content": [{"image_url": f"data:image/png;base64,{large}"}]}]))

    def test_options(self) -> None:
        body = {
            "model": "gpt",
            "temperature": 1,
            "max_completion_tokens": 5,
            "top_p": 0.5,
            "reasoning": {"effort": "low"},
        }
        asked = read_options(body, allowed=("temperature", "max_tokens", "reasoning_effort"), agent="a")
        overrides = asked.overrides
        assert (overrides.temperature, overrides.max_tokens, overrides.reasoning_effort) == (1.0, 5, "low")
        assert (overrides.model, overrides.top_p, asked.ignored, asked.model) == (None, None, ("top_p",), "gpt")
        assert read_options({"model": "gpt"}, allowed=("model",), agent="a").overrides.model == "gpt"
        assert read_options({"model": "a"}, allowed=("model",), agent="a").overrides.model is None
        two = {"type": "function", "name": "other", "parameters": {}}
        chosen = {"tools": [CHART, two, {"type": "web_search"}], "tool_choice": {"type": "function", "name": "other"}}
        made = read_options(chosen, allowed=(), agent="a")
        assert [one["name"] for one in made.tools] == ["other"] and made.ignored == ("tools.web_search",)
        assert read_options({**chosen, "tool_choice": "none"}, allowed=(), agent="a").tools == ()
        form = {"format": {"type": "json_schema", "name": "n", "schema": {}}}
        assert read_options({"text": form}, allowed=(), agent="a").overrides.response_format == {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {}},
        }
        with pytest.raises(AguiError):
            read_options({"temperature": 9}, allowed=("temperature",), agent="a")


def _body(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _principal(name: str) -> Any:
    from agui_adapter.session import Principal

    return Principal(name)


def test_the_name_of_the_agent_is_the_operators() -> None:
    assert load({"rest_model": " mine "}, {}).rest_model == "mine"
