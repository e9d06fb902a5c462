"""Cycle: what is known about a turn while the gateway processes it, and how its end is judged.

Hermes reports no verdict: SUCCESS only means that something was delivered (base.py), so success, failure, cancel and
refusal are inferred from which hooks came and what was sent. Pure but for the tap that it feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .session import Turn
from .stream import Outcome
from .tap import Secrets, Tap

Verdict = tuple[Outcome, str, str]


class Cycle:
    """One processing cycle of the gateway."""

    def __init__(
        self,
        turn: Turn,
        *,
        max_result_chars: int,
        shown: Callable[[str], str] = lambda text: text,
        secrets: Secrets | None = None,
        blind: bool = False,
    ) -> None:
        self.turn = turn
        self.blind = blind  # the gateway answers by a road that no hook sees: what it sends is all there is
        self.tap = Tap(turn, max_result_chars=max_result_chars, shown=shown, secrets=secrets)
        self.session_key = ""
        self.event_id: str | None = turn.message_id
        self.authorized = True
        self.submitted = False  # its message was handed to the gateway, whose task is still to come
        self.started = False  # the gateway's task for it runs
        self.command = False
        self.cancelled = False
        self.crashed = False
        self._answers: list[tuple[int, str]] = []  # each with the agent turn that it came behind
        self._held: list[str] = []
        self._late: list[str] = []  # notices since the provider's newest error

    @property
    def idle(self) -> bool:
        """Nothing runs for it: it only holds an open question (a slash confirmation, a ``/background`` approval)."""
        return not self.started and not self.submitted

    def said(self, content: str, reply_to: str | None, notify: bool) -> None:
        """Sort one ``send`` of this cycle: the answer, or something beside it (table in tests/test_cycle.py)."""
        kind = classify(content, reply_to, notify, event_id=self.event_id, unsolicited=self.turn.unsolicited)
        if kind == "answer":
            self._answers.append((self.tap.agent_turns, content))
            if self.tap.agent_turns and not self.tap.open_turns:
                self.tap.answer(content)
        elif self.tap.agent_turns:
            self._flush_held()
            if self.tap.has_said(content):
                return  # the answer before a further turn comes without the mark (run.py, queued follow-up)
            if self.tap.failure is None:
                self.tap.notice("notice", content)
            else:
                self._late.append(content)  # it may be the failure's own message, which Hermes sends twice
        else:
            # Before an agent turn it may be a notice ("No home channel is set") or all there is to say (a pairing
            # code): what comes next decides.
            self._held.append(content)

    def _flush_held(self) -> None:
        held, self._held = self._held, []
        for content in held:
            self.tap.notice("notice", content)

    def verdict(self) -> Verdict:
        """How the turn ended: outcome, and code and message of a failure."""
        tap = self.tap
        if self.cancelled or (tap.agent_turns and not tap.open_turns and tap.interrupted):
            return "cancelled", "", ""
        if self.blind and not self.crashed and self._seen_answer():
            return "success", "", ""
        if tap.agent_turns:
            if tap.open_turns == 0 and (tap.completed or tap.failure is None):
                if tap.spoke or tap.attached or self._answers:
                    return "success", "", ""
                return "failed", "incomplete", "The agent ended without an answer. Send the message again."
            newest = [content.strip() for count, content in self._answers if count == tap.agent_turns]
            said = newest[-1] if newest else ""
            if tap.failure is not None:
                return "failed", tap.failure.code, said or tap.failure.message
            return "failed", "incomplete", said or "The agent stopped before it had an answer."
        answers = [content for _, content in self._answers]
        said = "\n\n".join(part.strip() for part in (*self._held, *answers) if part.strip())
        if self.crashed:
            return "failed", "gateway_error", said or "The gateway could not process the message."
        if tap.spoke or (tap.attached and not said):  # by Hermes's own stream events, or by a file alone
            return "success", "", ""
        if not self.authorized and not said:
            return (
                "failed",
                "not_authorized",
                "This caller is not allowed to use the agent. Ask the operator to approve the pairing code that was "
                "shown first (hermes pairing list), or to add it to AGUI_ALLOWED_USERS.",
            )
        if said and (self.command or not self.authorized):
            return "success", "", ""
        if said:
            return "failed", "refused", said
        return "failed", "no_answer", "The gateway took the message but gave no answer. Send it again."

    def _seen_answer(self) -> str:
        """The answer of a turn that cannot be tapped; Hermes marks what is none with a warning sign."""
        answers = [content for _, content in self._answers if not content.lstrip().startswith("⚠️")]
        return answers[-1] if answers and self.authorized else ""

    def close(self, outcome: Outcome, kept: Sequence[str] = ()) -> None:
        """Write what remains before the log ends: a command's reply or a pairing code is the answer.

        ``kept``: what the history has of a failed turn's text.
        """
        if self.blind and outcome == "success" and self._seen_answer():
            for content in self._held:
                self.tap.notice("notice", content)
            self._held = []
            self.tap.answer(self._seen_answer())
        elif self.tap.agent_turns:
            self._flush_held()
            answers = [content.strip() for _, content in self._answers]
            for content in self._late:
                if outcome != "failed" or content.strip() not in answers:
                    self.tap.notice("notice", content)
            if outcome == "failed":
                self.tap.drop_uncommitted(kept)
        elif outcome == "success":
            # What Hermes's own stream events brought already is not said twice.
            say = self.tap.answer if self.tap.spoke else self.tap.reply
            if self.tap.spoke:
                self._flush_held()
            for content in (*self._held, *(content for _, content in self._answers)):
                say(content)
        self.tap.stop()


def classify(content: str, reply_to: str | None, notify: bool, *, event_id: str | None, unsolicited: bool) -> str:
    """``answer`` or ``notice`` for one ``send`` (Hermes 0.19: _send_with_retry, _mark_notify_metadata).

    The answer is marked ``notify`` and replies to the message that the cycle began with; a turn that the gateway began
    has no such message. ``/stop``'s own reply is marked too but replies to the ``/stop`` message.
    """
    if not notify:
        return "notice"
    if reply_to == event_id or (unsolicited and reply_to is None):
        return "answer"
    return "notice"
