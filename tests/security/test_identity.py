"""Who comes in: each kind of caller at a real port, and what is refused of each."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from agui_adapter import cli, tokens
from agui_adapter.config import ConfigError, load
from agui_adapter.devices import TOKEN_CHARS, Waiting
from agui_adapter.devices import principal_of as device_of
from agui_adapter.errors import AguiError
from agui_adapter.files import Owner
from agui_adapter.identity import Identity
from agui_adapter.jwt_tokens import JwtTokens, Keys
from agui_adapter.store import Store, store_path
from tests.scripted import PATIENCE, ScriptedAdapter, serving

KEY = "the-owners-key-0123456789abcdef"
DEVICE = "d" * 16 + "0123456789abcdef"
Opened = tuple[ScriptedAdapter, str, aiohttp.ClientSession]


@pytest.fixture
def open_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @asynccontextmanager
    async def door(**extra: Any) -> AsyncIterator[Opened]:
        async with serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, url), aiohttp.ClientSession() as http:
            yield adapter, url, http

    return door


async def who(door: Opened, token: str | None = None, **headers: str) -> str:
    """The principal that a request is taken for, or the code of its refusal."""
    adapter, url, http = door
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = {
        "threadId": "t",
        "runId": f"r{time.monotonic_ns()}",
        "messages": [{"id": "u", "role": "user", "content": "x"}],
    }
    adapter.submitted = []
    async with http.post(f"{url}/agui", json=body, headers=headers) as response:
        text = await response.text()
        assert (token or "\0") not in text and "Traceback" not in text
        if response.status != 200:
            return str(json.loads(text)["code"])
    thread = next(one for one in adapter.threads if one.thread_id == "t" and one.current is None and one.turns)
    adapter.threads.drop(thread)
    return thread.principal.id


class TestKinds:
    async def test_the_operator_and_this_machine(self, open_door: Callable[..., Any]) -> None:
        async with open_door(device_pairing="off") as door:
            assert await who(door, KEY) == "owner"
            assert await who(door) == "local"
            for wrong in (KEY[:-1], f"{KEY}x", KEY.upper(), "x", DEVICE, "a.b.c", "agui_x"):
                assert await who(door, wrong) == "invalid_token", wrong

    async def test_two_authorization_headers_are_refused(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (_, url, http):
            headers = [("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer other")]
            async with http.get(f"{url}/agui/threads", headers=headers) as response:
                assert response.status == 401

    @pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
    async def test_what_comes_through_a_proxy_is_not_this_machine(
        self, open_door: Callable[..., Any], name: str
    ) -> None:
        async with open_door(allowed_hosts=["hermes.example"]) as door:
            assert await who(door, **{name: "10.1.1.1"}) == "token_needed"
            assert await who(door, Host="hermes.example") == "token_needed"
            assert await who(door, DEVICE, **{name: "10.1.1.1"}) == "invalid_token", "nor may strangers pair there"
            assert await who(door, KEY, **{name: "10.1.1.1"}) == "owner"

    async def test_nginx_without_any_header_speaks_http_1_0(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (adapter, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", adapter._server.port)
            writer.write(b"GET /agui/threads HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"token_needed" in await reader.read()
            writer.close()


class TestNamedTokens:
    def made(self, adapter: ScriptedAdapter, name: str, *scopes: Any) -> str:
        return tokens.create(adapter.archive.store, name, scopes)

    async def test_a_token_has_its_scopes_and_ends_at_once(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as door:
            adapter, url, http = door
            phone, reader = self.made(adapter, "phone", "read", "run"), self.made(adapter, "reader", "read")
            assert await who(door, phone) == "token-phone"
            assert await who(door, reader) == "scope_missing"
            async with http.get(f"{url}/agui/threads", headers={"Authorization": f"Bearer {reader}"}) as response:
                assert response.status == 200
            other = Store(store_path(Path(adapter.archive.store._path.parent)))  # as the command line does
            other.open()
            assert other.remove_token("phone") and not other.remove_token("phone")
            other.close()
            assert await who(door, phone) == "invalid_token", "and no device either"

    async def test_one_that_is_made_again_is_the_same_caller(self, open_door: Callable[..., Any]) -> None:
        """With its threads, and nobody else's."""
        async with open_door() as (adapter, url, http):
            message = {"id": "u1", "role": "user", "content": "Hello"}
            body = {"threadId": "mine", "runId": "r1", "protocolVersion": "1.0", "messages": [message]}
            old = {"Authorization": f"Bearer {self.made(adapter, 'phone', 'read', 'run')}"}
            async with http.post(f"{url}/agui", json=body, headers=old) as response:
                assert response.status == 200 and await response.read()
            assert adapter.archive.store.remove_token("phone")
            new = {"Authorization": f"Bearer {self.made(adapter, 'phone', 'read')}"}
            other = {"Authorization": f"Bearer {self.made(adapter, 'tablet', 'read')}"}
            for headers, status in ((old, 401), (new, 200), (other, 404)):
                async with http.get(f"{url}/agui/threads/mine", headers=headers) as response:
                    assert response.status == status

    async def test_tokens_and_file_links_end_with_the_store(
        self, open_door: Callable[..., Any], tmp_path: Path
    ) -> None:
        (tmp_path / "a.txt").write_text("hello")
        async with open_door() as door:
            adapter, url, http = door
            phone = self.made(adapter, "phone", "read", "run")
            assert await who(door, phone) == "token-phone"
            sent = adapter.files.send(Owner("token-phone", "token-phone.t"), str(tmp_path / "a.txt"), message_id="m")
            link = adapter.files.link(sent).partition("/files/")[2]
            async with http.get(f"{url}/files/{link}") as response:
                assert response.status == 200
        await asyncio.to_thread(lambda: [path.unlink() for path in tmp_path.glob("agui.db*")])
        async with open_door() as door:
            _, url, http = door
            assert await who(door, phone) == "invalid_token"
            async with http.get(f"{url}/files/{link}") as response:
                assert response.status == 404

    async def test_it_is_kept_as_a_digest(self, open_door: Callable[..., Any], tmp_path: Path) -> None:
        async with open_door() as (adapter, _, _):
            token = self.made(adapter, "phone", "read")
        kept = await asyncio.to_thread(lambda: b"".join(path.read_bytes() for path in tmp_path.rglob("agui.db*")))
        assert b"phone" in kept and token.encode() not in kept and token[5:].encode() not in kept
        assert store_path(tmp_path).stat().st_mode & 0o077 == 0

    def test_names(self, tmp_path: Path) -> None:
        store = Store(store_path(tmp_path))
        store.open()
        tokens.create(store, "phone", ["read"])
        for name in ("phone", "", "Phone", "-x", "x-", "a b", "a" * 41, "a,b", "a@b", "ä"):
            with pytest.raises(ValueError, match=r"name|token"):
                tokens.create(store, name, ["read"])
        assert [(one.name, one.scopes) for one in store.tokens()] == [("phone", ("read",))]

    def test_on_the_command_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import gateway.pairing

        monkeypatch.setenv("HERMES_HOME", str(tmp_path))
        monkeypatch.setattr(gateway.pairing, "PAIRING_DIR", tmp_path / "pairing")
        assert cli.main(["token", "create", "phone", "--scope", "read", "--scope", "run"]) == 0
        token = capsys.readouterr().out.strip()
        assert token.startswith(tokens.MARK) and len(token) > 40
        pairing = gateway.pairing.PairingStore()
        assert pairing.is_approved("agui", "token-phone")
        assert cli.main(["token", "create", "phone"]) == 1
        assert cli.main(["token", "list"]) == 0
        listed = capsys.readouterr().out
        assert "phone" in listed and "read,run" in listed and token not in listed
        assert cli.main(["token", "revoke", "phone"]) == 0 and cli.main(["token", "revoke", "phone"]) == 1
        assert not pairing.is_approved("agui", "token-phone")
        assert token not in "".join(capsys.readouterr())


class TestDevices:
    async def test_any_long_token_is_a_device_of_its_own(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as door:
            first, second = await who(door, DEVICE), await who(door, DEVICE[::-1])
            assert first != second and first == await who(door, DEVICE)
            assert first.startswith("device-") and DEVICE not in first
            assert await who(door, DEVICE[:-1]) == "invalid_token", "too short to be the only secret"
            assert await who(door, "x" * 513) == "invalid_token"

    def test_it_is_off_beyond_this_machine(self) -> None:
        environ = {"AGUI_API_KEY": KEY}
        for section, pairs in (
            ({}, True),
            ({"device_pairing": False}, False),
            ({"host": "0.0.0.0"}, False),
            ({"host": "0.0.0.0", "device_pairing": "on"}, True),
        ):
            assert Identity(load(section, environ), lambda: None)._pairs(direct=True) is pairs

    async def test_unknown_ones_cannot_fill_hermess_table(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as door:
            adapter = door[0]
            door[0].limits._failures._size = 0  # how often strangers may come is another test's
            pending: list[dict[str, str]] = []
            allowed = {"local"}
            adapter.gateway_runner._is_user_authorized = lambda source: source.user_id in allowed
            adapter.gateway_runner._pairing_store_for = lambda source: SimpleNamespace(
                list_pending=lambda name: pending
            )
            devices = [f"{number}" * TOKEN_CHARS for number in range(5)]
            known = [device_of(token) for token in devices]
            assert [await who(door, token) for token in devices[:2]] == known[:2]
            for token in devices[2:] * 2:
                assert await who(door, token) == "too_many_devices"
            assert await who(door, devices[0]) == known[0], "who waits may ask again"
            assert await who(door) == "local"
            allowed.add(str(known[0]))
            assert await who(door, devices[0]) == known[0]
            assert await who(door, devices[2]) == known[2], "a place is free when one was let in"

    async def test_making_up_new_ones_is_no_way_around_limits(self, open_door: Callable[..., Any]) -> None:
        async with open_door(failures_per_minute=3) as (adapter, url, http):
            adapter.gateway_runner._is_user_authorized = lambda source: source.user_id == "local"
            statuses = []
            for number in range(5):
                headers = {"Authorization": f"Bearer {number}" + "x" * TOKEN_CHARS}
                async with http.get(f"{url}/agui/threads", headers=headers) as response:
                    statuses.append(response.status)
            assert statuses == [200, 200, 200, 429, 429]

    def test_codes_of_an_earlier_process_count(self) -> None:
        now = [1000.0]
        waiting = Waiting(lambda: now[0])
        pending = ["device-a", "device-b", "local"]
        waiting.admit("device-a", pending)
        with pytest.raises(AguiError) as caught:
            waiting.admit("device-c", pending)
        assert caught.value.status == 429 and (caught.value.retry_after or 0) >= 60
        now[0] += 3601
        waiting.admit("device-c", [])


class TestProxies:
    SECTION: ClassVar[dict[str, Any]] = {"proxy_addresses": ["127.0.0.0/8"], "proxy_user_header": "X-Forwarded-User"}

    async def test_it_names_the_user(self, open_door: Callable[..., Any]) -> None:
        async with open_door(**self.SECTION) as door:
            user = {"X-Forwarded-User": "alice"}
            assert await who(door, **user) == "user-alice"
            assert await who(door, **user, Authorization="Basic YTpi") == "user-alice"
            assert await who(door, "what-the-proxy-passes-on", **user) == "user-alice"
            assert await who(door, KEY, **user) == "owner"
            assert (await who(door, **{"X-Forwarded-User": "owner@evil.test"})).startswith("user-owner-evil-test_")
            assert await who(door, **{"X-Forwarded-User": "x" * 257}) == "invalid_user"
            assert await who(door) == "token_needed", "who is not named is nobody, least of all this machine"
            assert await who(door, DEVICE) == "invalid_token"

    async def test_two_names_are_none(self, open_door: Callable[..., Any]) -> None:
        async with open_door(**self.SECTION) as (_, url, http):
            headers = [("X-Forwarded-User", "alice"), ("X-Forwarded-User", "owner")]
            async with http.get(f"{url}/agui/threads", headers=headers) as response:
                assert (response.status, (await response.json(content_type=None))["code"]) == (401, "invalid_user")

    async def test_from_anywhere_else_the_header_is_nothing(self, open_door: Callable[..., Any]) -> None:
        section = {**self.SECTION, "proxy_addresses": ["10.0.0.5"]}
        async with open_door(**section) as door:
            assert await who(door, **{"X-Forwarded-User": "alice"}) == "local"
        async with open_door() as door:
            assert await who(door, **{"X-Forwarded-User": "alice"}) == "local"


ISSUER, AUDIENCE = "https://id.example/", "hermes"


class Provider:
    """An identity provider: its keys, and tokens that it signs."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(65537, 2048)}
        self.fetched = 0

    def jwks(self, **more: Any) -> dict[str, Any]:
        listed = []
        for kid, key in self.keys.items():
            algorithm = (
                jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
            )
            listed.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more})
        return {"keys": listed}

    def token(self, kid: str = "one", algorithm: str = "RS256", key: Any = None, **claims: Any) -> str:
        now = int(time.time())
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600, **claims}
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode(body, self.keys[kid] if key is None else key, algorithm, headers={"kid": kid})


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def section(path: Path) -> dict[str, Any]:
    return {"jwt_keys": str(path), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


class TestJsonWebTokens:
    async def taken_for(self, provider: Provider, tmp_path: Path, token: str, **jwks: Any) -> Any:
        path = tmp_path / "jwks.json"
        path.write_text(json.dumps(provider.jwks(**jwks)))
        return await JwtTokens(load(section(path), {})).principal(token)

    async def test_at_the_port(self, provider: Provider, open_door: Callable[..., Any], tmp_path: Path) -> None:
        (tmp_path / "jwks.json").write_text(json.dumps(provider.jwks()))
        async with open_door(**section(tmp_path / "jwks.json")) as door:
            assert await who(door, provider.token()) == "jwt-alice"
            assert await who(door, provider.token(exp=int(time.time()) - 3600)) == "invalid_token", "and no device"
            assert await who(door, "a" * 20 + "." + "b" * 20 + "." + "c" * 20) == "invalid_token"
            assert await who(door, KEY) == "owner" and await who(door) == "local"

    @pytest.mark.parametrize(
        ("claims", "scopes"),
        [
            ({}, {"read", "run", "approve"}),
            ({"scope": "openid agui:read agui:admin"}, {"read", "admin"}),
            ({"scp": ["agui:run"]}, {"run"}),
            ({"scope": "admin openid"}, {"read", "run", "approve"}),
            ({"scope": "agui:everything"}, set()),
        ],
    )
    async def test_scopes(self, provider: Provider, tmp_path: Path, claims: dict[str, Any], scopes: set[str]) -> None:
        principal = await self.taken_for(provider, tmp_path, provider.token(**claims))
        assert (principal.id, principal.scopes, principal.trusted) == ("jwt-alice", scopes, False)

    @pytest.mark.parametrize(
        ("claims", "word"),
        [
            ({"exp": 1}, "expired"),
            ({"exp": None}, "lacks a claim"),
            ({"nbf": 9_999_999_999}, "not valid yet"),
            ({"aud": "another"}, "another audience"),
            ({"aud": None}, "lacks a claim"),
            ({"iss": "https://id.example"}, "another issuer"),
            ({"iss": None}, "lacks a claim"),
            ({"sub": None}, "lacks a claim"),
            ({"sub": " "}, "who it is for"),
        ],
    )
    async def test_wrong_claims(self, provider: Provider, tmp_path: Path, claims: dict[str, Any], word: str) -> None:
        with pytest.raises(AguiError, match=word) as caught:
            await self.taken_for(provider, tmp_path, provider.token(**claims))
        assert (caught.value.status, caught.value.code) == (401, "invalid_token")

    async def test_clocks_may_differ_a_little(self, provider: Provider, tmp_path: Path) -> None:
        late = provider.token(exp=int(time.time()) - 10)
        assert (await self.taken_for(provider, tmp_path, late)).id == "jwt-alice"

    async def test_other_signatures(self, provider: Provider, tmp_path: Path) -> None:
        stranger = rsa.generate_private_key(65537, 2048)
        everybody_knows = provider.jwks()["keys"][0]["n"]
        unsigned = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').decode().rstrip("=")
        head, body, _ = provider.token().split(".")
        for token in (
            provider.token(key=stranger),
            provider.token(algorithm="HS256", key=everybody_knows),
            f"{unsigned}.{body}.",
            f"{head}.{body}.",
            provider.token(algorithm="ES256", key=ec.generate_private_key(ec.SECP256R1())),
            "x" * 20_000,
            "..",
        ):
            with pytest.raises(AguiError) as caught:
                await self.taken_for(provider, tmp_path, token)
            assert caught.value.code == "invalid_token"

    async def test_a_key_is_good_for_its_own_algorithm_only(self, provider: Provider, tmp_path: Path) -> None:
        token = provider.token(algorithm="PS256")
        assert (await self.taken_for(provider, tmp_path, token)).id == "jwt-alice"
        with pytest.raises(AguiError):
            await self.taken_for(provider, tmp_path, token, alg="RS256")
        with pytest.raises(AguiError):
            await self.taken_for(provider, tmp_path, token, use="enc")

    async def test_keys_rotate_and_are_not_fetched_for_every_stranger(self) -> None:
        provider, now = Provider(), [0.0]

        async def listed(request: web.Request) -> web.Response:
            provider.fetched += 1
            return web.json_response(provider.jwks())

        app = web.Application()
        app.router.add_get("/jwks", listed)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
            settings = load({"jwt_keys": url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}, {})
            checker = JwtTokens(settings, Keys(url, lambda: now[0]))
            await asyncio.gather(*(checker.principal(provider.token()) for _ in range(5)))
            assert provider.fetched == 1
            provider.keys["two"] = ec.generate_private_key(ec.SECP256R1())
            fresh = provider.token("two", "ES256")
            with pytest.raises(AguiError, match="does not list"):
                await checker.principal(fresh)
            now[0] += 61
            assert (await checker.principal(fresh)).id == "jwt-alice"
            for _ in range(20):
                with pytest.raises(AguiError):
                    await checker.principal(_unknown(provider))
            assert provider.fetched == 2
            old = provider.token()
            del provider.keys["one"]
            now[0] += 901
            with pytest.raises(AguiError, match="does not list"):
                await checker.principal(old)
        finally:
            await runner.cleanup()

    async def test_without_keys_nobody_can_be_told(self, tmp_path: Path, provider: Provider) -> None:
        for text in (None, "no json", '{"keys": 1}', "[]", '{"keys": []}'):
            path = tmp_path / "keys.json"
            if text is not None:
                path.write_text(text)
            with pytest.raises(AguiError) as caught:
                await JwtTokens(load(section(path), {})).principal(provider.token())
            assert (caught.value.status, caught.value.code) == (503, "keys_unavailable")
            assert str(tmp_path) not in caught.value.message


def _unknown(provider: Provider) -> str:
    return jwt.encode({"sub": "x"}, provider.keys["one"], "RS256", headers={"kid": "made-up"})


class TestTls:
    @pytest.fixture
    def pair(self, tmp_path: Path) -> dict[str, str]:
        import subprocess

        cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(cert)]
        subprocess.run([*command, *names], check=True, capture_output=True)
        return {"tls_cert": str(cert), "tls_key": str(key)}

    async def test_the_port_speaks_tls_1_2_and_later(self, open_door: Callable[..., Any], pair: dict[str, str]) -> None:
        async with open_door(**pair) as (adapter, url, http):
            trust = ssl.create_default_context(cafile=pair["tls_cert"])
            async with http.get(f"{url.replace('http', 'https')}/health", ssl=trust) as response:
                assert response.status == 200
            old = ssl.create_default_context(cafile=pair["tls_cert"])
            with warnings.catch_warnings(action="ignore"):
                old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            for address, context in ((url.replace("http", "https"), old), (url, True)):
                async with aiohttp.ClientSession() as other:
                    with pytest.raises(aiohttp.ClientError):
                        await other.get(f"{address}/health", ssl=context)
            assert adapter.files.base.startswith("https://127.0.0.1:")

    @pytest.mark.parametrize("broken", ["tls_cert", "tls_key"])
    def test_wrong_files_are_named_at_start(self, pair: dict[str, str], tmp_path: Path, broken: str) -> None:
        from agui_adapter.tls import tls_context

        with pytest.raises(ConfigError, match=broken):
            tls_context(load({**pair, broken: str(tmp_path / "missing.pem")}, {}))
        (tmp_path / "bad.pem").write_text("not a certificate")
        with pytest.raises(ConfigError, match="not a PEM certificate"):
            tls_context(load({**pair, broken: str(tmp_path / "bad.pem")}, {}))


class TestAfterFailures:
    """Wrong tokens from one address, which may be a proxy's: whoever is good comes in, and guessing gets nowhere."""

    async def fail(self, door: Opened, path: str = "/health") -> None:
        """Until nobody is looked up."""
        adapter, url, http = door
        wrong = [f"{number}" + "x" * TOKEN_CHARS for number in range(2)] + [f"{tokens.MARK}{'y' * 40}", "a.b.c"]
        for token in wrong * 3:
            async with http.get(url + path, headers={"Authorization": f"Bearer {token}"}) as response:
                assert response.status in (200, 401, 429)
        assert adapter.limits.wary("127.0.0.1", "Bearer unknown") is not None

    async def test_all_who_are_good_come_in_for_the_first_time(
        self, provider: Provider, open_door: Callable[..., Any], tmp_path: Path
    ) -> None:
        (tmp_path / "jwks.json").write_text(json.dumps(provider.jwks()))
        async with open_door(failures_per_minute=3, **section(tmp_path / "jwks.json")) as door:
            adapter = door[0]
            let_in = {"local", "jwt-alice", "token-phone", device_of(DEVICE)}
            adapter.gateway_runner._is_user_authorized = lambda source: source.user_id in let_in
            phone = tokens.create(adapter.archive.store, "phone", ["run"])
            await self.fail(door, "/agui/threads")
            assert await who(door) == "local"
            assert await who(door, provider.token()) == "jwt-alice"
            assert await who(door, phone) == "token-phone"
            assert await who(door, DEVICE) == device_of(DEVICE)
            assert len(KEY) < 32 and await who(door, KEY) == "too_many_failures", "it might be guessed"
            for wrong in (DEVICE[::-1], tokens.MARK + "z" * 43, "short", KEY[:-1] + "x"):
                assert await who(door, wrong) == "too_many_failures", wrong
            expired = provider.token(exp=int(time.time()) - 3600)
            for forged in (expired, provider.token(key=rsa.generate_private_key(65537, 2048)), provider.token()[:-9]):
                assert await who(door, forged) == "invalid_token"

    async def test_a_long_key_of_the_operators_comes_in(
        self, open_door: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(globals(), "KEY", KEY * 2)
        async with open_door(failures_per_minute=3, device_pairing="off") as door:
            await self.fail(door)
            assert await who(door, KEY) == "owner"
            assert await who(door, KEY[:-1]) == "too_many_failures"

    async def test_users_of_a_proxy_come_in(self, open_door: Callable[..., Any]) -> None:
        """All of them have its address, and some send wrong tokens beside their name."""
        async with open_door(failures_per_minute=3, **TestProxies.SECTION) as door:
            await self.fail(door)
            user = {"X-Forwarded-User": "alice"}
            assert await who(door, **user) == "user-alice"
            assert await who(door, "what-the-proxy-passes-on", **user) == "user-alice"
            assert await who(door, tokens.MARK + "x" * 43, **user) == "user-alice"

    async def test_those_who_bring_no_token_shut_nobody_out(self, open_door: Callable[..., Any]) -> None:
        async with open_door(failures_per_minute=3, require_token=True) as door:
            _, url, http = door
            for _ in range(10):
                async with http.get(f"{url}/agui/threads") as response:
                    assert response.status == 401
            assert await who(door, KEY) == "owner"

    async def test_a_token_that_ended_is_looked_up_no_more(self, open_door: Callable[..., Any]) -> None:
        async with open_door(failures_per_minute=3, device_pairing="off") as door:
            adapter = door[0]
            phone = tokens.create(adapter.archive.store, "phone", ["run"])
            assert await who(door, phone) == "token-phone"
            await self.fail(door)
            assert await who(door, phone) == "token-phone"
            assert adapter.archive.store.remove_token("phone")
            assert await who(door, phone) == "invalid_token"
            async with asyncio.timeout(PATIENCE):
                while await who(door, phone) != "too_many_failures":  # the list of tokens is a second old at most
                    pass
