"""The seam: an adapter's place in a gateway that serves several profiles (``gateway.multiplex_profiles``).

Such a gateway starts every profile's adapters in that profile's scope (run.py, _start_one_profile_adapters): context
variables that tell the profile, its home and its secrets. Requests inherit them from ``connect``; worker threads do
not, and what another profile's turn calls has that one's. So the scope is kept, and the keys of sessions are made in
it. Written for 0.19.0.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..config import KEY_VARIABLE

T = TypeVar("T")


class Place:
    """Where an adapter was started: make it in ``connect``. Its methods may be called on any thread."""

    def __init__(self, runner: Any) -> None:
        self._config = getattr(runner, "config", None)
        self._scope: contextvars.Context | None = None
        self.profile = ""
        """The profile that the adapter was started for; empty for the gateway's own."""
        if getattr(self._config, "multiplex_profiles", False) is True:
            from hermes_cli.profiles import get_active_profile_name

            self._scope = contextvars.copy_context()
            here = get_active_profile_name()
            self.profile = here if contextvars.Context().run(get_active_profile_name) != here else ""

    def run(self, work: Callable[..., T], *args: Any) -> T:
        """``work(*args)`` in the adapter's own scope, whoever calls."""
        return work(*args) if self._scope is None else self._scope.copy().run(work, *args)

    def environment(self) -> Mapping[str, str]:
        """The variables that count here: for a further profile its .env over the process's, as Hermes's own rules read
        them (authz_mixin.py, _auth_env); the operator's key is its own or none."""
        if not self.profile:
            return os.environ
        from agent.secret_scope import current_secret_scope

        own = {name: value for name, value in (self.run(current_secret_scope) or {}).items() if value.strip()}
        return {name: value for name, value in os.environ.items() if name != KEY_VARIABLE} | own

    def trouble(self) -> str:
        """Why the adapter may not serve here, in a sentence; empty when it may.

        A chat of another adapter that a route gives to this profile would have the keys of this one's chats, and the
        gateway would send its questions here (authz_mixin.py, _adapter_for_source), to a caller of the same name.
        """
        routes = getattr(self._config, "profile_routes", None) or () if self.profile else ()
        if any(one.enabled and one.platform == "agui" and one.profile == self.profile for one in routes):
            return (
                f"gateway.profile_routes gives agui chats to the profile {self.profile}, which would have a port of "
                "its own as well: their conversations would be one. Set agui.enabled: false in that profile's "
                "config.yaml, or take the route away."
            )
        return ""
