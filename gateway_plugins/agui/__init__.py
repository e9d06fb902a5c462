"""What Hermes loads: `register(ctx)` names the platform, the command and the taps.

It runs in every Hermes process (chat, cron, gateway), so it imports nothing beyond the standard library and binds
nothing: the server starts only when the gateway builds the adapter. The same file works as a directory plugin
(`hermes plugins install …/gateway_plugins/agui`), where the package `hermes-agui` may be missing: then it says so.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

logger = logging.getLogger(__name__)

# A name that Hermes does not know is only a warning there, so this list is checked against it in tests/test_plugin.py.
HOOKS = (
    "pre_llm_call",
    "post_api_request",
    "api_request_error",
    "post_tool_call",
    "post_llm_call",
    "on_session_end",
    "subagent_start",
    "subagent_stop",
    "pre_approval_request",
    "post_approval_response",
)

PLATFORM_HINT = (
    "You are talking to the user in a web chat. Markdown is fully rendered: headings, lists, tables, links and code. "
    "To show a file, put MEDIA:/absolute/path/to/file in your answer; images appear inline, other files as links."
)

# The thread that `deliver=agui` and `send_message` to "agui" reach, as <principal>.<thread id>; /sethome writes it.
HOME_VARIABLE = "AGUI_HOME_CHANNEL"

# Hermes usually lives in an environment of its own; a bare `pip` would often install somewhere else.
INSTALL_HINT = f"{sys.executable or 'python3'} -m pip install hermes-agui"

# What Hermes must let a plugin do (0.17 does).
_CONTEXT = ("register_platform", "register_cli_command", "register_hook", "register_middleware")

_NEEDED = ("agui_adapter", "aiohttp", "ag_ui", "orjson", "pydantic")


def register(ctx: Any) -> None:
    """Called once by Hermes's plugin manager, on the main thread, in every process that has plugins enabled."""
    missing = missing_packages()
    if missing:
        logger.warning("The agui plugin needs %s: run `%s` and restart Hermes", ", ".join(missing), INSTALL_HINT)
    unknown = [name for name in _CONTEXT if not hasattr(ctx, name)]
    if unknown:
        logger.error("The agui plugin needs a newer Hermes (no %s here): run `hermes update`", ", ".join(unknown))
        return
    ctx.register_platform(
        name="agui",
        label="AG-UI",
        adapter_factory=create_adapter,
        check_fn=check_requirements,
        # No validate_config: Hermes would log its answer and start without us. The adapter's connect() loads the
        # settings and reports what is wrong as a fatal error, which ends a gateway that has no other platform.
        is_connected=is_connected,
        required_env=[],
        install_hint=INSTALL_HINT,
        setup_fn=interactive_setup,
        allowed_users_env="AGUI_ALLOWED_USERS",
        allow_all_env="AGUI_ALLOW_ALL_USERS",
        apply_yaml_config_fn=settings_from_yaml,
        env_enablement_fn=home_from_env,
        cron_deliver_env_var=HOME_VARIABLE,
        standalone_sender_fn=send_from_elsewhere,
        emoji="🌐",
        platform_hint=PLATFORM_HINT,
    )
    if "agui_adapter" in missing:
        return
    ctx.register_cli_command(
        name="agui",
        help="Talk to the AG-UI door, try it in a demo, check a stream",
        setup_fn=_setup_command,
        handler_fn=_run_command,
        description="The commands of hermes-agui; `hermes-agui` alone is the same and starts faster.",
    )
    for name in HOOKS:
        ctx.register_hook(name, _hook(name))
    ctx.register_middleware("tool_execution", around_tool)


def missing_packages() -> list[str]:
    """Import names that this Python cannot find, looked up without importing them."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def check_requirements() -> bool:
    """Hermes's `check_fn`: cheap, no side effects. On False Hermes logs the install hint and skips the platform."""
    return not missing_packages()


def interactive_setup() -> None:
    """Hermes's `setup_fn`: what `hermes gateway setup` asks about this platform."""
    if "agui_adapter" in missing_packages():
        print(f"The agui plugin needs its package: run `{INSTALL_HINT}` first.")
        return
    from agui_adapter.setup import interactive_setup as ask

    ask()


def is_connected(cfg: Any) -> bool:
    """Hermes's question "is this platform configured?". Nothing has to be, so only `enabled` counts."""
    return bool(getattr(cfg, "enabled", True))


def create_adapter(cfg: Any) -> Any:
    """Build the adapter (gateway process only): this is where aiohttp and the rest are imported.

    Raises RuntimeError, which Hermes logs, on a Hermes that is laid out in a way we do not know.
    """
    try:
        from agui_adapter.adapter import AguiAdapter
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("agent", "gateway", "hermes_cli", "hermes_constants", "tools"):
            raise
        raise RuntimeError(
            f"hermes-agui does not know this Hermes ({error}): "
            "update the older of the two (`hermes update`, `pip install -U hermes-agui`)"
        ) from error

    return AguiAdapter(cfg)


def settings_from_yaml(yaml_cfg: dict[str, Any], platform_cfg: dict[str, Any]) -> dict[str, Any]:
    """The user's settings, wherever they wrote them: what this returns becomes `PlatformConfig.extra`.

    Hermes passes the whole config and the one section it picked. All three places are merged here, the top-level
    `agui:` winning, because Hermes itself keeps of `platforms.agui` only what stands under `extra`.
    Nothing is checked here: an exception in this function is swallowed by Hermes at debug level.
    """
    gateway = yaml_cfg.get("gateway")
    homes = (gateway.get("platforms") if isinstance(gateway, dict) else None, yaml_cfg.get("platforms"), yaml_cfg)
    sections = [home["agui"] for home in homes if isinstance(home, dict) and isinstance(home.get("agui"), dict)]
    merged: dict[str, Any] = {}
    for section in sections or [platform_cfg]:
        extra = section.get("extra")
        merged.update(extra if isinstance(extra, dict) else {})
        merged.update({key: value for key, value in section.items() if key not in ("extra", "enabled")})
    return merged


def home_from_env() -> dict[str, Any] | None:
    """Hermes's `env_enablement_fn`: the home channel of the environment becomes `PlatformConfig.home_channel`."""
    home = os.environ.get(HOME_VARIABLE, "").strip()
    return {"home_channel": {"chat_id": home, "name": "AG-UI home"}} if home else None


async def send_from_elsewhere(
    pconfig: Any,
    chat_id: str,
    message: str,
    *,
    thread_id: str | None = None,
    media_files: Any = None,
    force_document: bool = False,
) -> dict[str, Any]:
    """Hermes's `standalone_sender_fn`: a message for a thread from a process that is not the gateway (`hermes cron`).

    It is left in the plugin's own file, where the gateway looks every second and at its start: no port, no key, and
    nothing is lost while no gateway runs.
    """
    from hermes_constants import get_hermes_home

    from agui_adapter.session import chat_id_for, plain_names
    from agui_adapter.store import Store, store_path

    message_id = f"late-{uuid.uuid4().hex}"
    text = "\n".join([message, *(f"[file: {_file_name(media)}]" for media in media_files or ())]).strip()
    if not text:
        return {"error": "AG-UI: there is no text to send"}
    store = Store(store_path(get_hermes_home()))
    store.open()
    try:
        names = plain_names(chat_id)
        if store.thread(chat_id) is None and (names is None or chat_id_for(*names) != chat_id):
            return {"error": f"AG-UI: there is no thread {chat_id}; name it as <principal>.<thread id>"}
        if not store.add_arrival(message_id, chat_id, text):
            return {"error": "AG-UI: the message could not be stored"}
    finally:
        store.close()
    return {"success": True, "message_id": message_id}


def _file_name(media: Any) -> str:
    path = media[0] if isinstance(media, (list, tuple)) and media else media
    return os.path.basename(str(path))


def _hook(name: str) -> Callable[..., Any]:
    def forward(**kwargs: Any) -> Any:
        seam = sys.modules.get("agui_adapter.hermes")
        on_hook = getattr(seam, "on_hook", None)
        return on_hook(name, kwargs) if on_hook is not None else None

    forward.__name__ = f"agui_{name}"
    return forward


def around_tool(next_call: Callable[..., Any], **kwargs: Any) -> Any:
    """Middleware `tool_execution`: `next_call(args)` runs the tool, at most once (hermes_cli/middleware.py).

    Only the gateway loads `agui_adapter.hermes`; everywhere else every call goes straight through.
    """
    seam = sys.modules.get("agui_adapter.hermes")
    around = getattr(seam, "around_tool", None)
    return around(next_call, **kwargs) if around is not None else next_call(kwargs.get("args"))


def _setup_command(parser: argparse.ArgumentParser) -> None:
    from agui_adapter.cli import setup

    setup(parser)


def _run_command(args: argparse.Namespace) -> None:
    from agui_adapter.cli import run

    # Hermes ignores what a command returns; only SystemExit carries an exit code.
    raise SystemExit(run(args))
