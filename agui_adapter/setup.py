"""`hermes gateway setup` for this platform: a few questions, behaviour into config.yaml, secrets into .env.

As Hermes's bundled platforms do it (plugins/platforms/irc, interactive_setup), with Hermes's own prompts and writers,
imported when it runs.
"""

from __future__ import annotations

import secrets

from .config import KEY_LENGTH, KEY_VARIABLE

_PORT = 8650


def interactive_setup() -> None:
    """Ask, and write. What is answered with nothing stays as it is."""
    from hermes_cli.config import set_config_value
    from hermes_cli.setup import (
        get_env_value,
        print_header,
        print_info,
        print_success,
        print_warning,
        prompt,
        prompt_yes_no,
        save_env_value,
    )

    print_header("AG-UI (web)")
    print_info("Opens this agent to web pages, CopilotKit, assistant-ui and a terminal, on a port of this machine.")
    port = prompt("Port", default=str(_PORT)).strip() or str(_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        print_warning(f"{port!r} is no port; {_PORT} is used.")
        port = str(_PORT)
    key = (get_env_value(KEY_VARIABLE) or "").strip()
    public = prompt_yes_no("May other machines reach it? (behind a proxy on this machine: no)", False)
    wanted = public or prompt_yes_no("Make a key for the owner (needed by apps on servers)?", not key)
    if wanted and len(key) < KEY_LENGTH:
        key = secrets.token_hex(24)
        save_env_value(KEY_VARIABLE, key)
        print_success(f"{KEY_VARIABLE} is in Hermes's .env file now.")
    if prompt_yes_no("May callers on this machine use it without a key?", not public):
        users = [one.strip() for one in (get_env_value("AGUI_ALLOWED_USERS") or "").split(",") if one.strip()]
        if "local" not in users:
            save_env_value("AGUI_ALLOWED_USERS", ",".join([*users, "local"]))
    set_config_value("agui.enabled", "true", force=True)
    set_config_value("agui.host", "0.0.0.0" if public else "127.0.0.1", force=True)
    set_config_value("agui.port", port, force=True)
    if public:
        print_warning("There is no TLS on it yet: read SECURITY.md before you open the port in a firewall.")
    print_success(f"AG-UI will be at http://127.0.0.1:{port}/agui once the gateway runs.")
    print_info("Then: hermes agui doctor")
