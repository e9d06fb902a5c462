"""What is installed and configured: versions, pins, the plugin, the settings, what they mean. Asks no network."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from agui_adapter import __version__
from agui_adapter.config import KEY_VARIABLE, ConfigError, Settings, is_loopback, load

from .findings import Finding

HERMES = "0.19"
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([^;\s]+)")
_PINNED = ("aiohttp", "mcp", "pydantic", "starlette")  # of Hermes's pins, those that this plugin or its tests install
_TRUE = frozenset({"1", "true", "yes", "on"})
_ALLOW_ALL = ("AGUI_ALLOW_ALL_USERS", "GATEWAY_ALLOW_ALL_USERS")
_ALLOWED = ("AGUI_ALLOWED_USERS", "GATEWAY_ALLOWED_USERS")


def packages() -> Iterator[Finding]:
    """Python, Hermes, this package, and whether libraries are the ones that Hermes wants."""
    python = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield Finding("python", "ok", f"Python {python}")
    else:
        yield Finding(
            "python", "error", f"Python {python} is not one that Hermes takes", "Use Python 3.11, 3.12 or 3.13."
        )
    hermes = _version("hermes-agent")
    if not hermes:
        text = f"Hermes Agent is not installed in {sys.prefix}"
        yield Finding(
            "hermes", "error", text, "Install hermes-agui into Hermes's own environment and run it from there."
        )
        return
    if hermes.startswith(HERMES):
        yield Finding("hermes", "ok", f"Hermes Agent {hermes}, hermes-agui {__version__}")
    else:
        text = f"Hermes Agent {hermes}; hermes-agui {__version__} was tested with {HERMES}"
        yield Finding("hermes", "warning", text, f"Use Hermes {HERMES}, or look for a newer hermes-agui.")
    yield from pins(hermes)


def pins(hermes: str) -> Iterator[Finding]:
    """Libraries that Hermes pins and that stand here in another version."""
    mcp = _version("mcp")
    if mcp.startswith("2.") and hermes.startswith(HERMES):
        text = f"mcp {mcp} stands beside Hermes {hermes}: Hermes's own MCP tools come out empty, without an error"
        yield Finding("mcp", "error", text, "pip install 'mcp>=1.26,<2'")
    wanted = {name: pin for line in requires("hermes-agent") or () for name, pin in _PIN.findall(line)[:1]}
    other = [
        f"{name} {found} (Hermes pins {wanted[name]})"
        for name in _PINNED
        if _differs(name, wanted, found := _version(name))
    ]
    if other:
        yield Finding(
            "pins", "note", ", ".join(other), "Only if something misbehaves: install the versions that Hermes pins."
        )
    else:
        yield Finding("pins", "ok", "the libraries that Hermes pins are the ones it wants")


def _differs(name: str, wanted: Mapping[str, str], found: str) -> bool:
    return bool(found) and wanted.get(name, found) != found


def plugin(config: Mapping[str, Any], missing: list[str]) -> Iterator[Finding]:
    """Whether Hermes loads the plugin and starts the platform."""
    if missing:
        command = f"{sys.executable} -m pip install hermes-agui"
        yield Finding("packages", "error", f"packages are missing: {', '.join(missing)}", command)
    plugins = config.get("plugins")
    enabled = plugins.get("enabled") if isinstance(plugins, dict) else None
    if isinstance(enabled, list) and "agui" in enabled:
        yield Finding("plugin", "ok", "the plugin is enabled")
    else:
        yield Finding(
            "plugin", "error", "the plugin is not enabled, so Hermes ignores it", "hermes plugins enable agui"
        )
    section = config.get("agui")
    if isinstance(section, dict) and section.get("enabled") is False:
        yield Finding("enabled", "error", "agui.enabled is false", "Set agui.enabled: true in config.yaml.")


def settings(extra: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    """The settings, as the adapter will read them; None where it would refuse them."""
    try:
        found = load(extra, environ)
    except ConfigError as error:
        return None, [
            Finding("settings", "error", str(error), "Correct config.yaml or .env, then restart the gateway.")
        ]
    where = f"{found.host}:{found.port}"
    return found, [Finding("settings", "ok", f"the settings are good; it listens on {where}")]


def who(found: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Who may come in."""
    opened = [name for name in _ALLOW_ALL if environ.get(name, "").strip().lower() in _TRUE]
    listed = [name for name in _ALLOWED if environ.get(name, "").strip()]
    if opened:
        text = f"{opened[0]} lets everybody in who reaches the port" + (
            "" if is_loopback(found.host) else ", and the port is open to the network"
        )
        level = "warning" if is_loopback(found.host) else "error"
        yield Finding("who", level, text, "Name the users in AGUI_ALLOWED_USERS instead.")  # type: ignore[arg-type]
    elif listed or found.api_key is not None:
        by = [*([KEY_VARIABLE] if found.api_key is not None else []), *listed]
        yield Finding("who", "ok", f"callers are let in by {' and '.join(by)}, and by pairing")
    else:
        text = "nobody is allowed yet: the first run shows a pairing code"
        yield Finding("who", "note", text, "Put AGUI_ALLOWED_USERS=local into .env, or approve the code it shows.")
    if not is_loopback(found.host) and not found.allowed_hosts and found.host not in ("0.0.0.0", "::"):
        yield Finding("hosts", "note", "clients must call it by its address", "Add its name to agui.allowed_hosts.")


def hermes(config: Mapping[str, Any], found: Settings, own_seconds: float) -> Iterator[Finding]:
    """Settings of Hermes's own that decide how this platform behaves."""
    approvals = config.get("approvals")
    mode = str(approvals.get("mode", "")) if isinstance(approvals, dict) else ""
    if mode.lower() in ("off", "false", "yolo"):
        text = "approvals.mode is off: dangerous commands run unasked for whoever may talk to the agent"
        yield Finding("approvals", "warning", text, "Set approvals.mode: manual in config.yaml.")
    elif own_seconds <= 0:
        text = f"approvals.timeout is {own_seconds:g}: Hermes refuses every dangerous command at once"
        yield Finding("approvals", "error", text, "Set approvals.timeout: 60 or more in config.yaml.")
    else:
        seconds = max(own_seconds, found.approval_timeout_seconds)
        yield Finding("approvals", "ok", f"a dangerous command waits {seconds:g} seconds for a yes")
    agent = config.get("agent")
    drain = agent.get("restart_drain_timeout") if isinstance(agent, dict) else None
    if _number(drain) > 0:
        yield Finding("drain", "ok", f"a stop waits {_number(drain):g} seconds for turns that run")
    else:
        text = "a stop of the gateway cuts turns that run, and the next start resumes them"
        yield Finding("drain", "note", text, "To let them end, set agent.restart_drain_timeout: 30 in config.yaml.")
    gateway = config.get("gateway")
    proxy = gateway.get("proxy_url") if isinstance(gateway, dict) else None
    model = config.get("model")
    runtime = model.get("openai_runtime") if isinstance(model, dict) else None
    if proxy or runtime == "codex_app_server":
        which = "gateway.proxy_url" if proxy else "the codex_app_server runtime"
        text = f"{which} goes past what a plugin can see: clients get final texts only"
        yield Finding("stream", "warning", text, "Take another runtime for live streams, tools and approvals.")
    else:
        yield Finding("stream", "ok", "turns can be streamed live")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
