"""What of a streamed text must wait because it may hold a secret: a key must not be told before it is known for one.

Pure. What is a secret, and what is shown in its place, is Hermes's redactor's to say; here it is only known that
something may be one. The rest of such a line waits for its end; a private key, for the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# What Hermes 0.19 takes for the beginning of a credential (agent/redact.py, _PREFIX_PATTERNS and the patterns below
# them); a test compares this list with Hermes's own.
PREFIXES = (
    *("sk-", "ghp_", "github_pat_", "gho_", "ghu_", "ghs_", "ghr_", "xapp-", "xox", "AIza", "pplx-", "fal_", "fc-"),
    *("bb_live_", "gAAAA", "AKIA", "sk_live_", "sk_test_", "rk_live_", "SG.", "hf_", "r8_", "npm_", "pypi-", "dop_v1_"),
    *("doo_v1_", "am_", "sk_", "tvly-", "exa_", "gsk_", "syt_", "retaindb_", "hsk-", "mem0_", "brv_", "xai-", "ntn_"),
    *("fw-", "fw_", "fpk_", "eyJ"),
)
_NAMES = ("key", "token", "secret", "passwd", "password", "pwd", "credential", "auth")
_ALONE = r"(?<![A-Za-z0-9_-])"
# Bounded, as digits are by what stands before them: a long run of such letters must not be read anew from each of them.
_SCHEME = r"[a-z][a-z0-9+.-]{0,40}"
_ANY = "|".join(re.escape(one) for one in sorted(PREFIXES, key=len, reverse=True))
_BEGUN = frozenset(one[:count] for one in PREFIXES for count in range(1, len(one) + 1))
_SURE = re.compile(
    rf"{_ALONE}(?:{_ANY})[A-Za-z0-9_.-]{{8,}}"
    rf"|(?i:(?:{'|'.join(_NAMES)})[a-z0-9_.-]{{0,40}}[\"']?\s{{0,4}}[:=])"
    rf"|(?i:authorization\s*:)|\+[1-9]\d{{6,}}|{_SCHEME}://[^\s/@]*@|(?<!\d)\d{{8,}}:[A-Za-z0-9_-]{{10,}}|-----BEGIN"
)
_MAYBE = re.compile(
    rf"(?:{_ALONE}(?:{_ANY})[A-Za-z0-9_.-]{{0,7}}|\+[1-9]?\d{{0,6}}|-{{1,5}}(?:B(?:E(?:GI?)?)?)?"
    r"|[a-z][a-z0-9+.-]*:/{0,2}|[a-z][a-z0-9+.-]*://[^\s/@]*|\d{8,}:[A-Za-z0-9_-]{0,9})\Z"
)
_SIGNS = re.compile(r"[-_:=+]|eyJ|AIza|AKIA|gAAAA|xox|SG")  # without one of these, and nothing held, there is no secret
_PLAIN = frozenset("-_:=+JASx").isdisjoint  # no letter that each of these signs has one of: a third of the time
_NEAR = 64  # characters before a delta with which it may become one
_WORD = re.compile(r"[A-Za-z0-9_-]*\Z")
_BOT = re.compile(r"\d{8}:")
_CONTEXT = 200  # characters of the line that are looked at (up to twice as many are kept)


class SecretsHold:
    """One message's text as it streams. ``redact`` is asked for each line that waited, with what stands before it."""

    __slots__ = ("_found", "_line", "_redact", "held")

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._line = ""  # the end of what was shown of the line that goes on
        self._found = ""  # what is held and surely has to wait: "" nothing, "line" for its end, "text" for all of it
        self.held = ""

    def feed(self, delta: str) -> str:
        """What may be shown now: mostly the delta itself. The hot path."""
        if not self.held and (_PLAIN(delta) or not _SIGNS.search(delta)):
            _, blank, word = delta.rpartition(" ")  # a word that begins here and is no credential's beginning
            if blank and (not word or (word.isalnum() and word not in _BEGUN)):
                line = self._line + delta
                if "\n" in delta or len(line) > 2 * _CONTEXT:  # rarely: cutting costs more than adding
                    line = line.rpartition("\n")[2][-_CONTEXT:]
                self._line = line
                return delta
        if not self.held:
            line = self._line + delta
            if not (_SIGNS.search(delta) and (delta[-1] == "-" or _suspicious(line[-len(delta) - _NEAR :]))):
                last = _WORD.search(line, max(0, len(line) - 16))
                if last is None or last[0] not in _BEGUN:
                    self._line = line.rpartition("\n")[2][-_CONTEXT:] if "\n" in delta else line[-_CONTEXT:]
                    return delta
        text, self.held, shown = self.held + delta, "", []
        while text:
            if not self._found:
                open_text, text = self._split(text)
                shown.append(open_text)
                if not self._found:
                    self.held = text
                    break
            line, newline, after = text.partition("\n")
            if self._found == "text" or not newline:
                self.held = text
                break
            shown.append(f"{self._whole(line)}\n")
            self._line, self._found, text = "", "", after
        return "".join(shown)

    def _split(self, text: str) -> tuple[str, str]:
        """What may be shown of a text, and what has to wait for more of it."""
        line = self._line[-_NEAR:]
        context = line + text
        sure = _SURE.search(context)
        if sure is not None:
            self._found = "text" if sure[0] == "-----BEGIN" else "line"
            cut = sure.start()
        else:
            tail = _MAYBE.search(context, max(0, len(context) - 2 * _CONTEXT))
            word = _WORD.search(context, max(0, len(context) - 16))
            cut = tail.start() if tail is not None else len(context)
            if word is not None and word[0] in _BEGUN:
                cut = min(cut, word.start())
        cut = max(0, cut - len(line))
        self._line = (self._line + text[:cut]).rpartition("\n")[2][-_CONTEXT:]
        return text[:cut], text[cut:]

    def rest(self) -> str:
        """What may be shown as the text ends."""
        text, self.held, self._found = self.held, "", ""
        return self._whole(text) if text else ""

    def drop(self) -> None:
        """The whole text is known: what was held comes with it."""
        self.held = self._found = ""

    def _whole(self, more: str) -> str:
        """What follows of a line whose beginning was shown."""
        told = self._redact(self._line + more)
        if told.startswith(self._line):
            return told[len(self._line) :]
        # A part of the secret was shown. What was shown twice is put right when the whole text is known.
        return told


def _suspicious(near: str) -> bool:
    """Whether a text is worth a closer look: plain searches, which cost a tenth of it."""
    if "://" in near or "+" in near or "---" in near or any(prefix in near for prefix in PREFIXES):
        return True
    if ":" not in near and "=" not in near:
        return False
    lower = near.lower()
    return any(name in lower for name in _NAMES) or _BOT.search(near) is not None
