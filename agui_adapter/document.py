"""Document: a thread's shared state while the process lives, and what each side knows of it.

Changed by the client's runs on the loop and by the agent on worker threads, under one lock; every change goes into the
log of the turn that runs, in the same order. Knows neither a wire nor Hermes; the rules are ``state.py``'s.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from . import state as rules
from .state import OWN, Json, Patch, bare
from .state_text import told
from .stream import StateChanged

if TYPE_CHECKING:
    from .session import Turn

_REMEMBERED = 64  # documents that a client which is behind may still hold


class Document:
    """``value`` None: the thread has no state. ``offered``: the agent has the state tools, from now on."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.value: Json = None
        self.offered = False
        self.dirty = False
        self.reserved = True  # the member `hermes` is ours

        self._version = 0  # counts changes of the shared part
        self._read = 0  # the version that the newest run was read to its end with
        self._now = ""  # the digest of ``value``
        self._past: OrderedDict[str, None] = OrderedDict()
        self._model = ""  # what the model knows: its digest, and the document while this process lives
        self._model_has: Json = None

    # -- what outlives the process --------------------------------------------------------------------------

    def load(self, value: Json, model: str, offered: bool) -> None:
        """As it was kept, unless there is one already. Subagents of an earlier process run no more."""
        with self._lock:
            if self.value is not None or self._version or self.offered:
                return
            own = value.get(OWN) if isinstance(value, dict) else None
            if not self.reserved:
                value = bare(value)
            elif isinstance(own, dict):
                value = {**value, OWN: {key: item for key, item in own.items() if key != "subagents"}}
            self.value, self._model, self.offered = value, model, offered
            self._remember()

    def keep(self) -> tuple[Json, str, bool] | None:
        """What to keep, if there is something new to keep."""
        with self._lock:
            if not self.dirty:
                return None
            self.dirty = False
            return self.value, self._model, self.offered

    # -- the client -----------------------------------------------------------------------------------------

    def adopt(self, client: Json, *, behind: bool = False, turn: Turn | None = None) -> tuple[Json, bool]:
        """A run begins with this state of its client: what holds now, and whether the client must be told it.

        ``behind``: the client does not know all that happened on the thread. Such a client that holds a document of
        ours has changed nothing; any other document is a change. ``turn``: the one that the run answers.
        """
        with self._lock:
            behind = behind or self._read != self._version
            stale = behind and _digest(client) in self._past
            value, tell = rules.agree(client, self.value, behind=stale, reserved=self.reserved)
            self._set(value)
            if turn is not None and turn.state_now is not value:
                self._append(turn, turn.state_now, value, [])
            return value, tell

    def read_to_end(self, version: int) -> None:
        """A run was read to its end, which had this version."""
        self._read = max(self._read, version)

    @property
    def version(self) -> int:
        """Counts changes of what client and agent share."""
        return self._version

    # -- the agent ------------------------------------------------------------------------------------------

    def edit(self, turn: Turn, changes: list[tuple[str, bool, Json]]) -> None:
        """The model changes the state by a tool, and so knows of it. Raises StateError; then nothing is changed."""
        with self._lock:
            before, knew = self.value, not self._model_behind()
            value, patch = rules.edit(before, changes)
            self._set(value)
            self._append(turn, before, value, patch)
            if knew:
                self.model_knows()

    def write(self, turn: Turn, pairs: Sequence[tuple[str, str]], arguments: Json) -> None:
        """A call of a client's tool brings its arguments into the state: (pointer into the state, into the arguments).

        Raises StateError; then nothing is changed.
        """
        self.edit(turn, [(pointer, False, rules.read(arguments, argument)) for pointer, argument in pairs])

    def own(
        self, turn: Turn | None, change: Callable[[dict[str, Any]], dict[str, Any]], *, force: bool = False
    ) -> None:
        """Change the server's own member. Nothing on a thread without state unless ``force``, nor in a document that
        is no object. ``turn`` None: nothing runs that could tell it."""
        with self._lock:
            if not self.reserved or (self.value is None and not force):
                return
            whole = {} if self.value is None else self.value
            if not isinstance(whole, dict):
                return
            mine = whole.get(OWN)
            new = change(dict(mine or {}))
            if mine is None:
                patch: Patch = [{"op": "add", "path": f"/{OWN}", "value": new}]
            else:
                patch = rules.diff(mine, new, [OWN])
            if patch:
                before, self.value = self.value, {**whole, OWN: new}
                self.dirty = True
                if turn is not None:
                    self._append(turn, before, self.value, patch)

    # -- the model ------------------------------------------------------------------------------------------

    def news(self, context: str) -> str:
        """What a message tells the model: ``context``, and the state if the model does not know it as it is now."""
        with self._lock:
            return told(context, self.value, self._model_has, changed=self._model_behind())

    def model_knows(self) -> None:
        """The model was told, or has changed, the state as it is now."""
        with self._lock:
            self._model, self._model_has, self.dirty = self._shared_digest(), bare(self.value), True

    def model_forgot(self) -> None:
        """The history was cut: what the model was told may be gone."""
        with self._lock:
            self._model, self._model_has, self.dirty = "", None, True

    def use(self, declared: bool = False) -> bool:
        """Whether the agent gets the state tools: from the first run with state on, since a change of its tools costs
        the provider's prompt cache. ``declared``: a tool of the client says that it writes state."""
        with self._lock:
            if not self.offered and (declared or bare(self.value) not in (None, {})):
                self.offered = self.dirty = True
            return self.offered

    # -- inside ---------------------------------------------------------------------------------------------

    def _set(self, value: Json) -> None:
        if value is self.value:
            return
        if not rules.same(bare(value), bare(self.value)):
            self._version += 1
        self.value, self.dirty = value, True
        self._remember()

    def _remember(self) -> None:
        digest = self._now = _digest(self.value)
        self._past.pop(digest, None)
        self._past[digest] = None
        while len(self._past) > _REMEMBERED:
            self._past.popitem(last=False)

    def _model_behind(self) -> bool:
        return self._model != self._shared_digest()

    def _shared_digest(self) -> str:
        """Names what the model is to know of the document; "" for nothing."""
        return "" if bare(self.value) in (None, {}) else self._now

    def _append(self, turn: Turn, before: Json, value: Json, patch: Patch) -> None:
        size = len(rules.wire(patch)) if patch else 0
        turn.append(StateChanged(value, tuple(patch), before, size))
        turn.state_now = value


def _digest(state: Json) -> str:
    """Names a document but for the server's own member."""
    try:
        text = orjson.dumps(bare(state), option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = repr(bare(state)).encode("utf-8", "replace")
    return hashlib.sha256(text).hexdigest()
