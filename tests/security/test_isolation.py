"""One principal sees nothing of another: keys never meet, and what is another's answers as what does not exist."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from gateway.config import Platform
from gateway.session import SessionSource, build_session_key
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter import tokens
from agui_adapter.adapter import AguiAdapter
from agui_adapter.auth import principal_id
from agui_adapter.devices import principal_of as device_of
from agui_adapter.hermes.profiles import Place
from agui_adapter.principal import SCOPES, Principal
from agui_adapter.requests import APPROVE_ONCE, DENY, Pending
from agui_adapter.session import Thread, chat_id_for, plain_names
from agui_adapter.store import FileRecord
from agui_adapter.stream import MessageChunk, MessageStart, Request, TurnFinished
from tests.scripted import new_adapter, register_platform, serving
from tests.security.test_identity import Provider, section

hostile = st.text(max_size=80) | st.sampled_from(
    [
        "",
        " ",
        ".",
        "..",
        "/",
        ":",
        "a:b",
        "a.b",
        "local.t",
        "_",
        "owner",
        "*",
        "a\0b",
        "%2e%2e",
        "agent:main:telegram:dm:7",
    ]
)
names = hostile | st.sampled_from(["x", "owner", "local", "token-x", "device-0"])
principals = st.one_of(
    st.just("owner"),
    st.just("local"),
    names.map(lambda name: principal_id("user", name)),
    names.map(lambda name: principal_id("jwt", name)),
    st.from_regex(r"[a-z0-9]{1,40}", fullmatch=True).map(tokens.principal_of),
    st.from_regex(r"[a-z0-9]{32,64}", fullmatch=True).map(lambda token: device_of(token) or ""),
)
profiles = st.none() | st.sampled_from(["default", "main", "work", "agui"])


def key(principal: str, thread: str, profile: str | None) -> str:
    register_platform()
    source = SessionSource(
        platform=Platform("agui"), chat_id=chat_id_for(principal, thread), chat_type="dm", user_id=principal
    )
    return str(build_session_key(source, profile=profile))


@given(st.tuples(principals, hostile), st.tuples(principals, hostile), profiles)
def test_two_pairs_never_share_a_key(one: tuple[str, str], other: tuple[str, str], profile: str | None) -> None:
    assert (key(*one, profile) == key(*other, profile)) == (one == other)


ports = st.sampled_from(["", "work", "main", "a-b", "a_b", "local"])


@given(st.tuples(principals, hostile, ports), st.tuples(principals, hostile, ports))
def test_two_profiles_never_share_a_chat(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Hermes finds a session again by its chat alone, whatever the key (find_latest_gateway_session_for_peer)."""
    assert (chat_id_for(*one) == chat_id_for(*other)) == (one == other)
    names = plain_names(chat_id_for(*one), one[2])
    assert names is None or names == one[:2]
    assert one[2] == other[2] or plain_names(chat_id_for(*one), other[2]) is None or not one[2]


@given(principals, hostile, profiles, profiles)
def test_no_key_is_another_platforms_or_profiles(principal: str, thread: str, one: Any, other: Any) -> None:
    made = key(principal, thread, one)
    platform, kind = made.split(":")[-3:-1]
    assert (platform, kind) == ("agui", "dm"), made
    for foreign in (Platform.TELEGRAM, Platform.SLACK, Platform.LOCAL):
        for text in (thread, chat_id_for(principal, thread)):
            source = SessionSource(platform=foreign, chat_id=text or "x", chat_type="dm", user_id=principal)
            assert build_session_key(source, profile=one) != made
    if {one or "default", other or "default"} == {"work", "agui"}:
        assert key(principal, thread, other) != made


@given(principals, principals)
def test_kinds_of_principals_never_meet(one: str, other: str) -> None:
    kinds = [name.partition("-")[0] for name in (one, other)]
    assert kinds[0] in ("owner", "local", "user", "jwt", "token", "device")
    assert one != other or kinds[0] == kinds[1]


class TestProfiles:
    """`gateway.multiplex_profiles`: several gateways in one process, and keys that do not begin with agent:main."""

    def test_the_key_is_the_gateways_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        adapter = new_adapter(AguiAdapter, {}, tmp_path, monkeypatch)
        adapter.gateway_runner._session_key_for_source = lambda source: build_session_key(source, profile="work")
        keys = {adapter.key_of(Thread.of(Principal(name), "t")) for name in ("anna", "bert")}
        assert len(keys) == 2 and all(one.startswith("agent:work:agui:dm:") for one in keys)

    def test_whoever_asks_a_key_is_made_in_the_scope_of_its_adapter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker thread has no profile's scope, and what a turn of another profile calls has that one's."""
        from hermes_cli.profiles import get_active_profile_name
        from hermes_constants import reset_hermes_home_override, set_hermes_home_override

        @contextmanager
        def inside(home: Path) -> Iterator[None]:
            token = set_hermes_home_override(str(home))
            try:
                yield
            finally:
                reset_hermes_home_override(token)

        def own_key(source: Any) -> str:  # as the gateway makes it (gateway/session.py, _resolve_profile_for_key)
            return str(build_session_key(source, profile=source.profile or get_active_profile_name()))

        monkeypatch.setenv("HOME", str(tmp_path))
        homes = {"": tmp_path / ".hermes", "work": tmp_path / ".hermes" / "profiles" / "work"}
        homes["work"].mkdir(parents=True)
        found = {}
        for name, home in homes.items():
            adapter = new_adapter(AguiAdapter, {}, homes[""], monkeypatch)
            adapter.gateway_runner.config = SimpleNamespace(multiplex_profiles=True)
            adapter.gateway_runner._session_key_for_source = own_key
            with inside(home):
                adapter.bridge.place = Place(adapter.gateway_runner)
            assert adapter.bridge.place.profile == name
            thread = Thread.of(Principal("anna"), "t", name)
            keys = {adapter.key_of(thread)}
            for other in homes.values():
                with inside(other):
                    keys.add(adapter.key_of(thread))
            (found[name],) = keys
        assert found == {"": "agent:main:agui:dm:anna.t", "work": "agent:work:agui:dm:work~anna.t"}


# --- routes

LATER = re.compile(r'"(?:at|time|timestamp)":[0-9.]+')
WITHOUT = {"/agui/sessions/{session_id}"}  # the owner's alone, whatever the id: refused before it is looked at


UNLIMITED = {"requests_per_minute": 0, "failures_per_minute": 0}
PROXY = {"proxy_addresses": ["127.0.0.0/8"], "proxy_user_header": "X-Forwarded-User"}


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(params=["token", "jwt", "user"])
async def door(
    request: pytest.FixtureRequest, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Two callers: with named tokens, with JSON Web Tokens, named by a proxy."""
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps(provider.jwks()))
    kinds = {"token": {}, "jwt": section(keys), "user": PROXY}
    extra = UNLIMITED | kinds[request.param] | {"user_scopes": sorted(SCOPES)}
    async with serving(extra, tmp_path, monkeypatch) as (adapter, url), aiohttp.ClientSession() as http:
        heads = {}
        for name in ("anna", "bert"):
            if request.param == "user":
                heads[name] = {"X-Forwarded-User": name}
                continue
            made = provider.token(sub=name) if request.param == "jwt" else ""
            token = made or tokens.create(adapter.archive.store, name, tuple(SCOPES))
            heads[name] = {"Authorization": f"Bearer {token}"}
        yield adapter, url, http, heads


async def talk(door: Any, name: str, thread: str) -> None:
    """A turn of somebody's that waits for an approval, in a thread with a file."""
    adapter, url, http, heads = door

    def park(turn: Any) -> None:
        asked = Request("approval-of-anna", "approval", "?", choices=(APPROVE_ONCE, DENY))
        adapter.requests.park(adapter.requests.open(turn, asked))

    adapter.script = [MessageStart("m1"), MessageChunk("A private answer."), park]
    message = {"id": "u1", "role": "user", "content": "A private question."}
    body = {"threadId": thread, "runId": "r1", "protocolVersion": "1.0", "messages": [message]}
    async with http.post(f"{url}/agui", json=body, headers=heads[name]) as response:
        assert response.status == 200 and "interrupt" in await response.text()
    (mine,) = [one for one in adapter.threads if one.thread_id == thread]
    owner = mine.principal.id
    assert owner.endswith(f"-{name}")
    adapter.archive.store.add_file(FileRecord("a" * 32, owner, mine.chat_id, name="private.txt", expires=2**40))


async def work(door: Any, name: str) -> dict[str, str]:
    """A run and a stored response of somebody's, by their ids."""
    adapter, url, http, heads = door
    adapter.script = [MessageStart("m1"), MessageChunk("A private answer."), TurnFinished()]
    found = {}
    for kind, path in (("run_id", "/v1/runs"), ("response_id", "/v1/responses")):
        async with http.post(url + path, json={"input": "A private question."}, headers=heads[name]) as response:
            assert response.status in (200, 202), await response.text()
            told = await response.json()
            found[kind] = told.get("run_id") or told["id"]
    return found


async def answered(door: Any, name: str, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
    _, url, http, heads = door
    body = {} if method in ("POST", "PATCH") else None
    async with asyncio.timeout(20), http.request(method, url + path, json=body, headers=heads[name]) as response:
        raw = await response.read() if response.status != 200 or "event-stream" not in response.content_type else b""
        kept = {key: value for key, value in response.headers.items() if key not in ("Date", "Content-Length")}
        return response.status, raw, kept


def every(adapter: Any) -> list[tuple[str, str]]:
    """Every route, in the document or not."""
    found = []
    for route in adapter._server._runner.app.router.routes():
        path = route.resource.canonical if route.resource is not None else ""
        methods = ("GET", "POST", "DELETE") if route.method == "*" else (route.method,)
        found += [(method, path) for method in methods if method != "HEAD"]
    assert len(found) >= 60, found
    return found


def routes(adapter: Any) -> list[tuple[str, str]]:
    """Every route that names a thing of somebody's."""
    found = [(method, path) for method, path in every(adapter) if "{" in path and not path.startswith(tuple(WITHOUT))]
    assert len(found) >= 20, found
    return found


HERS = {
    "thread_id": "annas-thread",
    "session_id": "annas-thread",
    "request_id": "approval-of-anna",
    "file_id": "a" * 32,
}
NOBODYS = {
    "thread_id": "no-such-thread",
    "session_id": "no-such-thread",
    "request_id": "approval-of-nobody",
    "file_id": "b" * 32,
    "run_id": "run_" + "0" * 32,
    "response_id": "resp_" + "0" * 32,
}


def filled(path: str, ids: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: ids.get(match[1], "x"), path)


async def test_anothers_answers_as_none_on_every_route(door: Any) -> None:
    adapter = door[0]
    await talk(door, "anna", "annas-thread")
    ids = HERS | await work(door, "anna")
    before = len(list(adapter.threads))
    for method, path in routes(adapter):
        hers = await answered(door, "bert", method, filled(path, ids))
        nobodys = await answered(door, "bert", method, filled(path, NOBODYS))
        assert hers == nobodys, f"{method} {path}"
        assert hers[0] >= 400, f"{method} {path}: {hers}"
        assert b"private" not in hers[1]
    assert len(list(adapter.threads)) == before, "and a look leaves nothing behind"
    turn = next(thread.current for thread in adapter.threads if thread.thread_id == "annas-thread")
    assert turn is not None and [one.id for one in adapter.requests.open_requests(turn)] == ["approval-of-anna"]
    # She herself has all of it.
    assert (await answered(door, "anna", "GET", f"/v1/runs/{ids['run_id']}"))[0] == 200
    assert (await answered(door, "anna", "GET", f"/v1/responses/{ids['response_id']}"))[0] == 200
    assert (await answered(door, "anna", "GET", "/agui/threads/annas-thread"))[0] == 200
    assert (await answered(door, "anna", "GET", "/api/sessions/annas-thread"))[0] == 200


async def test_lists_hold_ones_own(door: Any) -> None:
    await talk(door, "anna", "annas-thread")
    for path in ("/agui/threads", "/agui/threads?q=private", "/api/sessions"):
        status, raw, _ = await answered(door, "bert", "GET", path)
        assert status == 200 and b"annas-thread" not in raw and b"private" not in raw, path
    assert b"annas-thread" in (await answered(door, "anna", "GET", "/agui/threads"))[1]


async def test_a_run_reaches_nobody_elses(door: Any) -> None:
    """The same thread id, run id, message ids and request ids, by another: a conversation of its own."""
    adapter, url, http, heads = door
    await talk(door, "anna", "annas-thread")
    adapter.script = [MessageStart("m2"), MessageChunk("Another answer."), TurnFinished()]
    message = {"id": "u1", "role": "user", "content": "A private question."}
    body = {"threadId": "annas-thread", "runId": "r1", "protocolVersion": "1.0", "messages": [message]}
    resume = [{"interruptId": "approval-of-anna", "status": "resolved", "payload": {"choice": "once"}}]
    async with http.post(f"{url}/agui", json=body | {"resume": resume}, headers=heads["bert"]) as response:
        text = await response.text()
        assert "request_unknown" in text or "private answer" not in text
    (hers_thread,) = [one for one in adapter.threads if one.chat_id.endswith("-anna.annas-thread")]
    hers: Pending = adapter.requests.find(list(hers_thread.turns.values()), "approval-of-anna")
    assert hers.closed is None
    threads = [thread for thread in adapter.threads if thread.thread_id == "annas-thread"]
    assert len({thread.chat_id for thread in threads}) == len(threads)


def test_every_pair_of_kinds_in_one_table() -> None:
    """The ids that the kinds of callers get for the same word."""
    made = ["owner", "local", *(principal_id(kind, "owner") for kind in ("user", "jwt")), tokens.principal_of("owner")]
    made += [
        principal_id(kind, name) for kind, name in itertools.product(("user", "jwt"), ("local", "a@b", "a,b", "a-b"))
    ]
    assert len(set(made)) == len(made)
    assert not [name for name in made if set(name) & set("@,*: ")]


OPEN = {"/", "/index.html", "/health", "/openapi.json", "/docs", "/files/{file_id}", "/files/{file_id}/{name}"}
OPEN |= {"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"}
"""What anybody may ask for; a file only by its signed link."""


@pytest.mark.parametrize("trusts", [False, True], ids=["no proxy", "another proxy"])
async def test_who_is_nobody_gets_in_nowhere(
    trusts: bool, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No credential, tokens that are good for nothing, and a proxy's header from where no proxy of ours is."""
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps(provider.jwks()))
    extra = UNLIMITED | section(keys) | (PROXY | {"proxy_addresses": ["10.0.0.5"]} if trusts else {})
    nobody: dict[str, dict[str, str]] = {
        "none": {},
        "expired": {"Authorization": f"Bearer {provider.token(exp=int(time.time()) - 3600)}"},
        "another audience": {"Authorization": f"Bearer {provider.token(aud='another')}"},
        "another's signature": {"Authorization": f"Bearer {Provider().token()}"},
        "revoked": {"Authorization": f"Bearer {tokens.MARK}{'x' * 43}"},
        "a header": {"X-Forwarded-User": "anna"},
        "a header beside a wrong token": {"X-Forwarded-User": "anna", "Authorization": "Bearer x"},
    }
    extra |= {"require_token": True, "observe": True}
    key = "the-owners-key-0123456789abcdef"
    async with serving(extra, tmp_path, monkeypatch, key=key) as (adapter, url), aiohttp.ClientSession() as http:
        heads = {"anna": {"Authorization": f"Bearer {provider.token(sub='anna', scope=' '.join(_ALL))}"}, **nobody}
        door = (adapter, url, http, heads)
        await talk(door, "anna", "annas-thread")
        ids = HERS | await work(door, "anna")
        looked = 0
        for method, path in every(adapter):
            if path in OPEN or path.startswith("/assets"):
                continue
            looked += 1
            for name in nobody:
                status, raw, _ = await answered(door, name, method, filled(path, ids))
                assert status == 401 and b"private" not in raw, f"{name}: {method} {path}: {status}"
                code = json.loads(raw) if raw else {}
                code = code.get("code") or code.get("error", {}).get("code")
                assert code in ("token_needed", "invalid_token", -32001), (name, method, path, raw)
        assert looked >= 60
        assert (await answered(door, "anna", "GET", "/agui/threads/annas-thread"))[0] == 200


_ALL = [f"agui:{scope}" for scope in sorted(SCOPES)]
