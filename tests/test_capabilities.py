"""What is declared for a configuration, a runtime and a caller. The real tools are in tests/e2e/test_surface.py."""

from __future__ import annotations

from typing import Any

import pytest

from agui_adapter.capabilities import declared
from agui_adapter.config import load
from agui_adapter.hermes.abilities import Abilities

SCHEMA = {"type": "object", "properties": {}}
TOOLS = tuple((name, f"About {name}.", SCHEMA) for name in ("terminal", "delegate_task", "memory"))
CAN = Abilities("0.19.0", TOOLS, images=True, audio=None, approvals=True, max_iterations=90)


def made(can: Abilities | None = CAN, blind: str = "", **extra: Any) -> dict[str, Any]:
    said = declared(load(extra, {}), can, reason_blind=blind)
    body: dict[str, Any] = said.model_dump(by_alias=True, exclude_none=True, mode="json")
    return body


def test_a_usual_gateway() -> None:
    body = made()
    assert [tool["name"] for tool in body["tools"]["items"]] == ["terminal", "delegate_task", "memory"]
    assert body["multiAgent"] == {"supported": True, "delegation": True, "handoffs": False}
    assert body["state"] == {"snapshots": True, "deltas": True, "memory": True, "persistentState": True}
    assert body["execution"] == {"codeExecution": True, "maxIterations": 90}
    # What cannot be known is not declared: whether voice is understood, whether this model seals its reasoning.
    assert body["multimodal"]["input"] == {"image": True, "pdf": True, "file": True}
    assert body["reasoning"] == {"supported": True, "streaming": True}


@pytest.mark.parametrize(
    ("extra", "path", "value"),
    [
        ({"reasoning": "off"}, "reasoning.supported", False),
        ({"reasoning": "summary"}, "reasoning.encrypted", False),
        ({"tool_output": "off"}, "tools.items", None),
        ({"tool_output": "names"}, "tools.supported", True),
        ({"max_attachments": 0}, "multimodal.input.image", False),
        ({"max_attachments": 0}, "multimodal.input.file", False),
        ({"allow_overrides": ["model"]}, "custom.hermes.overrides", ["model"]),
        ({"steps": True}, "custom.hermes.steps", True),
    ],
)
def test_a_setting_decides(extra: dict[str, Any], path: str, value: Any) -> None:
    found: Any = made(**extra)
    for name in path.split("."):
        found = found.get(name)
    assert found == value


def test_a_runtime_that_cannot_be_streamed() -> None:
    body = made(blind="proxy_url is set.")
    assert not body["transport"]["streaming"] and not body["tools"]["clientProvided"]
    assert not body["humanInTheLoop"]["interrupts"] and not body["reasoning"]["supported"]
    assert body["custom"]["hermes"]["noLiveStream"] == "proxy_url is set."


def test_a_gateway_without_tools_that_could_open_a_file() -> None:
    body = made(Abilities(tools=()))
    assert body["tools"] == {"supported": False, "items": [], "parallelCalls": True, "clientProvided": True}
    assert not body["multimodal"]["input"]["file"] and not body["execution"]["codeExecution"]


def test_a_caller_without_access_learns_nothing_of_the_agent() -> None:
    body = made(None)
    assert set(body) == {"identity", "transport", "custom"} and "version" not in body["identity"]
