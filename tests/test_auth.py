"""Who comes in: bearer keys, the loopback caller, Host and Origin, each as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.auth import (
    LOCAL,
    OWNER,
    bearer_of,
    check_address,
    check_host,
    check_origin,
    host_name,
    invalid_token,
    is_direct,
    is_json,
    is_key,
    local,
    principal_id,
)
from agui_adapter.config import Settings, load
from agui_adapter.errors import AguiError
from agui_adapter.principal import Principal

KEY = "0123456789abcdef-key"
OPEN = load({}, {})
KEYED = load({}, {"AGUI_API_KEY": KEY})
STRICT = load({"require_token": True}, {"AGUI_API_KEY": KEY})
PUBLIC = load({"host": "0.0.0.0"}, {"AGUI_API_KEY": KEY})


def refused(status: int, check: Any, *arguments: Any) -> AguiError:
    with pytest.raises(AguiError) as caught:
        check(*arguments)
    assert caught.value.status == status and caught.value.message.strip()
    assert KEY not in caught.value.message
    return caught.value


def principal_of(authorization: str | None, settings: Settings) -> Principal:
    """As ``Identity`` does with what is neither a named token's, a device's nor an identity provider's."""
    token = bearer_of([] if authorization is None else [authorization])
    if not token:
        return local(settings, direct=True)
    if is_key(token, settings):
        return OWNER
    raise invalid_token("The bearer token is not valid here.")


class TestPrincipal:
    @pytest.mark.parametrize("settings", [KEYED, STRICT, PUBLIC])
    @pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER   {}  ", " Bearer {}"])
    def test_the_operators_key_is_the_owner(self, settings: Settings, form: str) -> None:
        assert principal_of(form.format(KEY), settings) == OWNER
        assert OWNER.trusted

    @pytest.mark.parametrize("settings", [OPEN, KEYED])
    @pytest.mark.parametrize("authorization", [None, ""])
    def test_a_loopback_caller_without_a_token_is_local(self, settings: Settings, authorization: str | None) -> None:
        local = principal_of(authorization, settings)
        assert (local.id, local.trusted, local.scopes) == (LOCAL, False, {"read", "run", "approve"})

    @pytest.mark.parametrize(
        ("section", "scopes"),
        [
            ({"user_scopes": ["read"]}, {"read"}),
            ({"user_scopes": []}, set()),
            ({"user_scopes": ["read", "run", "approve", "admin"]}, {"read", "run", "approve", "admin"}),
            ({"user_scopes": ["read"], "allow_admin_from": ["local"]}, {"read", "run", "approve", "admin"}),
            ({"user_scopes": ["read"], "allow_admin_from": "owner, local"}, {"read", "run", "approve", "admin"}),
            ({"user_scopes": ["read"], "allow_admin_from": ["owner"]}, {"read"}),
        ],
    )
    def test_its_scopes_are_the_operators_choice(self, section: dict[str, Any], scopes: set[str]) -> None:
        assert principal_of(None, load(section, {})).scopes == scopes

    @pytest.mark.parametrize("settings", [STRICT, PUBLIC])
    @pytest.mark.parametrize("authorization", [None, ""])
    def test_elsewhere_a_token_is_needed(self, settings: Settings, authorization: str | None) -> None:
        assert refused(401, principal_of, authorization, settings).code == "token_needed"

    @pytest.mark.parametrize("settings", [OPEN, KEYED, STRICT, PUBLIC])
    @pytest.mark.parametrize(
        "authorization",
        [
            *("Bearer wrong", "Bearer", "Bearer ", " ", "Basic b3duZXI6eA==", f"Token {KEY}", KEY),
            *(f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Bearer {KEY.upper()}", f"Bearer x{KEY}", f"Bearer {KEY} {KEY}"),
            *("Bearer \x00", "Bearer ключ", "Bearer \udcff\udcfe"),  # aiohttp decodes header bytes so
        ],
    )
    def test_a_wrong_token_is_never_the_loopback_caller(self, settings: Settings, authorization: str) -> None:
        assert refused(401, principal_of, authorization, settings).code == "invalid_token"

    def test_without_a_key_no_token_is_right(self) -> None:
        refused(401, principal_of, "Bearer None", OPEN)

    @given(st.text(st.characters(exclude_categories=())))
    def test_any_header_is_a_principal_or_a_401(self, header: str) -> None:
        try:
            assert principal_of(header, KEYED).id in ("owner", "local")
        except AguiError as error:
            assert error.status == 401


LOOPBACK = [
    *("localhost", "localhost:8650", "LOCALHOST:8650", "localhost.", "localhost.:8650"),
    *("127.0.0.1", "127.0.0.1:8650", "127.0.0.1:1", "127.5.5.5"),
    *("[::1]", "[::1]:8650", "[0:0:0:0:0:0:0:1]:8650", "[::ffff:127.0.0.1]:8650"),
]
FOREIGN = [
    *("evil.test", "evil.test:8650", "localhost.evil.test", "127.0.0.1.nip.io", "127-0-0-1.evil.test:8650"),
    *("evil@127.0.0.1", "127.0.0.1@evil.test", "127.0.0.1?.evil.test", "127.0.0.1#evil", "127.0.0.1/evil"),
    *("localhost:8650:evil", "localhost\\@evil.test", "local host", "localhost:abc", "[::1", "::1]", "[::1]evil"),
    *("0177.0.0.1", "2130706433", "127.1", "0x7f.1", "0.0.0.0:8650", "[::]:8650", "notlocalhost", "localhostx"),
    *("10.0.0.5:8650", "[fd00::1]:8650", ".", "..", ":8650", " ", "localhost,evil.test", "[not-an-address]"),
]


class TestHost:
    @pytest.mark.parametrize("settings", [OPEN, KEYED, PUBLIC])
    @pytest.mark.parametrize("host", LOOPBACK)
    def test_loopback_names_are_served(self, host: str, settings: Settings) -> None:
        check_host(host, settings)

    @pytest.mark.parametrize("host", FOREIGN)
    def test_foreign_names_are_not(self, host: str) -> None:
        assert refused(421, check_host, host, OPEN).code == "unknown_host"

    @pytest.mark.parametrize("host", [None, ""])
    def test_no_host_is_no_name(self, host: str | None) -> None:
        refused(421, check_host, host, OPEN)

    @pytest.mark.parametrize(
        ("allowed", "host"),
        [
            ("hermes.example", "hermes.example"),
            ("hermes.example", "Hermes.Example.:443"),
            ("hermes.example:8443", "hermes.example:8443"),
            ("hermes.example:8443", "hermes.example"),
            ("Hermes.Example.", "hermes.example"),
            ("10.0.0.5", "10.0.0.5:8650"),
            ("[fd00::1]", "[fd00::1]:8650"),
            ("[fd00::1]:8650", "[FD00::1]:8650"),
            ("fd00::1", "[fd00:0:0::1]"),
        ],
    )
    def test_the_operator_can_add_names(self, allowed: str, host: str) -> None:
        settings = load({"allowed_hosts": [allowed]}, {})
        check_host(host, settings)
        check_host("localhost:8650", settings)
        for foreign in ("evil.test", "x.hermes.example", "hermes.example.evil.test", "[fd00::2]"):
            refused(421, check_host, foreign, settings)

    @pytest.mark.parametrize("host", ["192.168.1.7:8650", "10.0.0.5", "[fd00::1]:8650", "0.0.0.0:8650"])
    def test_a_public_bind_is_reached_by_address(self, host: str) -> None:
        check_host(host, PUBLIC)

    @pytest.mark.parametrize("host", ["evil.test", "hermes.example", "192.168.1.7.nip.io"])
    def test_a_public_bind_is_not_reached_by_any_name(self, host: str) -> None:
        refused(421, check_host, host, PUBLIC)

    def test_with_allowed_hosts_a_public_bind_takes_only_those(self) -> None:
        settings = load({"host": "::", "allowed_hosts": ["hermes.example"]}, {"AGUI_API_KEY": KEY})
        check_host("hermes.example", settings)
        refused(421, check_host, "192.168.1.7", settings)

    @pytest.mark.parametrize(("bind", "host"), [("fd00::1", "[fd00::1]:8650"), ("Box.Local", "box.local:8650")])
    def test_the_bound_name_is_served(self, bind: str, host: str) -> None:
        check_host(host, load({"host": bind}, {"AGUI_API_KEY": KEY}))

    @given(st.text(st.characters(exclude_categories=())))
    def test_any_header_is_a_name_or_a_421(self, header: str) -> None:
        try:
            check_host(header, OPEN)
        except AguiError as error:
            assert error.status == 421

    @pytest.mark.parametrize(
        ("host", "name"),
        [("A.B.:1", "a.b"), ("[::1]:5", "::1"), ("::1", "::1"), ("x:y", ""), ("1.2.3.4:5", "1.2.3.4"), ("[x]", "")],
    )
    def test_names(self, host: str, name: str) -> None:
        assert host_name(host) == name


class TestOrigin:
    LISTED = load({"cors_origins": ["https://app.example", "http://localhost:3000"]}, {})

    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            (None, "localhost:8650"),  # no browser, or a plain navigation
            ("", "localhost:8650"),
            ("http://localhost:8650", "localhost:8650"),
            ("http://LOCALHOST:8650", "localhost:8650"),
            ("https://hermes.example", "hermes.example"),  # behind a proxy that ends TLS
            ("http://[::1]:8650", "[::1]:8650"),
        ],
    )
    def test_the_same_origin_may(self, origin: str | None, host: str) -> None:
        check_origin(origin, host, OPEN)

    @pytest.mark.parametrize("origin", ["https://app.example", "HTTPS://App.Example", "http://localhost:3000"])
    def test_listed_origins_may(self, origin: str) -> None:
        check_origin(origin, "localhost:8650", self.LISTED)

    @pytest.mark.parametrize(
        "origin",
        [
            *("https://evil.test", "http://app.example", "https://app.example:8443", "https://app.example.evil.test"),
            *(
                "null",
                "file://",
                "http://localhost",
                "http://localhost:8651",
                "http://127.0.0.1:8650",
                "localhost:8650",
            ),
            *("http://[", "http://]", "\x00", "http://localhost:8650@evil.test", "https://app.example/"),
            "http://evil.test#localhost:8650",
        ],
    )
    def test_others_may_not(self, origin: str) -> None:
        assert refused(403, check_origin, origin, "localhost:8650", self.LISTED).code == "unknown_origin"

    @pytest.mark.parametrize("origin", ["null", "file://", "x"])
    def test_no_host_matches_no_origin(self, origin: str) -> None:
        refused(403, check_origin, origin, None, OPEN)
        refused(403, check_origin, origin, "", OPEN)

    @given(st.text(st.characters(exclude_categories=())), st.text())
    def test_any_header_is_let_in_or_a_403(self, origin: str, host: str) -> None:
        try:
            check_origin(origin, host, self.LISTED)
        except AguiError as error:
            assert error.status == 403


class TestDirect:
    """Whether a request comes from a program of this machine, or through a proxy that others reach."""

    @pytest.mark.parametrize("host", ["127.0.0.1:8650", "localhost", "[::1]:1"])
    @pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
    def test_a_plain_request_on_this_machine(self, host: str, peer: str) -> None:
        assert is_direct(host, peer, {"Accept": "*/*"}, old=False)

    @pytest.mark.parametrize(
        ("host", "peer", "headers", "old"),
        [
            ("hermes.example", "127.0.0.1", [], False),
            ("localhost", "10.0.0.2", [], False),
            ("localhost", None, [], False),
            (None, "127.0.0.1", [], False),
            ("localhost", "127.0.0.1", [], True),
            *(
                ("localhost", "127.0.0.1", [name], False)
                for name in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP")
            ),
        ],
    )
    def test_what_a_proxy_brings(self, host: str | None, peer: str | None, headers: list[str], old: bool) -> None:
        assert not is_direct(host, peer, headers, old=old)
        assert refused(401, lambda: local(OPEN, direct=False)).code == "token_needed"


class TestNames:
    def test_plain_names_stay_readable(self) -> None:
        assert principal_id("user", "alice") == "user-alice"
        assert principal_id("jwt", "auth0|64b7").startswith("jwt-auth0-64b7_")

    @given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
    def test_different_names_are_different_principals_and_hermes_can_list_them(self, one: str, two: str) -> None:
        names = {principal_id(kind, name) for kind in ("user", "jwt") for name in {one, two}}
        assert len(names) == 2 * len({one, two})
        for name in names:
            assert name.isascii() and not set(name) & set("@,* ") and name not in ("owner", "local")
            assert len(name) < 80

    def test_a_name_cannot_borrow_another(self) -> None:
        names = ["owner", "local", "owner@evil.test", "a,owner", "*", "device-0", "token-x", "user-x", "_", "a_b", ""]
        assert len({principal_id("user", name) for name in names}) == len(names)
        # Another name cannot be what a name becomes: what is plain has no underscore.
        odd = principal_id("user", "owner@evil.test").removeprefix("user-")
        assert principal_id("user", odd) != f"user-{odd}"


@pytest.mark.parametrize("name", ["token", "access_token", "API_KEY", "key", "Authorization"])
def test_no_token_in_an_address(name: str) -> None:
    assert refused(400, check_address, ["q", name]).code == "token_in_address"
    check_address(["after", "once", "signature", "expires", "limit"])


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        *(
            (one, True)
            for one in ("application/json", "Application/JSON; charset=utf-8", "text/plain, application/json")
        ),
        *(
            (one, False)
            for one in ("", "text/plain", "text/plain; x=application/json", "text/plain; x=, application/json")
        ),
        *((one, False) for one in ("application/jsonp", "application/x-www-form-urlencoded", "multipart/form-data")),
    ],
)
def test_what_a_page_can_send_unasked_is_no_json(content_type: str, json: bool) -> None:
    assert is_json(content_type) is json
