"""The model's reasoning in the stream of a real gateway: in order, never inside text, as much as the operator lets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agui_adapter.demo import wire
from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, trimmed
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique
from tests.e2e.responses_model import SEALED, ResponsesModel

LATE = "{late}"


class LateModel(GatedModel):
    """Sends reasoning that holds `{late}` in the middle of its text, as some providers do."""

    async def _write_paced(self, response: Any, answer: wire.Answer, pieces: list[dict[str, Any]]) -> None:
        if LATE in answer.step.reasoning:
            texts = [piece for piece in pieces if "content" in piece]
            half = len(texts) // 2
            thoughts = [piece for piece in pieces if "reasoning_content" in piece]
            rest = [piece for piece in pieces if "tool_calls" in piece]
            pieces = [*texts[:half], *thoughts, *texts[half:], *rest]
        await super()._write_paced(response, answer, pieces)


def said(run: Run) -> list[tuple[str, str]]:
    """Messages in the order of their start, each with its role and text; nothing may be open inside another."""
    found: list[tuple[str, str]] = []
    opened = ""
    for event in run.events:
        kind, message_id = event["type"], event.get("messageId", "")
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"):
            assert not opened, f"{kind} while {opened} is open"
            opened = message_id
            found.append((event["role"], ""))
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            assert message_id == opened
            found[-1] = (found[-1][0], found[-1][1] + event["delta"])
        elif kind in ("TEXT_MESSAGE_END", "REASONING_MESSAGE_END"):
            opened = ""
        elif kind == "TOOL_CALL_START":
            found.append(("call", event["toolCallName"]))
    return found


def spans(run: Run) -> list[str]:
    return [kind for kind in run.types if kind.startswith("REASONING_") and not kind.endswith("CONTENT")]


SPAN = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "REASONING_END"]


def test_each_stretch_stands_before_what_it_led_to(gateway: Gateway) -> None:
    chat = Chat(gateway)
    run = chat.say(
        script(
            {"reasoning": "First I look.", "text": "Looking.", "tools": [call("terminal", {"command": "echo x"})]},
            {"reasoning": "It is x.", "tools": [call("terminal", {"command": "echo y"})]},
            {"reasoning": "Now I know.", "text": "x and y."},
        )
    ).succeeded()
    assert said(run) == [
        *(("reasoning", "First I look."), ("assistant", "Looking."), ("call", "terminal")),
        *(("reasoning", "It is x."), ("call", "terminal")),
        *(("reasoning", "Now I know."), ("assistant", "x and y.")),
    ]
    assert spans(run) == SPAN * 3
    chat.assert_as_transcript()


def test_late_reasoning_is_a_block_of_its_own(make_gateway: Callable[..., Gateway]) -> None:
    with LateModel() as model:
        chat = Chat(make_gateway(model=model))
        run = chat.say(
            script(
                {
                    "reasoning": f"too {LATE} indeed",
                    "text": "one two three four",
                    "tools": [call("terminal", {"command": "echo x"})],
                },
                {"reasoning": f"again {LATE}", "text": "five six seven eight"},
            )
        ).succeeded()
        assert said(run) == [
            *(("assistant", "one two "), ("reasoning", f"too {LATE} indeed"), ("assistant", "three four")),
            *(("call", "terminal"), ("assistant", "five six ")),
            *(("reasoning", f"again {LATE}"), ("assistant", "seven eight")),
        ]
        assert spans(run) == SPAN * 2
        chat.assert_as_transcript()
        assert trimmed(history(chat)) == trimmed(chat.messages)  # Hermes has one text and one thought of each step
        gateway = chat.gateway
        gateway.stop()
        gateway.start()
        assert trimmed(history(chat)) == trimmed(chat.messages)
        assert "MESSAGES_SNAPSHOT" not in chat.say("And?").succeeded().types


def test_summary_shows_the_beginning_of_each_stretch(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    chat, secret, gate = Chat(make_gateway(agui={"reasoning": "summary"})), unique("secret"), unique("g")
    titled = f"**Reading the file**\n\n{secret} and so on."
    run = chat.start(
        script(
            {"reasoning": titled, "tools": [call("terminal", {"command": "echo x"})]},
            {"reasoning": f"{'word ' * 100}{secret}", "tools": [call("terminal", {"command": "echo y"})]},
            {"reasoning": f"Okay. The user wants the sum. {{gate:{gate}}} {secret}", "text": "42"},
        )
    )
    # Shown as soon as it is whole, not only when the stretch is over.
    run.wait(lambda run: "wants the sum." in run.reasoning(), "the beginning, before the rest has come")
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    first, second, third = [text for role, text in said(run) if role == "reasoning"]
    assert first == "**Reading the file**" and third == "Okay. The user wants the sum."
    assert second.startswith("word word") and second.endswith("word…") and len(second) <= 200
    assert secret not in run.raw.decode()
    assert spans(run) == SPAN * 3
    kept = [message["content"] for message in history(chat) if message["role"] == "reasoning"]
    assert kept == [first, second, third]


def test_a_providers_sealed_reasoning_goes_round(make_gateway: Callable[..., Gateway]) -> None:
    """Hermes keeps it and sends it back by itself; the client is told it as the protocol says."""
    with ResponsesModel(summary=["**Looking**\n\n", "I look ", "at it."], text="The answer.") as model:
        provider = {"name": "sealed", "base_url": model.url, "api_key": "sk-local-dummy-0000"}
        config = {
            "model": {"provider": "custom:sealed", "default": "sealed-1"},
            "custom_providers": [{**provider, "api_mode": "codex_responses", "model": "sealed-1"}],
        }
        chat = Chat(make_gateway(model=model.url, config=config))
        run = chat.say("Hello").succeeded()
        assert said(run) == [("reasoning", "**Looking**\n\nI look at it."), ("assistant", "The answer.")]
        (event,) = run.of("REASONING_ENCRYPTED_VALUE")
        (thought,) = [message for message in chat.messages if message["role"] == "reasoning"]
        assert event["subtype"] == "message" and event["entityId"] == thought["id"]
        (item,) = json.loads(event["encryptedValue"])
        assert item["encrypted_content"] == f"{SEALED}1"
        # The client returns it, as it must; the provider gets it from Hermes's own history, once.
        thought["encryptedValue"] = event["encryptedValue"]
        again = chat.say("Again").succeeded()
        replayed = [one for one in model.requests[-1]["input"] if one.get("type") == "reasoning"]
        assert [one["encrypted_content"] for one in replayed] == [f"{SEALED}1"]
        assert "MESSAGES_SNAPSHOT" not in again.types


def test_off_keeps_the_sealed_form_too(make_gateway: Callable[..., Gateway]) -> None:
    with ResponsesModel(summary=["I look."], text="The answer.") as model:
        provider = {"name": "sealed", "base_url": model.url, "api_key": "sk-local-dummy-0000"}
        config = {
            "model": {"provider": "custom:sealed", "default": "sealed-1"},
            "custom_providers": [{**provider, "api_mode": "codex_responses", "model": "sealed-1"}],
        }
        chat = Chat(make_gateway(model=model.url, config=config, agui={"reasoning": "off"}))
        run = chat.say("Hello").succeeded()
        assert said(run) == [("assistant", "The answer.")] and not spans(run)
        assert SEALED not in run.raw.decode() and "I look." not in run.raw.decode()
