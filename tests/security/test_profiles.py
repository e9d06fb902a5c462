"""`gateway.multiplex_profiles` at a real gateway: several profiles in one process, and no way from one to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway, free_port
from agui_adapter.session import chat_id_for
from tests.e2e.asking import deletes, interrupt, resume, victim
from tests.e2e.helpers import Chat, GatedModel, Lenient, query, script, wait_until

pytestmark = pytest.mark.e2e

OWN, WORKS, THEIRS = "the-owners-key-0123456789", "the-key-of-work-0123456789", "the-key-of-lab-0123456789"
ROUTED, SENT_AWAY = chat_id_for("local", "routed"), chat_id_for("local", "sent-away", "work")


def profile(gateway: Gateway, name: str, env: dict[str, str], **agui: Any) -> SimpleNamespace:
    """A further profile with a port of its own; what a chat needs of it."""
    home, port = gateway.home / "profiles" / name, free_port()
    home.mkdir(parents=True)
    config = gateway.config() | {"gateway": {}}
    config["agui"] = config["agui"] | {"port": port} | agui
    (home / "config.yaml").write_text(json.dumps(config))
    (home / ".env").write_text("".join(f"{key}={value}\n" for key, value in env.items()))
    return SimpleNamespace(url=f"http://127.0.0.1:{port}", home=gateway.home, port=port)


@pytest.fixture(scope="module")
def ports(model: GatedModel) -> Iterator[dict[str, Any]]:
    """The gateway's own profile; work, with a port of its own; and lab, which gets one chat of the first port.

    Two more may not be served: open would stand open to the network, and taken has both a port and a route.
    """
    routes = [
        {"name": "a chat", "platform": "agui", "chat_id": ROUTED, "profile": "lab"},
        {"name": "another", "platform": "agui", "chat_id": "local.taken", "profile": "taken"},
        {"name": "of another port", "platform": "agui", "chat_id": SENT_AWAY, "profile": "lab"},
    ]
    gateway = Lenient(
        model,
        config={"gateway": {"multiplex_profiles": True, "profile_routes": routes}},
        env={"AGUI_API_KEY": OWN},
        verbose=True,
    )
    work = profile(gateway, "work", {"AGUI_API_KEY": WORKS, "AGUI_ALLOWED_USERS": "local"}, observe=True)
    profile(gateway, "lab", {}, enabled=False)
    profile(gateway, "open", {"AGUI_API_KEY": THEIRS, "AGUI_ALLOW_ALL_USERS": "true"}, host="0.0.0.0")
    profile(gateway, "taken", {"AGUI_ALLOWED_USERS": "local"})
    with gateway:
        wait_until(lambda: answers(work.url), "the other profile's port is open")
        yield {"own": gateway, "work": work, "gateway": gateway}


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def get(port: Any, path: str, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{port.url}{path}", headers=headers, trust_env=False, timeout=30)


def keys(gateway: Gateway, chat_id: str) -> set[str]:
    return {row[0] for row in query(gateway, "SELECT session_key FROM sessions WHERE chat_id = ?", chat_id)}


def test_the_same_caller_and_thread_of_two_profiles_are_two_conversations(
    ports: dict[str, Any], model: GatedModel
) -> None:
    own, work = ports["own"], ports["work"]
    for key_here, key_there in ((None, None), (OWN, WORKS)):
        thread = f"same-{key_here}"
        here, there = Chat(own, thread=thread, key=key_here), Chat(work, thread=thread, key=key_there)
        here.say(script({"text": "The word is plover."}, say="our private plover")).succeeded()
        # Before it has said anything itself, the other port knows nothing of it.
        assert get(work, f"/agui/threads/{thread}", key_there).status_code == 404
        for path in ("/agui/threads", "/agui/threads?q=plover", "/api/sessions"):
            assert "plover" not in get(work, path, key_there).text and thread not in get(work, path, key_there).text
        asked = len(model.requests)
        there.say(script({"text": "Nothing here."}, say="theirs alone")).succeeded()
        told = [one for request in model.requests[asked:] for one in request["messages"] if one["role"] != "system"]
        assert not [one for one in told if "plover" in json.dumps(one)], "nor is the model told of it"
        shown = get(work, f"/agui/threads/{thread}", key_there).text
        assert "Nothing here." in shown and "plover" not in shown
        listed = get(work, "/agui/threads", key_there).text
        assert thread in listed and "plover" not in listed
        assert "plover" not in get(work, "/agui/threads?q=plover", key_there).text
        shown = get(own, f"/agui/threads/{thread}", key_here).text
        assert "plover" in shown and "Nothing here." not in shown
        for of, space in (("", "main"), ("work", "work")):
            chat_id = chat_id_for(here.principal, thread, of)
            assert keys(ports["gateway"], chat_id) == {f"agent:{space}:agui:dm:{chat_id}"}
        # What one deletes is the other's no less.
        headers = {"Authorization": f"Bearer {key_there}"} if key_there else {}
        gone = httpx.delete(f"{work.url}/agui/threads/{thread}", headers=headers, trust_env=False, timeout=30)
        assert gone.status_code in (200, 204), gone.text
        assert "plover" in get(own, f"/agui/threads/{thread}", key_here).text
        assert here.say(script({"text": "Still here."})).succeeded().text() == "Still here."


def test_a_profiles_key_opens_its_own_port_only(ports: dict[str, Any]) -> None:
    for port, good, bad in (("own", OWN, WORKS), ("work", WORKS, OWN)):
        assert get(ports[port], "/health/detailed", good).status_code == 200
        refused = get(ports[port], "/agui/threads", bad)
        assert refused.status_code == 401 or get(ports[port], "/health/detailed", bad).status_code == 403


def test_no_profile_but_the_gateways_own_sees_the_whole_gateway(ports: dict[str, Any]) -> None:
    assert get(ports["work"], "/agui/sessions", WORKS).status_code == 404, "although its config.yaml says agui.observe"


def test_a_chat_that_is_routed_to_a_profile_is_that_profiles(ports: dict[str, Any]) -> None:
    chat, folder = Chat(ports["own"], thread="routed"), victim(ports["gateway"])
    assert chat.say(script({"text": "In the lab."})).succeeded().text() == "In the lab."
    assert keys(ports["gateway"], ROUTED) == {f"agent:lab:agui:dm:{ROUTED}"}
    assert "In the lab." in get(ports["own"], "/agui/threads/routed").text
    asked = interrupt(chat.say(deletes(folder)))
    assert not resume(chat, (asked["id"], {"choice": "deny"})).of("RUN_ERROR") and folder.exists()


def test_no_route_takes_a_chat_from_another_profiles_port(ports: dict[str, Any]) -> None:
    chat = Chat(ports["work"], thread="sent-away")
    assert chat.say(script({"text": "At work."})).succeeded().text() == "At work."
    assert keys(ports["gateway"], SENT_AWAY) == {f"agent:work:agui:dm:{SENT_AWAY}"}


def test_each_port_asks_its_own_callers(ports: dict[str, Any]) -> None:
    """Of two turns at once in threads of the same name, each is asked, answered and ended by itself."""
    chats = [Chat(ports[port], thread="asking") for port in ("own", "work")]
    folders = [victim(ports["gateway"]) for _ in chats]
    asked = [interrupt(chat.say(deletes(folder))) for chat, folder in zip(chats, folders, strict=True)]
    other = f"/agui/threads/asking/requests/{asked[0]['id']}"
    refused = httpx.post(f"{ports['work'].url}{other}", json={"choice": "once"}, trust_env=False, timeout=30)
    assert refused.status_code == 404 and all(folder.exists() for folder in folders)
    for chat, one, choice in zip(chats, asked, ("deny", "once"), strict=True):
        assert not resume(chat, (one["id"], {"choice": choice})).of("RUN_ERROR")
    assert [folder.exists() for folder in folders] == [True, False]


def test_ports_that_would_mix_or_expose_profiles_stay_closed(ports: dict[str, Any]) -> None:
    log = ports["gateway"].log_text()
    assert "AGUI_ALLOW_ALL_USERS=true" in log, "the profile's own .env counts"
    assert "profile_routes" in log
    for name in ("open", "taken"):
        config = json.loads(Path(ports["gateway"].home, "profiles", name, "config.yaml").read_text())
        assert not answers(f"http://127.0.0.1:{config['agui']['port']}"), name
