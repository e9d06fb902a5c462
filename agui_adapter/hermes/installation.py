"""Hermes as it is installed and configured here, for commands beside the gateway (doctor, setup). Hermes 0.19.0."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def home() -> Path:
    """HERMES_HOME, or where Hermes lives without it."""
    from hermes_constants import get_hermes_home

    return Path(get_hermes_home())


def configuration() -> dict[str, Any]:
    """config.yaml with Hermes's own defaults under it."""
    from hermes_cli.config import load_config

    found: dict[str, Any] = load_config()
    return found


def environment() -> dict[str, str]:
    """What the gateway's environment will be: this one, over Hermes's .env file. Nothing is written to ours."""
    from hermes_cli.config import load_env

    return {**load_env(), **os.environ}


def platform_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The `agui` section, wherever it stands, as the adapter gets it."""
    from gateway_plugins.agui import settings_from_yaml

    section = config.get("agui")
    return settings_from_yaml(config, section if isinstance(section, dict) else {})


def approval_seconds(config: dict[str, Any]) -> float:
    """Hermes's own time for an approval (tools/approval.py: 60 unless configured)."""
    approvals = config.get("approvals")
    value = approvals.get("timeout", 60) if isinstance(approvals, dict) else 60
    try:
        return float(value)
    except (TypeError, ValueError):
        return 60.0
