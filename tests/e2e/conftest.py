"""A scripted model and real gateways for the end-to-end tests. One of each serves the whole session; tests that need
another configuration, a restart or a crash make their own with `make_gateway`."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway

pytest.register_assert_rewrite("tests.e2e.helpers")

from tests.e2e.helpers import Chat, GatedModel, write_plugin  # noqa: E402

TOOLSETS = ("terminal", "file", "todo", "clarify", "code_execution")

HERE = Path(__file__).parent

# What another plugin of the same Hermes may do: refuse a call, change the answer at the end, bring a tool. It acts on
# its own markers only, so the shared gateway can have it.
PROBE = """
import json


def block(tool_name, args, **_):
    if "FORBIDDEN" in json.dumps(args):
        return {"action": "block", "message": "the probe forbids this"}


def change(response_text, **_):
    if "APPEND" in response_text:
        return response_text + "\\n\\n-- added by the probe"
    if "REPLACE" in response_text:
        return "another text by the probe"


def echo(args, **_):
    return json.dumps({"echo": args.get("word")})


def fail(args, **_):
    raise RuntimeError("the probe tool broke")


def register(ctx):
    ctx.register_hook("pre_tool_call", block)
    ctx.register_hook("transform_llm_output", change)
    for name, handler in (("probe_echo", echo), ("probe_fail", fail)):
        schema = {
            "name": name,
            "description": "A tool that repeats a word.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        }
        ctx.register_tool(name=name, toolset="probe", schema=schema, handler=handler)
"""

# A hook of the gateway's own: behind an agent's turn whose answer has "HOLD" in it, what the gateway still does for the
# turn waits as long as the file `hold` is there. A file `held` says that it waits.
HOLD = """
import asyncio
from pathlib import Path

from hermes_cli.config import get_hermes_home


async def handle(event_type, context):
    hold = Path(get_hermes_home()) / "hold"
    while "HOLD" in context.get("response", "") and hold.exists():
        hold.with_name("held").touch()
        await asyncio.sleep(0.02)
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory is an end-to-end test and needs Hermes."""
    missing = find_spec("hermes_cli") is None
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if missing:
                item.add_marker(pytest.mark.skip(reason="needs hermes-agent==0.19.0"))


@pytest.fixture(scope="session")
def model() -> Iterator[GatedModel]:
    """The model behind every gateway here. `model.requests` is a copy that any thread may read."""
    with GatedModel() as running:
        yield running


@pytest.fixture(scope="session")
def gateway(model: GatedModel) -> Iterator[Gateway]:
    """A running gateway, shared: tests use threads of their own and leave it running."""
    shared = Gateway(
        model,
        toolsets=[*TOOLSETS, "probe"],
        # `on`: the probe's tools are found through tool_search, which Hermes else does only for many of them.
        config={"plugins": {"enabled": ["agui", "probe"]}, "tools": {"tool_search": {"enabled": "on"}}},
    )
    write_plugin(shared.home, "probe", PROBE)
    hook = shared.home / "hooks" / "hold"
    hook.mkdir(parents=True)
    (hook / "HOOK.yaml").write_text("name: hold\nevents: [agent:end]\n", "utf-8")
    (hook / "handler.py").write_text(HOLD, "utf-8")
    with shared as running:
        yield running


@pytest.fixture
def chat(gateway: Gateway) -> Chat:
    """A thread of its own on the shared gateway."""
    return Chat(gateway)


@pytest.fixture
def make_gateway(model: GatedModel) -> Iterator[Callable[..., Gateway]]:
    """Make and start another gateway, with `Gateway`'s arguments. It is closed after the test."""
    made: list[Gateway] = []

    def make(*, start: bool = True, **overrides: Any) -> Gateway:
        options: dict[str, Any] = {"toolsets": TOOLSETS} | overrides
        made.append(Gateway(options.pop("model", model), **options))
        if start:
            made[-1].start()
        return made[-1]

    try:
        yield make
    finally:
        for gateway in reversed(made):
            gateway.close()
