"""The real gateway of the end-to-end tests, for the attacks that need one; those are marked `e2e`."""

import pytest

pytest.register_assert_rewrite("tests.e2e.helpers")

from tests.e2e.conftest import gateway, make_gateway, model  # noqa: E402

__all__ = ["gateway", "make_gateway", "model"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever starts a gateway is an end-to-end test."""
    for item in items:
        if {"gateway", "make_gateway"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.e2e)
