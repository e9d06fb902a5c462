"""One gateway that most faults are injected into, and `make_gateway` for those that it would not survive or share."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway

pytest.register_assert_rewrite("tests.e2e.helpers", "tests.e2e.asking", "tests.faults.invariants")

from tests.e2e.conftest import make_gateway, model  # noqa: E402
from tests.e2e.helpers import GatedModel, write_plugin  # noqa: E402
from tests.faults.invariants import KEY  # noqa: E402

__all__ = ["make_gateway", "model"]

HERE = Path(__file__).parent

# Tools that do what no tool should, and the process's own view of itself.
FAULTY = """
import asyncio, gc, json, threading


class Dies(BaseException):
    pass


def big(args, **_):
    return "x" * int(args["size"])


def dies(args, **_):
    raise Dies("the worker dies")


def hook(user_message=None, **_):
    if "HOOK-DIES" in str(user_message):
        raise Dies("the worker dies in a hook")


async def count(raw):
    gc.collect()
    held = {}
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith("agui_adapter"):
            held[kind.__name__] = held.get(kind.__name__, 0) + 1
    tasks = sorted(str(task.get_coro().__qualname__) for task in asyncio.all_tasks())
    return json.dumps({"threads": sorted(t.name for t in threading.enumerate()), "tasks": tasks, "held": held})


def register(ctx):
    ctx.register_command("count-all", count)
    ctx.register_hook("pre_llm_call", hook)
    for name, handler in (("faulty_big", big), ("faulty_dies", dies)):
        schema = {
            "name": name,
            "description": "A tool for tests.",
            "parameters": {"type": "object", "properties": {"size": {"type": "integer"}}},
        }
        ctx.register_tool(name=name, toolset="faulty", schema=schema, handler=handler)
"""

# Hermes gives up after two tries; a provider that is silent for 1.5 s is too slow.
FAULTY_OPTIONS: dict[str, Any] = {
    "toolsets": ("terminal", "clarify", "faulty"),
    "config": {
        "plugins": {"enabled": ["agui", "faulty"]},
        "agent": {"api_max_retries": 2},
        "providers": {"custom": {"request_timeout_seconds": 1.5, "stale_timeout_seconds": 1.5}},
    },
    "env": {"HERMES_STREAM_RETRIES": "0", "AGUI_API_KEY": KEY},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is an end-to-end test and needs Hermes; the quick suite has the agent's faults only."""
    missing = find_spec("hermes_cli") is None
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if item.path.name != "test_agent.py":
                item.add_marker(pytest.mark.slow)
            if missing:
                item.add_marker(pytest.mark.skip(reason="needs hermes-agent==0.19.0"))


@pytest.fixture(scope="session")
def faulty(model: GatedModel) -> Iterator[Gateway]:
    """A running gateway with the tools above; readers that take nothing are dropped after a second."""
    agui = {"heartbeat_seconds": 0.4, "stream_stalled_seconds": 1, "body_seconds": 1}
    gateway = Gateway(model, agui=agui, **FAULTY_OPTIONS)
    write_plugin(gateway.home, "faulty", FAULTY)
    with gateway as running:
        yield running
