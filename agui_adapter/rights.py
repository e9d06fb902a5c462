"""What a principal's scopes let it do in text and with requests. The gateway's own rules hold beside these.

Pure: who may use a command, and who may give an answer. `auth.py` says who is calling.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .errors import AguiError
from .principal import Principal, Scope

if TYPE_CHECKING:
    from .hermes.commands import Command
    from .requests import Answer
    from .stream import Request

_REFUSALS = frozenset({"deny", "cancel"})

COMMAND_REFUSED = "command_not_allowed"

_OWNERS = frozenset({"yolo"})  # turns approvals off
_APPROVALS = frozenset({"approve", "deny"})
_NAMES = frozenset({"title", "new", "branch"})  # take a name; Hermes says of which session of anybody's it is already
_SPENDS = ("usage", "reset")  # `/usage reset` uses up a credit of the operator's account


def check_command(
    command: Command, principal: Principal, user_commands: Collection[str], *, allowed: bool = False
) -> None:
    """Raises AguiError 403 where the principal may not use the command, or what it leads to.

    ``user_commands``: the names that everybody may use (``agui.user_commands``). ``allowed``: an operator's alias among
    them leads here; it may lead to any command but those that are the owner's or an approver's alone.
    """
    if command.name in _OWNERS and not principal.trusted:
        raise _refused(f"/{command.typed} is the owner's alone: it needs the key in AGUI_API_KEY.")
    if command.name in _APPROVALS and not principal.may("approve"):
        raise _refused(f"/{command.typed} needs a token with the scope `approve`.")
    listed = allowed or command.name in _APPROVALS or _listed(command, user_commands)
    if not listed and not principal.may("admin"):
        if _gives_name(command):
            raise _refused(
                f"/{command.typed} with a name needs a token with the scope `admin`: no two sessions, anybody's, "
                "may share one. A thread of yours is renamed without it: PATCH /agui/threads/{id}."
            )
        raise _refused(
            f"/{command.typed} is a command, and needs a token with the scope `admin`. Without the slash it is a "
            "message; the operator can let everybody use it (agui.user_commands)."
        )
    if command.alias_of is not None:
        check_command(command.alias_of, principal, user_commands, allowed=listed)
    if command.hands_on is not None:
        check_command(command.hands_on, principal, user_commands)


def _listed(command: Command, user_commands: Collection[str]) -> bool:
    if (command.name, command.arguments.partition(" ")[0].lower()) == _SPENDS:
        return False
    if _gives_name(command):
        return False
    return any(name.replace("_", "-") in user_commands for name in (command.name, command.typed))


def _gives_name(command: Command) -> bool:
    return command.name in _NAMES and bool(command.arguments)


def check_answer(request: Request, answer: Answer, principal: Principal) -> None:
    """Raises AguiError 403 where the principal may not give this answer; nothing is done then.

    An approval needs ``approve``, and ``admin`` where it is for always: that is the operator's configuration. To refuse
    is no more than to stop the turn, so ``run`` is enough for it, as it is to answer what the agent asks.
    """
    approval = request.kind in ("approval", "confirm")
    needed: list[Scope] = ["run"]
    if approval and answer.choice in _REFUSALS and principal.may("approve"):
        needed = []
    elif approval and answer.choice not in _REFUSALS:
        needed = ["approve", "admin"] if answer.choice == "always" else ["approve"]
    for scope in needed:
        if not principal.may(scope):
            message = f"This answer needs a token with the scope `{scope}`. The request stays open."
            raise AguiError(403, "scope_missing", message)


def _refused(message: str) -> AguiError:
    return AguiError(403, COMMAND_REFUSED, message)
