"""schemathesis tries every route of `/openapi.json` on a running gateway with generated requests, good and bad ones.

No 500, no status, content type or body that the document does not tell, and nothing that it forbids is taken. Its own
pytest plugin does not know this pytest; its strategies and checks are what is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agui_adapter.config import load
from agui_adapter.demo.gateway import Gateway
from agui_adapter.openapi import document
from agui_adapter.server import Server
from tests.e2e.helpers import Chat, GatedModel, script
from tests.e2e.rest import KEY

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
THREAD = "a-thread-that-is-there"


def operations() -> list[tuple[str, str]]:
    app = Server(None, load({"metrics": "off"}, {})).application()  # type: ignore[arg-type]
    paths = document(app)["paths"]
    return [(method.upper(), path) for path in paths for method in paths[path]]


@pytest.fixture(scope="module")
def served(model: GatedModel) -> Iterator[tuple[Any, str]]:
    """The document of a gateway of its own, and where it listens; its owner has a thread."""
    env = {"AGUI_API_KEY": KEY}
    agui = {"observe": True, "requests_per_minute": 0, "failures_per_minute": 0}
    with Gateway(model, toolsets=["terminal", "file"], env=env, agui=agui) as running:
        Chat(running, thread=THREAD, key=KEY).say(script({"text": "Hello."})).succeeded()
        yield schemathesis.openapi.from_url(f"{running.url}/openapi.json"), running.url


def attempt(operation: Any, mode: GenerationMode, examples: int) -> None:
    """Requests of one kind. Names at random are of nothing that is there, so every other one is made to be: but where
    it would be deleted, or followed for ever."""
    lasts = operation.method.upper() != "DELETE" and not operation.path.endswith("/events")

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        for name in ("thread_id", "session_id"):
            if lasts and name in (case.path_parameters or {}) and len(str(case.path_parameters[name])) % 2:
                case.path_parameters[name] = THREAD
        case.call_and_validate(checks=CHECKS, timeout=90, headers={"Authorization": f"Bearer {KEY}"})

    try:
        run()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing can be wrong with a request that says nothing


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda one: str(one))
def test_a_route_does_as_the_document_says(
    served: tuple[Any, str], method: str, path: str, mode: GenerationMode
) -> None:
    attempt(served[0][path][method], mode, 15)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/chat"),
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs/{run_id}"),
        ("POST", "/api/sessions"),
        ("POST", "/api/sessions/{session_id}/rewind"),
    ],
)
def test_some_of_them_quickly(served: tuple[Any, str], method: str, path: str) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        attempt(served[0][path][method], mode, 4)
