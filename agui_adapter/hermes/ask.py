"""The seam, second part: what Hermes waits for. Approvals, clarify questions, client tools; all on worker threads.

Each opens a request in ``requests.py`` and blocks the worker that asks, in slices that honour interrupts and Hermes's
inactivity watchdog. Written for 0.19.0; part of the seam and of nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

from gateway import session_context

from ..requests import DENY, Answer, Pending, Requests, new_id
from ..session import Turn
from ..stream import Request
from ..tools import ClientTool, content_of
from . import objects
from .redaction import redact, redacted_choices
from .versions import approvals

logger = logging.getLogger("hermes_agui")

_asking = threading.local()  # the approval that this thread's guard asks for now


# -- approvals ---------------------------------------------------------------------------------------------------


def approval_asked(requests: Requests, turn: Turn, facts: dict[str, Any], call_id: str, seconds: float) -> bool:
    """Hook ``pre_approval_request``: on the thread that will wait, right after its entry was queued.

    Hermes's queue answers first in, first out, without ids (tools/approval.py, resolve_gateway_approval), so the entry
    itself is bound to our request and released by us. ``seconds``: how long an answer is waited for in all; what goes
    beyond Hermes's own time is waited for here, before Hermes begins to count. Without ``call_id`` it is no call of
    this turn that waits but ``/background`` beside it. False when nothing could be bound.
    """
    key, command = str(facts.get("session_key") or ""), str(facts.get("command") or "")
    entry = _claim(key, command)
    if entry is None:
        return False
    own, beside = approval_seconds(), not call_id
    if own <= 0:
        logger.warning("agui: approvals.timeout is %g: Hermes refuses every dangerous command at once", own)
        return True
    seconds = requests.limited(turn, max(seconds, own))
    early = seconds < own
    if not requests.take_place(turn):
        _settle(entry, DENY, "Too many conversations wait for an answer already.")
        return True
    data = entry.data
    request = Request(
        new_id("approval"),
        "approval",
        redact(f"Allow this command? {facts.get('description') or ''}".strip()),
        call_id,
        approval_choices(
            bool(data.get("allow_permanent", True)),
            bool(data.get("smart_denied")),
            session=bool(data.get("allow_session", True)),
        ),
        detail={
            "command": redact(str(data.get("command") or command)),  # Hermes does so from 0.18 on
            "description": redact(str(facts.get("description") or "")),
        },
    )

    def release(pending: Pending) -> None:
        answer = pending.answer or Answer()
        if pending.closed != "expired":
            _settle(entry, answer.choice or DENY, answer.text or answer.error)
        elif beside or early:
            _settle(entry, DENY, "There was no answer in time. Silence is not consent.")
        # Else Hermes's own time is over within a second, and it tells the model so.

    pending = requests.open(turn, request, seconds=seconds, parks=not beside, on_close=release)
    requests.hold(pending)
    _asking.pending, _asking.entry = pending, entry
    if not beside:
        requests.park(pending)
    keep = _keeper("waiting for an approval")
    # The end of the session's own turn wakes and refuses every wait of the session, those of /background too
    # (unregister_gateway_notify): that one is waited for here to its end.
    deadline = time.monotonic() + (seconds + 1 if beside else seconds - own)
    while (left := deadline - time.monotonic()) > 0 and not pending.event.wait(min(0.5, left)):
        if keep() or entry.result is not None:
            break  # Hermes sees the interrupt itself and refuses; a reset of the session has refused already
    return True


def _settle(entry: Any, choice: str, reason: str) -> None:
    if hasattr(entry, "reason"):
        entry.reason = reason or None
    elif choice == DENY:
        entry.data["agui_reason"] = reason  # ``with_reason`` tells the model
    entry.result = choice
    entry.event.set()


def approval_settled(requests: Requests, facts: dict[str, Any]) -> None:
    """Hook ``post_approval_response``: the same thread, when its wait is over."""
    pending = getattr(_asking, "pending", None)
    entry, _asking.pending, _asking.entry = getattr(_asking, "entry", None), None, None
    with _claim_lock:
        _claimed.pop(id(entry), None)
    if pending is None:
        return
    _asking.reason = str(entry.data.get("agui_reason") or "") if entry is not None else ""
    requests.close(pending, "expired" if facts.get("choice") == "timeout" else "cancelled", Answer(choice=DENY))


def with_reason(result: Any) -> Any:
    """A call's result with why it was refused, in the words of 0.18: before, Hermes tells the model of no reason. On
    the thread of the call, when it is over."""
    reason, _asking.reason = getattr(_asking, "reason", ""), ""
    if not reason:
        return result
    try:
        told = json.loads(result)
        told["error"] = f'{told["error"]} Reason given by the user: "{reason}".'
    except (TypeError, ValueError, KeyError):
        return result
    return json.dumps(told, ensure_ascii=False)


def approval_seconds() -> float:
    """Hermes's own time for an approval (``approvals.timeout``), in seconds."""
    try:
        return float(approvals("_get_approval_timeout")())
    except Exception:
        logger.debug("approvals.timeout unreadable", exc_info=True)
        return 60.0


_claimed: dict[int, Any] = {}  # keeps the entry, so that its id stays its own
_claim_lock = threading.Lock()


def _claim(key: str, command: str) -> Any:
    """The queue entry that this thread has just added: the oldest with this command that no other thread has taken.

    Two threads of a session that ask for the same command at the same moment may take each other's: the same question.
    """
    try:
        from tools import approval

        with _claim_lock, approval._lock:
            _claimed.pop(id(getattr(_asking, "entry", None)), None)  # Hermes could not ask, and told no hook
            for entry in approval._gateway_queues.get(key) or []:
                if id(entry) not in _claimed and not entry.event.is_set() and entry.data.get("command") == command:
                    _claimed[id(entry)] = _asking.entry = entry
                    _asking.pending = None
                    return entry
    except Exception:
        logger.exception("agui: approvals of this Hermes cannot be bound; answers go to its oldest question")
    return None


def bind_session(session_key: str) -> None:
    """Name the session of whatever this task starts: ``/background`` of 0.19 loses it, and would ask nobody."""
    approvals("set_current_session_key")(session_key)


def session_key_here() -> str:
    """The session whose dangerous commands this thread would ask for; empty when it is none."""
    return str(approvals("_approval_session_key").get("") or objects.session_key_here())


@contextlib.contextmanager
def of_no_other() -> Iterator[None]:
    """Around a tool: one whose thread names no session (a subagent's) asks in none, and has nobody's rights.

    Hermes would look for the session in the environment of the process, where 0.17 leaves the newest turn's.
    """
    if session_key_here() or not session_context.get_session_env("HERMES_SESSION_KEY"):
        yield
        return
    token = session_context._SESSION_KEY.set("")  # none at all: nobody looks further
    try:
        yield
    finally:
        session_context._SESSION_KEY.reset(token)


class _Ears:
    """Lets ``/background`` ask: Hermes 0.19 asks only in sessions whose own turn runs, where the gateway listens.

    While a tool of such a task runs, its session has a listener; what is asked comes through the hook as ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._ours: dict[str, Any] = {}

    @contextlib.contextmanager
    def open(self, key: str, heard: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Around one tool. ``heard`` does what the gateway's own listener does. Worker thread."""
        from tools import approval

        with self._lock, approval._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            if key not in approval._gateway_notify_cbs:
                approval._gateway_notify_cbs[key] = self._ours[key] = heard
        try:
            yield
        finally:
            with self._lock, approval._lock:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]
                    ours = self._ours.pop(key, None)
                    if ours is not None and approval._gateway_notify_cbs.get(key) is ours:
                        del approval._gateway_notify_cbs[key]


ears = _Ears()


def approval_choices(permanent: bool, smart_denied: bool, *, session: bool = True) -> tuple[str, ...]:
    """What Hermes allows as an answer: the owner's override of a smart refusal is for once (approval.py)."""
    if smart_denied or not session:
        return ("once", "deny")
    return ("once", "session", "always", "deny") if permanent else ("once", "session", "deny")


def resolve_oldest(session_key: str, choice: str, reason: str) -> bool:
    """Hermes's own first in, first out answer, for a question that could not be bound. Any thread."""
    from tools.approval import resolve_gateway_approval

    why = {"reason": reason} if reason and "reason" in signature(resolve_gateway_approval).parameters else {}
    return bool(resolve_gateway_approval(session_key, choice, **why))


# -- slash confirmations -------------------------------------------------------------------------------------------

CONFIRM_SECONDS = 290.0  # Hermes drops a confirmation after 300 s (tools/slash_confirm.py)


async def resolve_confirm(session_key: str, confirm_id: str, choice: str) -> str:
    """Run the confirmed command and return what it says; with no choice the confirmation is dropped. On the loop."""
    from tools import slash_confirm

    if not choice:
        slash_confirm.clear(session_key)
        return ""
    return await slash_confirm.resolve(session_key, confirm_id, choice) or ""


# -- questions ---------------------------------------------------------------------------------------------------


def ask_clarify(requests: Requests, turn: Turn, call_id: str, question: str, choices: Any) -> str:
    """The agent's ``clarify`` tool: asks, waits, and returns what the tool gives to the model. Worker thread.

    Stands in for the gateway's callback, whose time-out of 0 expires at once in 0.19 (clarify_gateway.py) though it
    is documented as no limit.
    """
    outcome, text = _ask(requests, turn, call_id, question, choices)
    return text if outcome == "submitted" else f"[{text}]"


def ask_questions(requests: Requests, turn: Turn, call_id: str, questions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same of Hermes 0.22, where one call asks several: one after the other, to the first that is not answered."""
    answers: dict[str, Any] = {}
    for one in questions:
        several = {"multiSelect": True} if one.get("multi_select") else {}
        outcome, text = _ask(requests, turn, call_id, str(one.get("question") or ""), one.get("choices"), several)
        if outcome != "submitted":
            return {"answers": answers, "outcome": outcome, "notice": text}
        answers[str(one.get("qid"))] = text
    return {"answers": answers, "outcome": "submitted"}


def _ask(
    requests: Requests, turn: Turn, call_id: str, question: str, choices: Any, detail: dict[str, Any] | None = None
) -> tuple[str, str]:
    """How it ended, in the words of Hermes 0.22 (tools/clarify_tool.py), and the answer, or why there is none."""
    from tools.clarify_gateway import get_clarify_timeout

    if not requests.take_place(turn):
        return "undelivered", "the question could not be asked: too many conversations wait for an answer already"
    seconds = requests.limited(turn, float(max(0, get_clarify_timeout())))
    meant = redacted_choices(choices)
    request = Request(
        new_id("clarify"),
        "clarify",
        redact(question),
        call_id,
        tuple(meant),
        free_text=True,
        detail=detail or {},
    )
    pending = requests.open(turn, request, seconds=seconds)
    requests.hold(pending)
    requests.park(pending)
    requests.wait(pending, _keeper("waiting for an answer"))
    answer = pending.answer or Answer()
    if pending.closed == "answered" and not answer.error:
        return "submitted", meant.get(answer.text, answer.text)
    if pending.closed == "expired":
        return "timed_out", f"user did not respond within {int(seconds // 60)}m"
    return "cancelled", f"the question was not answered: {answer.error}"


def resolve_clarify(clarify_id: str, text: str) -> None:
    """Answer a question that the gateway itself waits for. Any thread."""
    from tools.clarify_gateway import resolve_gateway_clarify

    resolve_gateway_clarify(clarify_id, text)


# -- client tools ------------------------------------------------------------------------------------------------


def open_client_call(requests: Requests, turn: Turn, call_id: str, name: str, seconds: float) -> Pending:
    """A call of a client tool was announced: it can be answered from now on, before the worker comes to it."""
    request = Request(new_id("call"), "client_tool", f"Run {name} in the client.", call_id, detail={"tool": name})
    return requests.open(turn, request, seconds=seconds)


def wait_client(requests: Requests, pending: Pending, name: str) -> Any:
    """The worker comes to the call: wait for the client's answer; returns the tool's result for Hermes."""
    if pending.closed is None:
        if requests.take_place(pending.turn):
            requests.hold(pending)
            requests.park(pending)
            requests.wait(pending, _keeper(f"waiting for the client's {name}"))
        else:
            requests.close(pending, "cancelled", Answer(error="Too many conversations wait for a client already."))
    answer = pending.answer or Answer()
    if pending.closed == "expired":
        return json.dumps({"error": f"The client did not answer the call of {name} in time."})
    if pending.closed == "cancelled":
        return json.dumps({"error": f"The call of {name} was cancelled: {answer.error}"}, ensure_ascii=False)
    text, images = content_of(answer.text, answer.error, answer.parts)
    if not images:
        return text
    parts = [{"type": "text", "text": text}] if text else []
    return {"_multimodal": True, "content": [*parts, *images], "text_summary": text or "[image]"}


def offer(agent: Any, tools: Sequence[ClientTool], offered: Sequence[str]) -> list[str]:
    """Give an agent this turn's client tools, in the client's order behind its own; returns the names given.

    ``offered``: names given before, taken back first. A name that the agent has of its own is never given. Called
    where a turn starts and again at each loop iteration: an MCP refresh rebuilds the agent's list in between.
    """
    own = [tool for tool in agent.tools or [] if _tool_name(tool) not in offered]
    own_names = {_tool_name(tool) for tool in own}
    names = set(agent.valid_tool_names or ()) - set(offered)
    wanted = [tool for tool in tools if tool.name not in own_names and tool.name not in names]
    definitions = [tool.definition() for tool in wanted]
    if list(agent.tools or []) != own + definitions:
        agent.tools = own + definitions
    agent.valid_tool_names = names | {tool.name for tool in wanted}
    return [tool.name for tool in wanted]


def _tool_name(tool: Any) -> str:
    return str((tool.get("function") or {}).get("name")) if isinstance(tool, dict) else ""


def server_tool_names() -> frozenset[str]:
    """Every tool that this process's agents may have, once Hermes's registry is filled (after the warm-up)."""
    try:
        import model_tools  # noqa: F401 (fills the registry)
        import toolsets
        from tools.registry import registry

        names = set(registry.get_all_tool_names())
        for toolset in toolsets.get_all_toolsets():
            names.update(toolsets.resolve_toolset(toolset))
        return frozenset(names | {"tool_search", "tool_describe", "tool_call"})
    except Exception:
        logger.exception("agui: the agent's tool names cannot be listed")
        return frozenset()


# -- waiting -----------------------------------------------------------------------------------------------------


def _keeper(label: str) -> Callable[[], str]:
    """What a waiting worker does each slice: feed the watchdog, and notice an interrupt (returned as the reason)."""
    from tools.environments.base import touch_activity_if_due
    from tools.interrupt import is_interrupted

    began = time.monotonic()
    state = {"last_touch": began, "start": began}

    def keep() -> str:
        touch_activity_if_due(state, label)
        return "The turn was stopped." if is_interrupted() else ""

    return keep
