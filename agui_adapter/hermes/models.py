"""The seam: the models that Hermes is set up with. Written for 0.19.0; every function blocks."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("hermes_agui")


def configured_model() -> str:
    """The name of the model that a new conversation gets; empty when that cannot be told."""
    try:
        from gateway.run import _resolve_gateway_model

        return str(_resolve_gateway_model() or "")
    except Exception:
        logger.debug("the configured model cannot be told", exc_info=True)
        return ""


def picker(*, refresh: bool, explicit_only: bool, include_unconfigured: bool) -> dict[str, Any]:
    """Providers and their models as Hermes's own pickers get them (hermes_cli/web_server.py, get_model_options).

    Without ``refresh`` only the custom provider in use is asked for its list; with it all are, and caches are dropped.
    """
    from hermes_cli.inventory import build_models_payload, load_picker_context

    payload: dict[str, Any] = build_models_payload(
        load_picker_context(),
        explicit_only=explicit_only,
        include_unconfigured=include_unconfigured,
        picker_hints=True,
        canonical_order=True,
        pricing=True,
        capabilities=True,
        refresh=refresh,
        probe_custom_providers=refresh,
        probe_current_custom_provider=not refresh,
    )
    return payload
