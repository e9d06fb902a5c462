"""Warming: what the first turn of a process costs, paid at start. Part of the seam to Hermes, as its neighbours are.

By profile of 0.19 (first text after 5 s instead of 0.5 s): the first agent with its tools, modules that Hermes imports
inside functions, some of them on the gateway's loop, and the OpenAI SDK's first streamed answer. Nothing here asks
the model, opens a session or fires a hook (building an agent, Hermes probes what kind of server a local endpoint is);
every step may fail alone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("hermes_agui")

_ID = "agui-warm"

# What the first turn of Hermes 0.19 imports, and nothing before it did. A module that another version lacks is skipped.
_MODULES = (
    # on the gateway's loop, where an import holds up every other stream: gateway/run.py, _handle_message
    "hermes_cli.commands",  # brings prompt_toolkit, the most expensive of all
    "hermes_cli.active_sessions",
    "tools.clarify_gateway",
    "tools.slash_confirm",
    "agent.onboarding",
    "gateway.display_config",
    "gateway.message_timestamps",
    "gateway.response_filters",
    "gateway.runtime_footer",
    "gateway.status_phrases",
    "gateway.stream_consumer",
    # on the worker thread: agent/conversation_loop.py and what it calls
    "model_tools",
    "run_agent",
    "agent.aux_accounting",
    "agent.chat_completion_helpers",
    "agent.conversation_loop",
    "agent.credits_tracker",
    "agent.gemini_native_adapter",
    "agent.kanban_stop",
    "agent.rate_limit_tracker",
    "agent.stream_single_writer",
    "agent.title_generator",
    "agent.turn_context",
    "agent.turn_finalizer",
    "agent.verification_stop",
    "agent.verify_hooks",
    "hermes_cli.skin_engine",
    "tools.hook_output_spill",
    "unittest.mock",  # run_agent.py asks of every client whether it is a mock
)

# One answer as a provider streams it: a role, text, a tool call, the end with usage.
_ANSWER = b"".join(
    b'data: {"id":"w","object":"chat.completion.chunk","created":1,"model":"w","choices":[%s]%s}\n\n' % parts
    for parts in (
        (b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}', b""),
        (b'{"index":0,"delta":{"content":"w"},"finish_reason":null}', b""),
        (
            b'{"index":0,"delta":{"tool_calls":[{"index":0,"id":"w","type":"function",'
            b'"function":{"name":"w","arguments":"{}"}}]},"finish_reason":null}',
            b"",
        ),
        (b'{"index":0,"delta":{},"finish_reason":"tool_calls"}', b""),
        (b"", b',"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'),
    )
)


def warm_up(runner: Any, source: Any, session_key: str) -> None:
    """Everything there is to warm, for a session of this source and key. Blocks for seconds: a thread of its own."""
    began = time.monotonic()
    _softly("modules", _import_modules)
    agent = _softly("the first agent", lambda: _build_agent(runner, source, session_key))
    if agent is not None:
        _softly("the system prompt", lambda: agent._build_system_prompt(None))
        if getattr(agent, "api_mode", "chat_completions") == "chat_completions":
            _softly("the stream parser", lambda: _parse_a_stream(list(getattr(agent, "tools", None) or [])))
        _softly("closing the first agent", agent.close)
    agent = None
    set_aside()
    logger.info("agui: warm after %.1f s", time.monotonic() - began)


def set_aside() -> None:
    """Keep what is loaded by now out of Python's full garbage collections, as long as the process lives.

    Modules, schemas and tools stay as they are: some 230,000 objects. Looking at all of them held up every stream of
    the gateway for a quarter of a second each time (with 24 streams at 25 deltas/s, p99 of the added delay was 4 to
    161 ms, and 3 to 5 without). What nobody refers to is freed as before; only rings among these objects stay.
    """
    gc.collect()
    gc.freeze()


def _softly(what: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception:
        logger.warning("agui: warming %s failed; the first turn will be slower", what, exc_info=True)
        return None


def _import_modules() -> None:
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _build_agent(runner: Any, source: Any, session_key: str) -> Any:
    """An agent as the gateway would build one for this source (run.py, run_sync), without database and memory."""
    from gateway.run import _load_gateway_config
    from hermes_cli.tools_config import _get_platform_tools
    from run_agent import AIAgent

    config = _load_gateway_config()
    model, runtime = runner._resolve_session_agent_runtime(source=source, session_key=session_key, user_config=config)
    platform = source.platform.value
    before = os.environ.get("HERMES_SESSION_ID")
    try:
        return AIAgent(
            model=model,
            **runtime,
            max_iterations=1,
            quiet_mode=True,
            enabled_toolsets=sorted(_get_platform_tools(config, platform)),
            platform=platform,
            skip_memory=True,
            session_id=_ID,
        )
    finally:
        # Every new agent leaves its session id in the process environment (agent_init.py); this one was never a
        # session, so what stood there comes back, unless a real turn has written its own meanwhile.
        if os.environ.get("HERMES_SESSION_ID") == _ID:
            if before is None:
                del os.environ["HERMES_SESSION_ID"]
            else:
                os.environ["HERMES_SESSION_ID"] = before


def _parse_a_stream(tools: list[Any]) -> None:
    """The SDK builds its request and chunk schemas, and asks the system for its name, at the first call.

    The transport answers in this process: no socket is opened.
    """
    import httpx
    from openai import OpenAI

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=_ANSWER + b"data: [DONE]\n\n")

    with OpenAI(
        api_key=_ID,
        base_url="http://127.0.0.1/v1",
        max_retries=0,
        http_client=httpx.Client(transport=httpx.MockTransport(answer)),
    ) as client:
        request: dict[str, Any] = {
            "model": _ID,
            "messages": [{"role": "system", "content": "w"}, {"role": "user", "content": "w"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = tools
        for _ in client.chat.completions.create(**request):
            pass
