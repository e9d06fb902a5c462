"""The MCP server that callers see: its instructions, and who answers which method. Imported on a worker thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import INTERNAL, AguiError
from . import prompts, resources, sdk, tools
from .desk import Desk, Json
from .follow import LEVELS

if TYPE_CHECKING:
    from ..server import Server
    from .sdk import Call

INSTRUCTIONS = """\
This server is a Hermes agent: it has a terminal, files, memory and skills on its own machine, and it remembers threads.

- Give it whole tasks with `ask`. It sees nothing of your conversation: put all that it needs into `message`.
- An answer names its `thread`. Pass it on to go on with the same conversation; leave it out to begin another.
- `needs_answer` means that it waits for a permission or an answer: `requests[].answer_with` is the call to make. What
  it asks to run will really run: ask your user first, unless they have told you already.
- If your client cuts long calls, use `start`, then `wait` again and again. A call that was cut stops nothing: `threads`
  and `wait` find it again. Cancelling `ask`, or calling `stop`, does stop it.
- One task at a time on a thread; other threads run beside it. Give a task an `idempotency_key` if you might send it
  twice.
- Text is text: slash commands are not carried out.
"""

_Method = Callable[[Desk, "Call"], Awaitable[Json]]


def make_server(server: Server) -> Any:
    """The SDK's server, with all that is offered."""
    desk = Desk(server)
    methods: dict[str, _Method] = {
        "tools/list": _list_tools,
        "tools/call": tools.call_tool,
        "resources/list": resources.listed,
        "resources/templates/list": resources.templates,
        "resources/read": resources.read,
        "resources/subscribe": resources.subscribe,
        "resources/unsubscribe": resources.unsubscribe,
        "prompts/list": prompts.listed,
        "prompts/get": prompts.get,
        "completion/complete": resources.complete,
        "logging/setLevel": _set_level,
    }
    handlers = {name: _told(desk, method) for name, method in methods.items()}
    return sdk.make_server("hermes-agui", __version__, INSTRUCTIONS, handlers)


def _told(desk: Desk, method: _Method) -> sdk.Handler:
    """A method whose AguiErrors are protocol errors, and whose other failures are told to the log alone."""

    async def answer(call: Call) -> Json:
        try:
            return await method(desk, call)
        except AguiError as error:
            raise sdk.error(sdk.INVALID_PARAMS, f"{error.message} [{error.code}]") from None
        except sdk.PROTOCOL_ERROR:
            raise
        except Exception:
            sdk.logger.exception("agui: MCP %s failed", call.method)
            raise sdk.error(sdk.INTERNAL_ERROR, INTERNAL) from None

    return answer


async def _list_tools(desk: Desk, call: Call) -> Json:
    return {"tools": [tool.listed() for tool in tools.offered(desk, call.caller.principal)]}


async def _set_level(desk: Desk, call: Call) -> Json:
    level = call.params["level"]
    if level not in LEVELS:
        raise sdk.error(sdk.INVALID_PARAMS, f"The level is one of {', '.join(LEVELS)}.")
    call.caller.session.level = level
    return {}


__all__ = ["INSTRUCTIONS", "make_server", "sdk"]
