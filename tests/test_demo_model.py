"""The scripted model, seen through the official `openai` SDK, and its answers to the calls that Hermes makes."""

import asyncio
import http.client
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from agui_adapter.demo import wire
from agui_adapter.demo.model import BackgroundModel, ScriptedModel
from agui_adapter.demo.script import ScriptError, find_script, parse_step, turn_of

TERMINAL = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def model() -> Iterator[BackgroundModel]:
    with BackgroundModel() as running:
        yield running


@pytest.fixture(scope="module")
def client(model: BackgroundModel) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.url, api_key="sk-none", max_retries=0, timeout=10)


def script(*steps: dict[str, Any], before: str = "", after: str = "") -> list[dict[str, Any]]:
    """One user message with the script, made unique so that no fault counter is shared."""
    text = json.dumps({"script": steps, "unique": uuid.uuid4().hex})
    return [{"role": "system", "content": "You are Hermes."}, {"role": "user", "content": before + text + after}]


def stream(client: openai.OpenAI, messages: list[Any], **options: Any) -> list[Any]:
    return list(client.chat.completions.create(model="scripted-1", messages=messages, stream=True, **options))


def texts(chunks: list[Any], field: str = "content") -> list[str]:
    found = [getattr(chunk.choices[0].delta, field, None) for chunk in chunks if chunk.choices]
    return [text for text in found if text]


# --- streaming


def test_text_comes_by_words_with_their_white_space(client: openai.OpenAI) -> None:
    chunks = stream(client, script({"text": "  Two  words\n\nand more "}))
    assert texts(chunks) == ["  ", "Two  ", "words\n\n", "and ", "more "]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks][-1] == "stop"
    assert all(c.choices[0].finish_reason is None for c in chunks[:-1])


def test_chunk_sets_the_size_of_a_delta(client: openai.OpenAI) -> None:
    assert texts(stream(client, script({"text": "abcdefgh", "chunk": 3}))) == ["abc", "def", "gh"]


def test_reasoning_precedes_text(client: openai.OpenAI) -> None:
    chunks = stream(client, script({"reasoning": "I think so.", "text": "Yes."}))
    assert "".join(texts(chunks, "reasoning_content")) == "I think so."
    order = [
        "reasoning" if getattr(c.choices[0].delta, "reasoning_content", None) else "text"
        for c in chunks
        if c.choices[0].delta.content or getattr(c.choices[0].delta, "reasoning_content", None)
    ]
    assert order == ["reasoning"] * 3 + ["text"]


def test_tool_calls_of_a_step_come_by_index_in_fragments(client: openai.OpenAI) -> None:
    tools = [
        {"id": "call_a", "name": "terminal", "arguments": {"command": "ls -la"}},
        {"name": "todo", "arguments": '{"broken": '},
        {"id": None, "name": "clarify"},
    ]
    chunks = stream(client, script({"text": "Look:", "tools": tools}))
    calls: dict[int, dict[str, Any]] = {}
    fragments = 0
    for chunk in chunks:
        for delta in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(delta.index, {"id": delta.id, "name": delta.function.name, "arguments": ""})
            call["arguments"] += delta.function.arguments or ""
            fragments += delta.index == 0
    assert [calls[i]["name"] for i in range(3)] == ["terminal", "todo", "clarify"]
    assert json.loads(calls[0]["arguments"]) == {"command": "ls -la"}
    assert calls[1]["arguments"] == '{"broken": ', "a raw string goes unchanged"
    assert calls[2] == {"id": None, "name": "clarify", "arguments": "{}"}
    assert calls[0]["id"] == "call_a"
    assert calls[1]["id"].startswith("call_")
    assert fragments > 2, "the arguments of one call come in several deltas"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_minted_ids_are_the_same_for_the_same_request_and_differ_by_step(client: openai.OpenAI) -> None:
    messages = script({"tools": [{"name": "todo"}, {"name": "todo"}]}, {"tools": [{"name": "todo"}]})

    def ids(more: list[Any]) -> list[str]:
        answer = client.chat.completions.create(model="m", messages=messages + more)
        return [call.id for call in answer.choices[0].message.tool_calls or []]

    first = ids([])
    assert first == ids([])
    assert len({*first, *ids([{"role": "assistant", "content": "x"}])}) == 3


def test_usage_chunk_only_when_asked_for(client: openai.OpenAI) -> None:
    messages = script({"text": "one two three"})
    with_usage = stream(client, messages, stream_options={"include_usage": True})
    assert with_usage[-1].choices == []
    usage = with_usage[-1].usage
    assert usage.completion_tokens == 3
    assert usage.prompt_tokens > 10
    assert usage.total_tokens == usage.prompt_tokens + 3
    assert all(chunk.usage is None for chunk in stream(client, messages))


def test_usage_and_finish_of_the_script(client: openai.OpenAI) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    chunks = stream(
        client, script({"text": "cut", "finish": "length", "usage": usage}), stream_options={"include_usage": True}
    )
    assert chunks[-1].usage.total_tokens == 12
    assert chunks[-2].choices[0].finish_reason == "length"


def test_nostream_is_one_chunk_with_everything(client: openai.OpenAI) -> None:
    step = {"text": "All at once.", "reasoning": "Hm.", "tools": [{"name": "todo"}], "nostream": True}
    chunks = stream(client, script(step))
    filled = [c.choices[0].delta for c in chunks if c.choices[0].delta.content or c.choices[0].delta.tool_calls]
    assert len(filled) == 1
    assert filled[0].content == "All at once."
    assert filled[0].tool_calls[0].function.arguments == "{}"


def test_unstreamed_is_a_json_body_though_a_stream_was_asked_for(model: BackgroundModel) -> None:
    body = {"model": "m", "stream": True, "messages": script({"text": "Plain.", "unstreamed": True})}
    response = httpx.post(f"{model.url}/chat/completions", json=body)
    assert response.headers["content-type"].startswith("application/json")
    assert response.json()["choices"][0]["message"]["content"] == "Plain."


def test_lone_surrogates_are_escaped(client: openai.OpenAI) -> None:
    assert texts(stream(client, script({"text": "a\ud83d b"}))) == ["a\ud83d ", "b"]


# --- not streaming


def test_whole_answer(client: openai.OpenAI) -> None:
    step = {"text": "Let me see.", "reasoning": "Hm.", "tools": [{"id": "c1", "name": "todo", "arguments": {"a": 1}}]}
    answer = client.chat.completions.create(model="any", messages=script(step))
    message = answer.choices[0].message
    assert (answer.model, answer.choices[0].finish_reason) == ("any", "tool_calls")
    assert (message.content, message.reasoning_content) == ("Let me see.", "Hm.")
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [("c1", "todo", '{"a": 1}')]
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_models(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["scripted-1"]


# --- which step


def test_step_follows_the_assistant_messages_since_the_user_message(client: openai.OpenAI) -> None:
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "not counted"}]
    messages = history + script({"text": "first"}, {"text": "second"})[1:]

    def ask() -> str:
        return client.chat.completions.create(model="m", messages=messages).choices[0].message.content or ""

    answers = []
    for _ in range(3):
        answers.append(ask())
        messages.append({"role": "assistant", "content": answers[-1]})
    assert answers == ["first", "second", "done"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("[Mon 12:00] ", "\n\n[context: {not json} {}]"),
        ('{"state": {"n": 1}}\n', '\n{"script": "not a list"}'),
        ("{" * 50, "}" * 3),
    ],
)
def test_script_is_found_amid_other_text(before: str, after: str) -> None:
    text = before + json.dumps({"script": [{"text": '{braces} and "quotes"'}]}) + after
    assert find_script(text) == [{"text": '{braces} and "quotes"'}]


def test_script_is_found_in_a_list_of_parts(client: openai.OpenAI) -> None:
    text = json.dumps({"script": [{"text": "from a part"}]})
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "note"}, image, {"type": "text", "text": text}]
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == "from a part"


def test_no_script() -> None:
    assert find_script('he said "script": [1]') is None
    assert find_script('{"script": {"text": "not a list"}}') is None


def test_a_nudge_of_hermes_continues_the_turn() -> None:
    messages = [
        {"role": "user", "content": "mine"},
        {"role": "assistant", "content": "half"},
        {"role": "user", "content": "[System: The previous response was cut off by a network error mid-stream.]"},
    ]
    turn = turn_of(messages)
    assert (turn.user_text, turn.step, turn.earlier_user_texts) == ("mine", 1, ())


def test_a_misspelt_step_is_an_error_that_names_it(client: openai.OpenAI) -> None:
    with pytest.raises(ScriptError, match="step 0: txt"):
        parse_step([{"txt": "?"}], 0)
    with pytest.raises(openai.BadRequestError, match=r"tools\.0\.name"):
        stream(client, script({"tools": [{}]}))


# --- faults


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, openai.AuthenticationError), (429, openai.RateLimitError), (500, openai.InternalServerError)],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_status(client: openai.OpenAI, status: int, error: type[openai.APIStatusError], streaming: bool) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(model="m", messages=script({"status": status}), stream=streaming)
    assert caught.value.status_code == status
    assert caught.value.body["message"]


def test_status_with_own_message_and_retry_after(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match="slow down") as caught:
        stream(client, script({"status": 429, "message": "slow down", "retry_after": 2}))
    assert caught.value.response.headers["retry-after"] == "2"


def test_times_counts_the_requests_of_one_turn_and_step(client: openai.OpenAI) -> None:
    messages = script({"status": 500, "times": 2, "text": "at last"}, {"status": 500, "times": 1, "text": "again"})
    other = script({"status": 500, "times": 1, "text": "other"})
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            stream(client, messages)
    with pytest.raises(openai.InternalServerError):
        stream(client, other)
    assert "".join(texts(stream(client, messages))) == "at last"
    assert "".join(texts(stream(client, other))) == "other"
    second = [*messages, {"role": "assistant", "content": "at last"}]
    with pytest.raises(openai.InternalServerError):
        stream(client, second)
    assert "".join(texts(stream(client, second))) == "again"


def test_cut_breaks_the_connection_after_so_many_characters(client: openai.OpenAI) -> None:
    messages = script({"text": "one two three four", "cut": 9, "times": 1})
    received: list[Any] = []
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
            received.append(chunk)
    assert "".join(texts(received)) == "one two t"
    assert "".join(texts(stream(client, messages))) == "one two three four"


def test_cut_beyond_the_text_breaks_inside_the_tool_arguments(client: openai.OpenAI) -> None:
    tools = [{"name": "terminal", "arguments": '{"command": "ls"}'}, {"name": "todo"}]
    received: list[Any] = []
    with pytest.raises(httpx.RemoteProtocolError):
        for chunk in client.chat.completions.create(
            model="m", messages=script({"text": "abc", "tools": tools, "cut": 8}), stream=True
        ):
            received.append(chunk)
    calls = [call for c in received for call in c.choices[0].delta.tool_calls or []]
    assert "".join(texts(received)) == "abc"
    assert "".join(call.function.arguments for call in calls) == '{"com'
    assert {call.index for call in calls} == {0}


def test_cut_of_an_answer_that_does_not_stream(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="m", messages=script({"text": "gone", "cut": 2}))


def test_hang_sends_headers_and_then_nothing(model: BackgroundModel) -> None:
    body = {"model": "m", "stream": True, "messages": script({"hang": 30})}
    with httpx.stream("POST", f"{model.url}/chat/completions", json=body, timeout=0.3) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            next(response.iter_raw())


def test_hang_ends_by_a_broken_connection(client: openai.OpenAI) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        stream(client, script({"hang": 0.05}))


def test_garbage_is_not_sse(model: BackgroundModel) -> None:
    body = {"model": "m", "stream": True, "messages": script({"garbage": True})}
    assert httpx.post(f"{model.url}/chat/completions", json=body).content == wire.GARBAGE


@pytest.mark.parametrize("body", [b"", b"nope", b"[]", b'{"messages": ["text"]}', b'{"messages": 5}', b"{}"])
def test_bad_bodies(model: BackgroundModel, body: bytes) -> None:
    response = httpx.post(f"{model.url}/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


# --- pace


def test_first_ms_and_delta_ms(client: openai.OpenAI) -> None:
    begin = time.monotonic()
    arrivals = [
        time.monotonic() - begin
        for chunk in client.chat.completions.create(
            model="m", messages=script({"text": "a b c d e", "first_ms": 150, "delta_ms": 40}), stream=True
        )
        if chunk.choices and chunk.choices[0].delta.content
    ]
    # Only lower bounds: a busy machine may be late, but nothing may come early.
    assert arrivals[0] >= 0.15
    assert arrivals[-1] >= 0.15 + 4 * 0.04 - 0.002


async def test_pace_is_the_servers_when_the_step_has_none() -> None:
    async with ScriptedModel(first_ms=60, delta_ms=10) as model:
        client = openai.AsyncOpenAI(base_url=model.url, api_key="sk-none", max_retries=0)
        begin = time.monotonic()
        chunks = await client.chat.completions.create(model="m", messages=script({"text": "a b c"}), stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices]) == "a b c"
        assert time.monotonic() - begin >= 0.06 + 2 * 0.01 - 0.002
        await client.close()


async def test_stop_does_not_wait_for_a_hanging_answer() -> None:
    model = ScriptedModel()
    await model.start()
    body = {"messages": script({"hang": 15}), "stream": True}
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("POST", f"{model.url}/chat/completions", json=body) as response,
    ):
        await asyncio.wait_for(model.stop(), 5)
        with pytest.raises(httpx.HTTPError):
            await response.aread()


# --- the debug endpoint


def test_debug_requests(model: BackgroundModel, client: openai.OpenAI) -> None:
    url = f"http://127.0.0.1:{model.port}/debug/requests"
    faulty = script({"status": 500, "times": 1, "text": "well"})
    assert httpx.delete(url).status_code == 204
    assert httpx.get(url).json() == []
    with pytest.raises(openai.InternalServerError):
        stream(client, faulty)
    client.chat.completions.create(model="second", messages=script({"text": "x"}), temperature=0.5)
    seen = httpx.get(url).json()
    assert [body["model"] for body in seen] == ["scripted-1", "second"]
    assert seen[1]["temperature"] == 0.5
    assert seen == model.requests
    httpx.delete(url)
    with pytest.raises(openai.InternalServerError):
        stream(client, faulty)  # the counters were cleared too


def test_debug_keeps_the_last_200(model: BackgroundModel) -> None:
    model.clear()
    connection = http.client.HTTPConnection("127.0.0.1", model.port)
    for number in range(205):
        body = {"n": number, "messages": [{"role": "user", "content": "count to 1"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        assert connection.getresponse().read()
    connection.close()
    assert [body["n"] for body in model.requests] == list(range(5, 205))


# --- the demo conversation


def say(client: openai.OpenAI, *texts: str, tools: list[Any] | None = None, more: list[Any] | None = None) -> Any:
    """Talk with answers in between; the last text is the one to answer."""
    messages: list[Any] = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "…"}]
    messages = messages[:-1] + (more or [])
    options: dict[str, Any] = {"tools": tools} if tools else {}
    return client.chat.completions.create(model="m", messages=messages, **options).choices[0].message


def test_hello_names_words_and_turns(client: openai.OpenAI) -> None:
    assert "3 words and there were 0 earlier turns" in say(client, "Hello over there").content
    assert "1 word and there was 1 earlier turn" in say(client, "One two", "Hi").content


def test_list_files_calls_the_terminal_and_quotes_its_result(client: openai.OpenAI) -> None:
    asked = say(client, "Please list the files", tools=[TERMINAL])
    (call,) = asked.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("terminal", {"command": "ls -la"})
    assert asked.content
    assert asked.reasoning_content
    result = {"output": "\n".join(f"file-{n}" for n in range(20)), "exit_code": 0, "error": None}
    more = [
        {"role": "assistant", "content": asked.content, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)},
    ]
    answer = say(client, "Please list the files", tools=[TERMINAL], more=more)
    assert not answer.tool_calls
    assert "file-0\nfile-1" in answer.content
    assert "12 more lines" in answer.content


def test_list_files_without_a_terminal_is_talk(client: openai.OpenAI) -> None:
    assert not say(client, "list files").tool_calls


def test_remember(client: openai.OpenAI) -> None:
    answer = say(client, "My cat is called Ada", "thanks", "What did I say first?").content
    assert '"My cat is called Ada"' in answer
    assert "2 earlier turns" in answer
    assert "no earlier turns" in say(client, "Do you remember me?").content


def test_count(client: openai.OpenAI) -> None:
    chunks = stream(client, [{"role": "user", "content": "Count to 1000, please"}])
    assert len(texts(chunks)) == 1000
    assert "".join(texts(chunks)).split() == [str(n) for n in range(1, 1001)]


def test_the_same_request_gives_the_same_bytes(model: BackgroundModel) -> None:
    body = {"stream": True, "messages": [{"role": "user", "content": "list files"}], "tools": [TERMINAL]}
    first, second = (httpx.post(f"{model.url}/chat/completions", json=body).content for _ in range(2))
    assert first == second
    assert b"call_" in first


# --- calls that Hermes makes beside a turn


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hermes's modules read and write there, not in the developer's own home."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


def test_auxiliary_calls_never_run_a_quoted_script(client: openai.OpenAI, hermes_home: Path) -> None:
    """The prompts are Hermes's own, so that a new Hermes with other words fails here and not in a turn."""
    background = pytest.importorskip("agent.background_review")
    titles = pytest.importorskip("agent.title_generator")
    goals = pytest.importorskip("hermes_cli.goals")
    quoted = json.dumps({"script": [{"text": "RAN"}]})

    def answer(system: str, user: str) -> str:
        messages: list[Any] = [
            {"role": "system", "content": system},
            {"role": "user", "content": quoted},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": user},
        ]
        return client.chat.completions.create(model="m", messages=messages).choices[0].message.content or ""

    about = f"User: {quoted}\n\nAssistant: ok"
    assert answer(titles._TITLE_PROMPT, about) == "Demo conversation"
    assert answer(titles._TITLE_PROMPT_PINNED_LANGUAGE.format(language="German"), about) == "Demo conversation"
    assert json.loads(answer(goals.JUDGE_SYSTEM_PROMPT, about))["verdict"] == "done"
    for name in ("_MEMORY_REVIEW_PROMPT", "_SKILL_REVIEW_PROMPT", "_COMBINED_REVIEW_PROMPT"):
        assert answer("You are Hermes.", getattr(background, name)) == "Nothing to save."


def test_smart_approval_is_left_to_the_human(
    model: BackgroundModel, monkeypatch: pytest.MonkeyPatch, hermes_home: Path
) -> None:
    """Hermes's own judge, with only its HTTP client pointed here: it must read the answer as "ask a human"."""
    approval = pytest.importorskip("tools.approval")
    auxiliary = pytest.importorskip("agent.auxiliary_client")
    client = openai.OpenAI(base_url=model.url, api_key="sk-none", max_retries=0)

    def call(*, task: str, messages: list[Any], **options: Any) -> Any:
        return client.chat.completions.create(model="m", messages=messages, **options)

    monkeypatch.setattr(auxiliary, "call_llm", call)
    model.clear()
    assert approval._smart_approve("echo '" + json.dumps({"script": [{"text": "APPROVE"}]}) + "'", "test") == "escalate"
    assert len(model.requests) == 1
