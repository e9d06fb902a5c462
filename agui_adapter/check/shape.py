"""Is each event the shape that the protocol describes? Walks the pydantic models of `ag_ui.core`, strictly.

Pydantic's own validation is too kind for this: it coerces, takes null for absent and keeps unknown fields. What is
stripped, what is dropped and what is fatal follows the 1.0.0 client. Knows nothing of order.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ag_ui.core import Event as AnyEvent
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from agui_adapter.check.findings import Peer, Report

_Problem = Callable[[str, str, str], None]  # rule, path, message
_Node = Callable[[Any, str, _Problem], Any]  # value, path, problem → the cleaned value, _BAD or _DROP
_GOOD = object()
_BAD = object()  # malformed: fatal for the client
_DROP = object()  # an unknown member of a union: removed with a warning

# Nulls that the client turns into absent fields, with a warning, until 2027-09; rawEvent on every event.
_CONVERTED_NULLS = {
    ("RunFinishedEvent", "result"),
    ("RunFinishedEvent", "outcome"),
    ("SubagentFinishedEvent", "result"),
    ("ToolCallStartEvent", "parentMessageId"),
    ("ToolCallChunkEvent", "parentMessageId"),
    ("ImagePart", "metadata"),
    ("AudioPart", "metadata"),
    ("VideoPart", "metadata"),
    ("DocumentPart", "metadata"),
    ("RunAgentInput", "forwardedProps"),
    ("Tool", "parameters"),
    ("ResumeEntry", "payload"),
}
# Optional by name, but any JSON by meaning: null is a value.
_NULL_IS_A_VALUE = {("RunAgentInput", "state")}
# A malformed or unknown value below such a field of an event is reported under the field's own rule.
_TOPICS = {
    ("STATE_DELTA", "delta"): "json-patch",
    ("ACTIVITY_DELTA", "patch"): "json-patch",
    ("RUN_FINISHED", "outcome"): "outcome",
    ("SUBAGENT_FINISHED", "outcome"): "outcome",
    ("RUN_FINISHED", "usage"): "usage",
    ("RUN_ERROR", "usage"): "usage",
    ("ACTIVITY_SNAPSHOT", "content"): "activity-content",
}


def check_shape(event: dict[str, Any], report: Report, peer: Peer) -> dict[str, Any] | None:
    """The event with everything removed that a client strips, or None when later stages cannot use it."""
    kind = event.get("type")
    if not isinstance(kind, str) or not kind:
        report.add("no-type", f"`type` is {kind!r}, it must be a string that is not empty")
        return None
    if kind.startswith("THINKING_"):
        report.add("removed-event", f"{kind} left the protocol in 1.0; send the REASONING_* events")
        return None
    model = _events().get(kind)
    if model is None:
        report.add("unknown-event", f"{kind} is not an event of the protocol", "error" if peer == "0.0.59" else None)
        return None

    def problem(rule: str, path: str, message: str) -> None:
        pieces = path.split("/")
        topic = _TOPICS.get((kind, pieces[0]))
        if topic and rule in ("missing-field", "wrong-type", "unknown-member"):
            rule = topic
        # 0.0.59 has no stripping stage: unknown members fail there, and so do unknown fields of an outcome.
        strict = peer == "0.0.59" and (rule == "unknown-member" or (topic == "outcome" and len(pieces) == 2))
        report.add(rule, f"{kind} {path}: {message}", "error" if strict else None)

    cleaned, verdict = _fields(model, event, "", problem)
    if peer == "0.0.59":
        _older_peer(kind, event, report)
    return cleaned if verdict is _GOOD else None


@cache
def _events() -> dict[str, type[BaseModel]]:
    models: tuple[type[BaseModel], ...] = get_args(get_args(AnyEvent)[0])
    return {str(model.model_fields["type"].default.value): model for model in models}


def _fields(
    model: type[BaseModel], value: dict[str, Any], path: str, problem: _Problem
) -> tuple[dict[str, Any], object]:
    """The known fields of `value`, cleaned; and _GOOD, _BAD or _DROP, which only the required ones decide."""
    plan, is_open = _plan(model)
    cleaned: dict[str, Any] = {}
    verdict = _GOOD
    for key, child in value.items():
        at = f"{path}/{key}" if path else key
        if key not in plan:
            if is_open:
                cleaned[key] = child
            else:
                camel = to_camel(key)
                hint = f"; the wire name is {camel}" if camel in plan else ""
                problem("unknown-field", at, f"not a field of the protocol{hint}")
            continue
        node, required = plan[key]
        if child is None and not required and (model.__name__, key) not in _NULL_IS_A_VALUE:
            converted = (model.__name__, key) in _CONVERTED_NULLS or (path == "" and key == "rawEvent")
            problem("null-converted" if converted else "null", at, "null; leave the field out")
            continue
        result = node(child, at, problem)
        if result is _DROP:
            if required:
                return cleaned, _DROP  # the caller reports what is dropped with it
            problem("unknown-member", at, "an unknown kind of value")
        elif result is _BAD:
            verdict = _BAD if required else verdict
        else:
            cleaned[key] = result
    for key, (_, required) in plan.items():
        if required and key not in value:
            problem("missing-field", f"{path}/{key}" if path else key, "required, but absent")
            verdict = _BAD
    return cleaned, verdict


@cache
def _plan(model: type[BaseModel]) -> tuple[dict[str, tuple[_Node, bool]], bool]:
    """Wire name → (how to walk it, whether it is required); and whether other members are legal (RFC 6902 operations).

    A field with a default other than None is a constant (`role`, `type`) that Python fills in, so the wire needs it.
    """
    plan = {
        info.alias or name: (
            _node(info.annotation, [*info.metadata, info]),
            info.is_required() or info.default is not None,
        )
        for name, info in model.model_fields.items()
    }
    return plan, model.__name__.endswith("Operation")


def _node(annotation: Any, extras: list[Any]) -> _Node:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _node(args[0], list(args[1:]))
    if origin in (Union, types.UnionType):
        members = [member for member in args if member is not type(None)]
        discriminator = next((extra.discriminator for extra in extras if getattr(extra, "discriminator", None)), None)
        if discriminator:
            return _tagged(discriminator, members)
        return _node(members[0], extras) if len(members) == 1 else _either([_node(each, []) for each in members])
    if origin is list:
        return _list(_node(args[0], []), _limit(extras, "min_length"))
    if origin is dict:
        return _leaf(lambda value: isinstance(value, dict), "an object")
    if origin is Literal:
        allowed = [str(getattr(each, "value", each)) for each in args]
        return _leaf(lambda value: value in allowed, " or ".join(allowed))
    if annotation is Any:
        return lambda value, path, problem: value
    if annotation is bool:
        return _leaf(lambda value: isinstance(value, bool), "true or false")
    if annotation is int:
        low, high = _limit(extras, "ge"), _limit(extras, "le")
        return _leaf(lambda value: _is_integer(value, low, high), "an integer" + (" of 0 or more" if low == 0 else ""))
    if annotation is str:
        pattern = _limit(extras, "pattern")
        if pattern:
            matcher = re.compile(pattern.removesuffix("$") + r"\Z")
            return _leaf(lambda value: isinstance(value, str) and matcher.match(value) is not None, "a JSON pointer")
        return _leaf(lambda value: isinstance(value, str), "a string")
    return _object(annotation)


def _limit(extras: list[Any], name: str) -> Any:
    return next((getattr(extra, name) for extra in extras if getattr(extra, name, None) is not None), None)


def _is_integer(value: object, low: int | None, high: int | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or value in (1e999, -1e999):
        return False
    return value == int(value) and (low is None or value >= low) and (high is None or value <= high)


def _leaf(accepts: Callable[[Any], bool], wanted: str) -> _Node:
    def walk(value: Any, path: str, problem: _Problem) -> Any:
        if isinstance(value, (dict, list)) and wanted not in ("an object",):
            problem("wrong-type", path, f"must be {wanted}, not {'an object' if isinstance(value, dict) else 'a list'}")
            return _BAD
        if not accepts(value):
            problem("wrong-type", path, f"must be {wanted}, not {_short(value)}")
            return _BAD
        return value

    return walk


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _list(element: _Node, least: int | None) -> _Node:
    def walk(value: Any, path: str, problem: _Problem) -> Any:
        if not isinstance(value, list) or (least and len(value) < least):
            problem("wrong-type", path, f"must be a list{' that is not empty' if least else ''}, not {_short(value)}")
            return _BAD
        result = []
        bad = False
        for number, each in enumerate(value):
            cleaned = element(each, f"{path}/{number}", problem)
            if cleaned is _DROP:
                problem("unknown-member", f"{path}/{number}", f"an unknown kind, dropped: {_short(each)}")
            elif cleaned is _BAD:
                bad = True
            else:
                result.append(cleaned)
        return _BAD if bad else result

    return walk


def _object(model: type[BaseModel]) -> _Node:
    def walk(value: Any, path: str, problem: _Problem) -> Any:
        if not isinstance(value, dict):
            problem("wrong-type", path, f"must be an object, not {_short(value)}")
            return _BAD
        problems: list[tuple[str, str, str]] = []
        cleaned, verdict = _fields(model, value, path, lambda *each: problems.append(each))
        if verdict is _DROP:
            return _DROP  # what was wrong inside goes with it
        for each in problems:
            problem(*each)
        return cleaned if verdict is _GOOD else _BAD

    return walk


def _tagged(discriminator: str, members: list[Any]) -> _Node:
    known = {}
    for member in members:
        default = member.model_fields[discriminator].default
        known[default] = _object(member)

    def walk(value: Any, path: str, problem: _Problem) -> Any:
        if not isinstance(value, dict):
            problem("wrong-type", path, f"must be an object, not {_short(value)}")
            return _BAD
        tag = value.get(discriminator)
        if tag == "binary" and "image" in known:
            problem("removed-part", path, "the binary part left the protocol; send image, audio, video or document")
            return _BAD
        node = known.get(tag) if isinstance(tag, str) else None
        return _DROP if node is None else node(value, path, problem)

    return walk


def _either(nodes: list[_Node]) -> _Node:
    """A union without a tag: string or list of parts."""

    def walk(value: Any, path: str, problem: _Problem) -> Any:
        if isinstance(value, (str, list)):
            return nodes[0 if isinstance(value, str) else 1](value, path, problem)
        problem("wrong-type", path, f"must be a string or a list of parts, not {_short(value)}")
        return _BAD

    return walk


def _older_peer(kind: str, event: dict[str, Any], report: Report) -> None:
    """What 0.0.59 rejects although 1.0 has it."""
    outcome = event.get("outcome")
    if kind == "RUN_FINISHED" and isinstance(outcome, dict):
        if outcome.get("type") == "cancelled":
            report.add("peer-cancelled", "0.0.59 rejects the outcome `cancelled`; leave it out or send RUN_ERROR")
        if "pendingToolCallIds" in outcome:
            report.add("peer-pending", "0.0.59 rejects outcome.pendingToolCallIds; leave it out")
    asked = event.get("input")
    if kind == "RUN_STARTED" and isinstance(asked, dict):
        if not isinstance(asked.get("tools"), list) or not isinstance(asked.get("context"), list):
            report.add("peer-input", "0.0.59 needs tools and context in RUN_STARTED.input; send [] or no input")
        event = asked
    if kind == "TOOL_CALL_RESULT":
        _older_content("tool", event.get("content"), report)
    messages = event.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict):
            _older_content(message.get("role"), message.get("content"), report)


def _older_content(role: object, content: object, report: Report) -> None:
    if not isinstance(content, list):
        return
    if role == "tool":
        report.add("peer-parts", "0.0.59 takes a tool result as a string only; join the text parts")
    for part in content:
        source = part.get("source") if isinstance(part, dict) else None
        if isinstance(source, dict) and source.get("type") == "file":
            report.add("peer-file-source", "0.0.59 rejects the source type `file`; leave the part out")
