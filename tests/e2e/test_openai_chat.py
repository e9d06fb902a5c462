"""OpenAI's own SDK for Python against a real gateway: Chat Completions, plain, streamed, with tools and pictures."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, GatedModel, call, query, script, unique, wait_until, write_plugin
from tests.e2e.media import png

CHART = {
    "type": "function",
    "function": {
        "name": "draw_chart",
        "description": "Draws a chart in the client.",
        "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
    },
}


@pytest.fixture
def client(gateway: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", default_headers=NO_KEY, max_retries=0) as made:
        yield made


NO_KEY: dict[str, Any] = {"Authorization": openai.Omit()}


def ask(client: OpenAI, *messages: Any, **more: Any) -> Any:
    said = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
    return client.chat.completions.create(model="hermes-agent", messages=said, timeout=DEADLINE, **more)


def seen(model: GatedModel, text: str) -> dict[str, Any]:
    """The newest request to the model in which this text stands."""
    return next(body for body in reversed(model.requests) if text in json.dumps(body["messages"]))


class TestPlain:
    def test_an_answer_with_its_usage(self, client: OpenAI) -> None:
        usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
        made = ask(client, script({"text": "Hello there.", "usage": usage}))
        (choice,) = made.choices
        assert (choice.message.content, choice.message.role, choice.finish_reason) == (
            "Hello there.",
            "assistant",
            "stop",
        )
        assert made.object == "chat.completion" and made.id.startswith("chatcmpl-") and made.model == "hermes-agent"
        assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (50, 7, 57)
        assert choice.message.tool_calls is None

    def test_the_conversation_reaches_the_model(self, client: OpenAI, model: GatedModel) -> None:
        mark, told = unique("mark"), unique("told")
        ask(
            client,
            {"role": "system", "content": f"Speak of {mark}."},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "First"}, {"type": "text", "text": "part"}]},
            {"role": "assistant", "content": f"I said {told}."},
            {"role": "user", "content": "And now?"},
        )
        messages = seen(model, told)["messages"]
        system = messages[0]["content"]
        assert mark in system and "Be brief." in system and "Hermes" in system
        assert [one["role"] for one in messages[-3:]] == ["user", "assistant", "user"]
        assert messages[-3]["content"] == "First\npart" and messages[-1]["content"].startswith("And now?")

    def test_what_it_leaves_behind(self, client: OpenAI, gateway: Gateway) -> None:
        """No thread in the caller's list, no session in Hermes's."""
        mark = unique("gone")
        before = httpx.get(f"{gateway.url}/agui/threads").json()["total"]
        ask(client, f"Hello {mark}")
        sql = "SELECT COUNT(*) FROM messages WHERE content LIKE ?"
        wait_until(lambda: query(gateway, sql, f"%{mark}%")[0][0] == 0, "its session is gone")
        assert httpx.get(f"{gateway.url}/agui/threads").json()["total"] == before
        index = gateway.home / "sessions" / "sessions.json"
        wait_until(lambda: ".once-" not in index.read_text(), "its key is gone")

    def test_text_is_no_command(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("yolo")
        ask(client, f"/yolo {mark}")
        assert seen(model, mark)

    def test_a_picture(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("picture")
        url = "data:image/png;base64," + base64.b64encode(png()).decode()
        picture = [{"type": "text", "text": f"See {mark}"}, {"type": "image_url", "image_url": {"url": url}}]
        assert ask(client, {"role": "user", "content": picture}).choices[0].message.content
        assert seen(model, mark)

    def test_a_failure_is_an_error(self, client: OpenAI) -> None:
        with pytest.raises(openai.APIStatusError) as failed:
            ask(client, script({"status": 401, "message": "no such key"}))
        assert failed.value.status_code == 502 and failed.value.code == "provider_auth"

    def test_what_cannot_be_is_refused(self, client: OpenAI) -> None:
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            ask(client, {"role": "robot", "content": "x"})
        assert refused.value.param == "messages[0].role"
        with pytest.raises(openai.BadRequestError):
            ask(client, "Hi", {"role": "assistant", "content": "Ho"})
        with pytest.raises(openai.UnprocessableEntityError) as taken:
            ask(client, "Hi", tools=[{"type": "function", "function": {"name": "terminal"}}])
        assert taken.value.code == "tool_name_taken"

    def test_the_list_of_models(self, client: OpenAI) -> None:
        (only,) = client.models.list().data
        assert only.id == "hermes-agent" and client.models.retrieve(only.id).id == only.id
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("no-such-model")


class TestStreamed:
    def test_deltas_end_and_usage(self, client: OpenAI) -> None:
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        stream = ask(
            client,
            script({"text": "One two three.", "usage": usage}),
            stream=True,
            stream_options={"include_usage": True},
        )
        parts = list(stream)
        assert parts[0].choices[0].delta.role == "assistant"
        text = [part.choices[0].delta.content for part in parts if part.choices and part.choices[0].delta.content]
        assert "".join(text) == "One two three." and len(text) > 1
        assert [part.choices[0].finish_reason for part in parts if part.choices][-1] == "stop"
        assert parts[-1].choices == [] and parts[-1].usage.total_tokens == 12
        assert len({part.id for part in parts}) == 1

    def test_it_comes_while_the_model_speaks(self, client: OpenAI, model: GatedModel) -> None:
        gate = unique("gate")
        stream = ask(client, script({"text": f"before {{gate:{gate}}} after"}), stream=True)
        text = ""
        for part in stream:
            text += part.choices[0].delta.content or ""
            if "before" in text:
                model.open_gate(gate)
        assert text.endswith("after")

    def test_a_failure_is_raised(self, client: OpenAI) -> None:
        stream = ask(client, script({"status": 401, "message": "no such key"}), stream=True)
        with pytest.raises(openai.APIError) as failed:
            list(stream)
        assert failed.value.code == "provider_auth"

    def test_the_servers_tools_are_out_of_sight(self, client: OpenAI) -> None:
        steps = ({"tools": [call("terminal", {"command": "echo seen"})]}, {"text": "It is done."})
        with client.chat.completions.stream(
            model="hermes-agent", messages=[{"role": "user", "content": script(*steps)}], timeout=DEADLINE
        ) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        message = final.choices[0].message
        assert message.content == "It is done." and not message.tool_calls

    def test_transparent(self, client: OpenAI) -> None:
        call_id = unique("call")
        steps = ({"text": "Look:", "tools": [call("terminal", {"command": "echo seen-it"}, call_id)]}, {"text": "So."})
        shown = {"X-Hermes-Tools": "transparent"}
        parts = list(ask(client, script(*steps), stream=True, extra_headers=shown))
        (made,) = [one for part in parts for one in part.choices[0].delta.tool_calls or []]
        assert (made.id, made.function.name) == (call_id, "terminal")
        assert json.loads(made.function.arguments) == {"command": "echo seen-it"}
        results = [one for part in parts for one in getattr(part.choices[0].delta, "tool_results", None) or []]
        assert results[0]["tool_call_id"] == call_id and "seen-it" in results[0]["content"]
        assert parts[-1].choices[0].finish_reason == "stop"
        whole = ask(client, script(*steps, say="again"), extra_headers=shown)
        roles = [one["role"] for one in whole.hermes["messages"]]
        assert roles == ["assistant", "tool", "assistant"] and whole.choices[0].message.content == "So."


class TestClientTools:
    def test_parallel_calls_are_answered_by_the_next_request(self, client: OpenAI, model: GatedModel) -> None:
        one, two = unique("call"), unique("call")
        steps = (
            {
                "text": "Both.",
                "tools": [call("draw_chart", {"title": "A"}, one), call("draw_chart", {"title": "B"}, two)],
            },
            {"text": "Drawn."},
        )
        asked: list[Any] = [{"role": "user", "content": script(*steps)}]
        first = ask(client, *asked, tools=[CHART])
        (choice,) = first.choices
        assert choice.finish_reason == "tool_calls" and choice.message.content == "Both."
        assert [made.id for made in choice.message.tool_calls] == [one, two]
        asked.append(choice.message.model_dump(exclude_none=True))
        asked.append({"role": "tool", "tool_call_id": one, "content": "chart A is there"})
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, *asked, tools=[CHART])
        assert refused.value.code == "missing_tool_result" and two in str(refused.value)
        asked.append({"role": "tool", "tool_call_id": two, "content": [{"type": "text", "text": "chart B is there"}]})
        second = ask(client, *asked, tools=[CHART])
        assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("Drawn.", "stop")
        told = [m["content"] for m in seen(model, "chart B is there")["messages"] if m["role"] == "tool"]
        assert told == ["chart A is there", "chart B is there"]

    def test_streamed(self, client: OpenAI) -> None:
        steps = ({"tools": [call("draw_chart", {"title": "A"})]}, {"text": "Drawn."})
        asked: list[Any] = [{"role": "user", "content": script(*steps, say=unique())}]
        with client.chat.completions.stream(model="x", messages=asked, tools=[CHART], timeout=DEADLINE) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        (made,) = message.tool_calls or []
        assert json.loads(made.function.arguments) == {"title": "A"}
        asked += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": made.id, "content": "ok"}]
        text = "".join(part.choices[0].delta.content or "" for part in ask(client, *asked, stream=True))
        assert text == "Drawn."

    def test_results_that_nobody_waits_for_are_the_conversation(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("old")
        ask(
            client,
            "Draw",
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": mark, "type": "function", "function": {"name": "draw_chart", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": mark, "content": f"{mark} is drawn"},
            tools=[CHART],
        )
        messages = seen(model, f"{mark} is drawn")["messages"]
        assert [one["role"] for one in messages[-4:]] == ["user", "assistant", "tool", "user"]


class TestNobodyIsThere:
    def test_an_approval_is_refused_with_a_sentence(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("mark")
        steps = ({"tools": [call("terminal", {"command": f"rm -rf /tmp/{mark}"})]}, {"text": "I could not."})
        made = ask(client, script(*steps))
        assert made.choices[0].message.content == "I could not."
        told = [m["content"] for m in seen(model, mark)["messages"] if m["role"] == "tool"]
        assert "Nobody can be asked on this connection" in str(told[-1])

    def test_a_question_too(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("mark")
        steps = ({"tools": [call("clarify", {"question": f"Which {mark}?"})]}, {"text": "I took one."})
        assert ask(client, script(*steps)).choices[0].message.content == "I took one."
        told = [m["content"] for m in seen(model, mark)["messages"] if m["role"] == "tool"]
        assert "Nobody can be asked on this connection" in str(told[-1])

    def test_who_leaves_stops_it(self, client: OpenAI, gateway: Gateway, model: GatedModel) -> None:
        gate = unique("gate")
        with ask(client, script({"text": f"before {{gate:{gate}}} after"}), stream=True) as stream:
            next(iter(stream))
            wait_until(lambda: model.reached(gate), "the model speaks")
        sql = "SELECT COUNT(*) FROM messages WHERE content LIKE ?"
        wait_until(lambda: query(gateway, sql, f"%{gate}%")[0][0] == 0, "its turn was stopped and is gone")
        model.open_gate(gate)


class TestTheEnd:
    """An answer to a stateless request comes when the agent is through, whatever the gateway still writes of it."""

    @pytest.fixture
    def hold(self, gateway: Gateway) -> Iterator[Path]:
        """The gateway holds the end of turns that say HOLD until this file is gone; `held` beside it: it does."""
        made, held = gateway.home / "hold", gateway.home / "held"
        held.unlink(missing_ok=True)
        made.touch()
        yield made
        made.unlink(missing_ok=True)

    def test_a_plain_answer_is_there(self, client: OpenAI, gateway: Gateway, hold: Path) -> None:
        made = ask(client, script({"text": "HOLD on"}))
        assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("HOLD on", "stop")
        with ask(client, script({"text": "HOLD it"}), stream=True) as stream:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "HOLD it"
        wait_until(hold.with_name("held").exists, "the gateway holds both")
        hold.unlink()
        index = gateway.home / "sessions" / "sessions.json"
        wait_until(lambda: ".once-" not in index.read_text(), "what they leave goes behind it")
        assert ask(client, "And then?").choices[0].message.content

    def test_one_that_sends_a_file_waits_for_it(self, client: OpenAI, gateway: Gateway, hold: Path) -> None:
        path = gateway.home / "workspace" / f"{unique('held')}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("what it sends", "utf-8")
        self.waits(client, hold, script({"text": f"HOLD this\nMEDIA:{path}"}), path.name)

    def test_one_of_a_session_waits_for_its_history(self, client: OpenAI, hold: Path) -> None:
        named = {"X-Hermes-Session-Id": unique("session")}
        self.waits(client, hold, script({"text": "HOLD this"}), "HOLD this", extra_headers=named)
        assert ask(client, "And then?", extra_headers=named).choices[0].message.content

    def test_one_that_used_tools_waits(self, client: OpenAI, hold: Path) -> None:
        self.waits(client, hold, script({"tools": [call("todo", {"todos": []})]}, {"text": "HOLD this"}), "HOLD this")

    def waits(self, client: OpenAI, hold: Path, said: str, answer: str, **more: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, client, said, **more)
            wait_until(hold.with_name("held").exists, "the gateway holds it")
            assert not asked.done()
            hold.unlink()
            assert answer in asked.result(DEADLINE).choices[0].message.content


class TestSessions:
    def test_a_named_session_goes_on(self, client: OpenAI, gateway: Gateway, model: GatedModel) -> None:
        session, mark = unique("session"), unique("mark")
        named = {"X-Hermes-Session-Id": session}
        first = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": f"I am {mark}"}], extra_headers=named, timeout=DEADLINE
        )
        assert first.headers["X-Hermes-Session-Id"] == session
        ask(client, "Who am I?", extra_headers={"X-Session-ID": session})
        messages = seen(model, "Who am I?")["messages"]
        assert mark in json.dumps(messages[:-1])
        thread = httpx.get(f"{gateway.url}/agui/threads/{session}").json()
        roles = [one["role"] for one in thread["messages"] if one["role"] != "reasoning"]
        assert roles == ["user", "assistant", "user", "assistant"]

    def test_a_second_request_meanwhile(self, client: OpenAI, model: GatedModel) -> None:
        named, gate = {"X-Hermes-Session-Id": unique("session")}, unique("gate")
        with ask(client, script({"text": f"a {{gate:{gate}}} b"}), stream=True, extra_headers=named) as stream:
            chunks = iter(stream)
            next(chunks)
            wait_until(lambda: model.reached(gate), "the model speaks")
            with pytest.raises(openai.ConflictError) as busy:
                ask(client, "Me too", extra_headers=named)
            assert busy.value.code == "thread_busy"
            model.open_gate(gate)
            list(chunks)

    def test_the_same_key_runs_once(self, client: OpenAI, model: GatedModel) -> None:
        mark = unique("once")
        key = {"Idempotency-Key": unique("key")}
        first = ask(client, f"Hello {mark}", extra_headers=key)
        second = ask(client, f"Hello {mark}", extra_headers=key)
        assert first.model_dump() == second.model_dump()
        assert sum(mark in json.dumps(body["messages"][-1]) for body in model.requests) == 1
        with pytest.raises(openai.ConflictError):
            ask(client, f"Bye {mark}", extra_headers=key)


class TestOptions:
    def test_sampling_and_format_reach_the_model(self, make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
        gateway = make_gateway(agui={"allow_overrides": ["temperature", "max_tokens"], "rest_model": "mine"})
        client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", default_headers=NO_KEY, max_retries=0)
        assert client.models.list().data[0].id == "mine"
        mark = unique("mark")
        form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        raw = client.chat.completions.with_raw_response.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": mark}],
            temperature=0.25,
            top_p=0.5,
            max_completion_tokens=321,
            response_format=form,
            user="me",
            extra_body={"shiny": True},
            timeout=DEADLINE,
        )
        assert raw.parse().model == "gpt-4o" and raw.headers["X-Hermes-Ignored"] == "top_p"
        body = seen(model, mark)
        assert (body["temperature"], body["response_format"]) == (0.25, form) and "top_p" not in body
        assert 321 in (body.get("max_tokens"), body.get("max_completion_tokens")) and body["model"] == "scripted-1"


MEMORY = '''
import json
from pathlib import Path

from agent.memory_provider import MemoryProvider


class Notebook(MemoryProvider):
    """Remembers what was said, by the key that it is scoped by."""

    name = "notebook"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        key = kwargs.get("gateway_session_key") or session_id
        self.path = Path(kwargs["hermes_home"]) / ("notebook-" + "".join(c for c in key if c.isalnum()))

    def get_tool_schemas(self):
        return []

    def prefetch(self, query, *, session_id=""):
        return self.path.read_text() if self.path.exists() else ""

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        with self.path.open("a") as file:
            file.write(user_content + chr(10))


def register(ctx):
    ctx.register_memory_provider(Notebook())
'''


class TestMemory:
    def test_a_key_scopes_it(self, model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
        gateway = make_gateway(start=False, config={"memory": {"provider": "notebook"}})
        write_plugin(gateway.home, "notebook", MEMORY)
        gateway.start()
        client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", default_headers=NO_KEY, max_retries=0)
        fact, key = unique("fact"), {"X-Hermes-Session-Key": unique("key")}
        ask(client, f"I like {fact}", extra_headers=key)
        wait_until(lambda: any(fact in one.read_text() for one in gateway.home.glob("notebook-*")), "it is remembered")
        with_key, without = unique("with"), unique("without")
        ask(client, f"What do I like {with_key}?", extra_headers=key)
        assert fact in json.dumps(seen(model, with_key)["messages"])
        ask(client, f"What do I like {without}?")
        assert fact not in json.dumps(seen(model, without)["messages"])
