"""OpenAI's own SDK for Python against a real gateway: the Responses API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, GatedModel, call, query, script, unique, wait_until
from tests.e2e.test_openai_chat import NO_KEY, seen

CHART: Any = {
    "type": "function",
    "name": "draw_chart",
    "description": "Draws a chart in the client.",
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
    "strict": False,
}


def sdk(gateway: Gateway) -> OpenAI:
    return OpenAI(base_url=f"{gateway.url}/v1", api_key="none", default_headers=NO_KEY, max_retries=0, timeout=DEADLINE)


@pytest.fixture
def client(gateway: Gateway) -> Iterator[OpenAI]:
    with sdk(gateway) as made:
        yield made


def make(client: OpenAI, asked: Any, **more: Any) -> Any:
    return client.responses.create(model="hermes-agent", input=asked, **more)


class TestPlain:
    def test_a_response(self, client: OpenAI) -> None:
        usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
        made = make(client, script({"text": "Hello there.", "usage": usage}), metadata={"a": "b"})
        assert (made.output_text, made.status, made.object, made.metadata) == (
            "Hello there.",
            "completed",
            "response",
            {"a": "b"},
        )
        assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (50, 7, 57)
        assert client.responses.retrieve(made.id).output_text == "Hello there."
        items = client.responses.input_items.list(made.id).data
        assert [item.role for item in items] == ["user"]
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)

    def test_items_and_instructions_reach_the_model(self, client: OpenAI, model: GatedModel) -> None:
        mark, told = unique("mark"), unique("told")
        asked: Any = [
            {"role": "user", "content": [{"type": "input_text", "text": "First"}]},
            {"role": "assistant", "content": f"I said {told}."},
            {"role": "user", "content": "And now?"},
        ]
        make(client, asked, instructions=f"Speak of {mark}.", store=False)
        messages = seen(model, told)["messages"]
        assert mark in messages[0]["content"]
        assert [one["role"] for one in messages[-3:]] == ["user", "assistant", "user"]

    def test_a_failure_is_an_error(self, client: OpenAI) -> None:
        with pytest.raises(openai.APIStatusError) as failed:
            make(client, script({"status": 401, "message": "no such key"}))
        assert failed.value.status_code == 502 and failed.value.code == "provider_auth"


class TestChains:
    def test_it_goes_on_and_branches(self, client: OpenAI, gateway: Gateway, model: GatedModel) -> None:
        one, two, three, four = (unique(name) for name in ("one", "two", "three", "four"))
        before = httpx.get(f"{gateway.url}/agui/threads").json()["total"]
        first = make(client, f"I am {one}")
        second = make(client, f"And {two}", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert one in json.dumps(seen(model, two)["messages"])
        make(client, f"Then {three}", previous_response_id=second.id)
        third = json.dumps(seen(model, three)["messages"])
        assert one in third and two in third
        # From an older link another branch begins, which does not know what came after it.
        make(client, f"Else {four}", previous_response_id=first.id)
        fourth = json.dumps(seen(model, four)["messages"])
        assert one in fourth and two not in fourth and three not in fourth
        assert httpx.get(f"{gateway.url}/agui/threads").json()["total"] == before

    def test_nobody_elses(self, client: OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as unknown:
            make(client, "Hi", previous_response_id="resp_unknown")
        assert unknown.value.code == "previous_response_not_found"

    def test_a_conversation_is_a_thread(self, client: OpenAI, gateway: Gateway, model: GatedModel) -> None:
        name, mark, more = unique("conv"), unique("mark"), unique("more")
        make(client, f"I am {mark}", conversation=name)
        made = make(client, f"Who {more}?", conversation={"id": name})
        assert made.conversation.id == name and mark in json.dumps(seen(model, more)["messages"])
        assert httpx.get(f"{gateway.url}/agui/threads/{name}").status_code == 200

    def test_the_last_link_takes_its_thread_along(self, client: OpenAI, gateway: Gateway) -> None:
        mark = unique("gone")
        first = make(client, f"I am {mark}")
        second = make(client, "And?", previous_response_id=first.id)
        sql = "SELECT COUNT(*) FROM messages WHERE content LIKE ?"
        client.responses.delete(first.id)
        assert query(gateway, sql, f"%{mark}%")[0][0]
        client.responses.delete(second.id)
        assert not query(gateway, sql, f"%{mark}%")[0][0]

    def test_it_survives_a_restart(self, make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
        gateway, mark, more = make_gateway(), unique("mark"), unique("more")
        first = make(sdk(gateway), f"I am {mark}")
        gateway.stop()
        gateway.start()
        client = sdk(gateway)
        assert client.responses.retrieve(first.id).output_text == first.output_text
        make(client, f"Who {more}?", previous_response_id=first.id)
        assert mark in json.dumps(seen(model, more)["messages"])


class TestStreamed:
    def test_events_in_order(self, client: OpenAI) -> None:
        events = list(make(client, script({"text": "One two."}), stream=True))
        kinds = [event.type for event in events]
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert [kind for kind in kinds if kind != "response.output_text.delta"] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert "".join(deltas) == "One two." and kinds.index("response.output_text.delta") == 4
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].response.output_text == "One two."

    def test_the_sdks_own_accumulator(self, client: OpenAI) -> None:
        with client.responses.stream(model="hermes-agent", input=script({"text": "One two."})) as stream:
            for _ in stream:
                pass
            assert stream.get_final_response().output_text == "One two."

    def test_a_failure(self, client: OpenAI) -> None:
        events = list(make(client, script({"status": 401, "message": "no such key"}), stream=True))
        assert events[-1].type == "response.failed" and events[-1].response.status == "failed"
        assert events[-1].response.error.message

    def test_again_from_a_number(self, client: OpenAI, gateway: Gateway) -> None:
        events = list(make(client, script({"text": "One two three."}), stream=True))
        again = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=5))
        assert [event.to_dict() for event in again[:-1]] == [event.to_dict() for event in events[6:-1]]
        assert again[-1].response.output_text == "One two three."


class TestTools:
    def test_calls_of_the_client(self, client: OpenAI, model: GatedModel) -> None:
        one, two = unique("call"), unique("call")
        steps = (
            {"tools": [call("draw_chart", {"title": "A"}, one), call("draw_chart", {"title": "B"}, two)]},
            {"text": "Drawn."},
        )
        first = make(client, script(*steps), tools=[CHART])
        assert [(item.type, item.call_id, item.status) for item in first.output] == [
            ("function_call", one, "completed"),
            ("function_call", two, "completed"),
        ]
        assert json.loads(first.output[0].arguments) == {"title": "A"}
        outputs: Any = [
            {"type": "function_call_output", "call_id": one, "output": "chart A"},
            {"type": "function_call_output", "call_id": two, "output": "chart B"},
        ]
        with pytest.raises(openai.BadRequestError):
            make(client, outputs[:1], previous_response_id=first.id)
        second = make(client, outputs, previous_response_id=first.id, tools=[CHART])
        assert second.output_text == "Drawn."
        told = [m["content"] for m in seen(model, "chart B")["messages"] if m["role"] == "tool"]
        assert told == ["chart A", "chart B"]

    def test_the_servers_own_are_hosted_calls(self, client: OpenAI) -> None:
        steps = ({"tools": [call("terminal", {"command": "echo seen-it"})]}, {"text": "So."})
        hidden = make(client, script(*steps))
        assert [item.type for item in hidden.output if item.type != "reasoning"] == ["message"]
        shown: dict[str, str] = {"X-Hermes-Tools": "transparent"}
        events = list(make(client, script(*steps, say="shown"), stream=True, extra_headers=shown))
        kinds = [event.type for event in events]
        assert "response.mcp_call.completed" in kinds
        made = next(item for item in events[-1].response.output if item.type == "mcp_call")
        assert (made.name, made.server_label, made.status) == ("terminal", "hermes", "completed")
        assert "seen-it" in made.output and events[-1].response.output_text == "So."


class TestInTheBackground:
    def test_it_is_made_while_nobody_reads(self, client: OpenAI, model: GatedModel) -> None:
        gate = unique("gate")
        made = make(client, script({"text": f"a {{gate:{gate}}} b"}), background=True)
        assert made.status == "in_progress"
        wait_until(lambda: model.reached(gate), "the model speaks")
        assert client.responses.retrieve(made.id).status == "in_progress"
        model.open_gate(gate)
        wait_until(lambda: client.responses.retrieve(made.id).status == "completed", "it is made")
        assert client.responses.retrieve(made.id).output_text.endswith("b")

    def test_it_can_be_cancelled(self, client: OpenAI, model: GatedModel) -> None:
        gate = unique("gate")
        made = make(client, script({"text": f"a {{gate:{gate}}} b"}), background=True)
        wait_until(lambda: model.reached(gate), "the model speaks")
        assert client.responses.cancel(made.id).status == "cancelled"
        assert client.responses.retrieve(made.id).status == "cancelled"
        model.open_gate(gate)
