"""Named tokens: made by the operator on the command line, shown once, kept as a digest, revoked at once.

A token's holder is the principal ``token-NAME``. It knows neither HTTP nor Hermes.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection

from .principal import Principal, Scope
from .store import Store, TokenRecord

MARK = "agui_"
"""What every named token begins with: a revoked one is never taken for something else."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\Z")


def principal_of(name: str) -> str:
    """The principal's id: the same when a token of this name is made anew."""
    return f"token-{name}"


def check_name(name: str) -> str:
    """The name. Raises ValueError with a sentence."""
    if not _NAME.match(name):
        raise ValueError("A name has 1 to 40 small letters, digits and hyphens, and no hyphen at either end.")
    return name


def create(store: Store, name: str, scopes: Collection[Scope]) -> str:
    """A new token; this is the only time that it can be read. Raises ValueError where the name is taken."""
    token = MARK + secrets.token_urlsafe(32)
    if not store.add_token(check_name(name), digest(token), sorted(scopes)):
        raise ValueError(f"There is a token {name!r} already: revoke it first, or choose another name.")
    return token


def find(store: Store, token: str) -> Principal | None:
    """Whose token it is, if it is a named one that was not revoked. Blocks for a look-up."""
    record = store.token(digest(token)) if token.startswith(MARK) else None
    return None if record is None else holder(record)


def holder(record: TokenRecord) -> Principal:
    """The principal that a token stands for."""
    return Principal(principal_of(record.name), scopes=frozenset(record.scopes))


def digest(token: str) -> str:
    """What is kept of it. The token is 256 random bits: no salt and no slow hash would add anything."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
