"""What the end-to-end tests of the REST routes share: requests as a principal, and what refusals say."""

from __future__ import annotations

from typing import Any

import httpx

from agui_adapter.demo.gateway import Gateway

KEY = "an-operators-key-of-thirty-two-ch"


def ask(
    gateway: Gateway, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
) -> httpx.Response:
    """One request; `key` None is the principal `local`."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    return httpx.request(method, f"{gateway.url}{path}", json=body, headers=sent, timeout=90)


def ok(response: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that must be this one."""
    assert response.status_code == status, response.text
    return response.json()


def refused(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, whose form and sentence are checked."""
    told = response.json()
    if response.url.path.startswith("/v1/"):
        error = told["error"]
        assert set(error) >= {"message", "type", "param", "code"}, told
        assert error["message"].strip().endswith((".", "…")), told
        return response.status_code, error["code"]
    assert response.headers["content-type"].startswith("application/problem+json"), response.headers
    assert told["status"] == response.status_code and told["detail"].strip(), told
    return response.status_code, told["code"]
