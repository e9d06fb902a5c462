"""Errors on the wire: OpenAI's shape under ``/v1``, problem documents (RFC 9457) everywhere else. Pure but for aiohttp.

Both say a code, a sentence and the status; neither ever holds a stack, a path or a secret.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from .encode import dumps
from .errors import AguiError

_TYPES = {  # OpenAI's types of errors, which its SDKs choose their exceptions' texts by
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def is_openai(path: str) -> bool:
    """Whether clients of OpenAI's API call this address."""
    return path == "/v1" or path.startswith("/v1/")


def error_response(error: AguiError, path: str) -> web.Response:
    """The response to a request of this path."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    openai = is_openai(path)
    return web.Response(
        status=error.status,
        body=dumps(openai_error(error) if openai else problem(error)),
        content_type="application/json" if openai else "application/problem+json",
        headers=headers,
    )


def problem(error: AguiError) -> dict[str, Any]:
    """RFC 9457, with ``code`` and what else the error tells."""
    return {
        **error.members,
        "type": "about:blank",
        "title": error.code.replace("_", " "),
        "status": error.status,
        "code": error.code,
        "detail": error.message,
    }


def openai_error(error: AguiError) -> dict[str, Any]:
    """OpenAI's; ``param`` names the member of the body that is wrong, where that is known."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    about = {name: value for name, value in error.members.items() if name != "param"}
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.members.get("param"),
            "code": error.code,
            **about,
        }
    }
