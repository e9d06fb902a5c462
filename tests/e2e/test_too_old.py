"""A Hermes that is too old is named at start, with what to do, and no door opens (`make test-compat`: 0.16)."""

from __future__ import annotations

import pytest

from agui_adapter.demo.gateway import Gateway, GatewayError
from tests.e2e.helpers import GatedModel


class Old(Gateway):
    def command(self) -> list[str]:
        return [part for part in super().command() if part != "--force"]  # 0.16 knows it not


@pytest.mark.slow
@pytest.mark.refused
def test_a_hermes_too_old_is_named_at_start(model: GatedModel) -> None:
    from hermes_cli.plugins import PluginContext

    if hasattr(PluginContext, "register_middleware"):
        pytest.skip("this Hermes is new enough")
    gateway = Old(model)
    try:
        with pytest.raises(GatewayError):
            gateway.start()
        said = gateway.log_text() + gateway.agent_log_text()
        assert "needs a newer Hermes (no register_middleware here): run `hermes update`" in said
        assert "serving AG-UI" not in said
    finally:
        gateway.close()
