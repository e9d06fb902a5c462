"""A Hermes that is too old is named at start, with what to do, and no door opens (`make test-compat`: 0.17)."""

from __future__ import annotations

import pytest

from agui_adapter.demo.gateway import Gateway, GatewayError
from tests.e2e.helpers import GatedModel


@pytest.mark.slow
@pytest.mark.refused
def test_a_hermes_too_old_is_named_at_start(model: GatedModel) -> None:
    from gateway.run import GatewayRunner

    if hasattr(GatewayRunner, "_pairing_store_for"):
        pytest.skip("this Hermes is new enough")
    gateway = Gateway(model)
    try:
        with pytest.raises(GatewayError):
            gateway.start()
        assert "gateway._pairing_store_for" in gateway.log_text()
        assert "hermes update" in gateway.log_text()
    finally:
        gateway.close()
