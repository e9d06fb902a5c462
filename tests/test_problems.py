"""Errors on the wire: OpenAI's shape under /v1, problem documents elsewhere."""

from __future__ import annotations

import json

import pytest

from agui_adapter.errors import AguiError
from agui_adapter.problems import error_response

ERROR = AguiError(409, "thread_busy", "Wait.", retry_after=5, members={"param": "message", "hermes_code": 4004})


def test_a_problem_document_elsewhere() -> None:
    response = error_response(ERROR, "/api/sessions/v1")
    assert response.status == 409 and response.content_type == "application/problem+json"
    assert response.headers["Retry-After"] == "5"
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "thread busy",
        "status": 409,
        "code": "thread_busy",
        "detail": "Wait.",
        "param": "message",
        "hermes_code": 4004,
    }


@pytest.mark.parametrize("path", ["/v1", "/v1/runs", "/v1/no/such"])
def test_openais_shape_under_v1(path: str) -> None:
    response = error_response(ERROR, path)
    assert response.status == 409 and response.content_type == "application/json"
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {
        "error": {
            "message": "Wait.",
            "type": "conflict_error",
            "param": "message",
            "code": "thread_busy",
            "hermes_code": 4004,
        }
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (503, "server_error")],
)
def test_openais_types(status: int, kind: str) -> None:
    response = error_response(AguiError(status, "code", "Sentence."), "/v1/x")
    assert isinstance(response.body, bytes) and json.loads(response.body)["error"]["type"] == kind
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


def test_members_cannot_take_the_place_of_the_error() -> None:
    error = AguiError(404, "no_such_thread", "None.", members={"code": "x", "detail": "y", "status": 1})
    body = error_response(error, "/agui").body
    assert isinstance(body, bytes) and json.loads(body)["code"] == "no_such_thread"
