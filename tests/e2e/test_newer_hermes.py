"""What a Hermes newer than 0.19 has of its own: it tells when a question is over, and approvals may go another way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, idle, interrupt, open_requests, requests_of, resume, tool_messages, victim
from tests.e2e.dialect import approval_transports, clarify, retires_cards
from tests.e2e.helpers import Chat, GatedModel, script, unique, wait_until, write_plugin

Make = Callable[..., Gateway]

# The plugin watches the agent that the gateway has in its cache for the session. With a cache that gives none back it
# watches nothing, and questions come by the gateway's own callback.
UNWATCHED = """
from collections import OrderedDict


class Forgetful(OrderedDict):
    def get(self, key, default=None):
        return default


def forget(**_):
    from gateway.run import _gateway_runner_ref

    _gateway_runner_ref()._agent_cache = Forgetful()


def register(ctx):
    ctx.register_hook("pre_gateway_dispatch", forget)
"""


def unwatched(make_gateway: Make, seconds: int) -> Gateway:
    """A gateway that waits so long for the answer to a question of its own."""
    plugins = {"plugins": {"enabled": ["unwatched", "agui"]}}
    gateway = make_gateway(config=plugins | {"agent": {"clarify_timeout": seconds}}, start=False)
    write_plugin(gateway.home, "unwatched", UNWATCHED)
    gateway.start()
    return gateway


@pytest.mark.compat
def test_a_question_of_an_agent_that_is_not_watched(make_gateway: Make, model: GatedModel) -> None:
    chat, one = Chat(unwatched(make_gateway, 600)), unique("c")
    run = chat.say(script({"tools": [clarify("Which one?", ["red", "blue"], one)]}, {"text": "Thanks."}))
    assert not run.calls()  # it is indeed not watched; what it sends is all there is
    assert resume(chat, (interrupt(run)["id"], {"answer": "blue"})).succeeded().text() == "Thanks."
    assert "blue" in tool_messages(requests_of(model, one)[-1])[one]


@pytest.mark.compat
def test_a_question_that_hermes_waits_for_no_longer_is_closed(make_gateway: Make, model: GatedModel) -> None:
    """The card is retired (`retire_clarify_card`) while the turn still runs, not with its end."""
    if not retires_cards():
        pytest.skip("this Hermes tells nobody that a question is over")
    chat, one, gate = Chat(unwatched(make_gateway, 3)), unique("c"), unique("g")
    run = chat.say(script({"tools": [clarify("Which one?", None, one)]}, {"text": f"I go on. {{gate:{gate}}} Done."}))
    asked = interrupt(run)
    assert not run.calls()  # it is indeed not watched
    assert [request["id"] for request in open_requests(chat)] == [asked["id"]]
    wait_until(lambda: model.reached(gate), "the turn goes on without an answer")
    wait_until(lambda: not open_requests(chat), "the question is closed", 15)
    model.open_gate(gate)
    idle(chat)
    late = resume(chat, (asked["id"], {"answer": "late"}))
    (custom,) = [event for event in late.of("CUSTOM") if event["name"] == "hermes.request_expired"]
    assert custom["value"]["id"] == asked["id"]
    assert "late" not in tool_messages(requests_of(model, one)[-1])[one]


# Answers by the word in the command; what it does not know it cannot deliver.
TRANSPORT = """
def present(request):
    for word, choice in (("allowed", "once"), ("refused", "deny")):
        if word in request.command:
            return request.respond(choice)
    raise RuntimeError("nobody is there")


def register(ctx):
    ctx.register_approval_transport("phone", present)
"""


@pytest.mark.compat
def test_approvals_that_the_operator_has_sent_another_way(make_gateway: Make, model: GatedModel) -> None:
    """A transport that the operator has chosen is asked in our place; what it cannot carry comes back to us."""
    if not approval_transports():
        pytest.skip("this Hermes has no transports for approvals")
    chosen = {"approval": {"transport": "phone", "transport_fallback": "builtin"}}
    gateway = make_gateway(config={"plugins": {"enabled": ["phone", "agui"]}, "security": chosen}, start=False)
    write_plugin(gateway.home, "phone", TRANSPORT)
    gateway.start()
    for word, left in (("allowed", False), ("refused", True)):
        chat, one = Chat(gateway), unique("c")
        folder = gateway.work_dir / unique(word)
        folder.mkdir()
        assert chat.say(deletes(folder, call_id=one)).succeeded().texts()[-1] == "The end."
        assert folder.exists() is left
        assert ("BLOCKED" in tool_messages(requests_of(model, one)[-1])[one]) is left
    chat, folder = Chat(gateway), victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    assert str(folder) in asked["metadata"]["hermes"]["command"]
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert not folder.exists()
