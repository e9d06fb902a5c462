"""Settings: every error names the key and what is allowed, and no door is left open by accident."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agui_adapter.config import HERMES_KEYS, ConfigError, Settings, is_loopback, load

EXAMPLE = Path(__file__).resolve().parent.parent / "config.example.yaml"
KEY = "k" * 16
NAMES = Settings.model_fields.keys() - {"api_key", "admins"}


def refusal(extra: dict[str, Any], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(extra, environ or {})
    return str(caught.value)


class TestExample:
    TEXT = EXAMPLE.read_text()

    def test_it_lists_every_setting_with_its_default(self) -> None:
        section = yaml.safe_load(self.TEXT)["agui"]
        assert section.pop("enabled") is True
        assert section.keys() == NAMES
        assert load(section, {}) == load({}, {})

    def test_every_setting_is_explained(self) -> None:
        lines = self.TEXT.splitlines()
        for number, line in enumerate(lines):
            if match := re.match(r"  (\w+):", line):
                assert lines[number - 1].startswith("  # "), f"{match[1]} has no comment above it"
                assert lines[number - 1].endswith("."), f"the comment of {match[1]} is not a sentence"

    @pytest.mark.parametrize("name", sorted(NAMES))
    def test_units_are_told(self, name: str) -> None:
        comment = self.TEXT.split(f"\n  {name}:")[0].rsplit("\n\n", 1)[1].lower()
        for suffix, unit in {
            "_seconds": "seconds",
            "_bytes": "bytes",
            "_ms": "milliseconds",
            "_chars": "characters",
        }.items():
            if name.endswith(suffix):
                assert unit in comment


class TestValues:
    def test_nothing_is_needed(self) -> None:
        settings = load({}, {})
        assert (settings.host, settings.port, settings.busy) == ("127.0.0.1", 8650, "reject")
        assert settings.api_key is None

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError):
            load({}, {}).port = 1  # type: ignore[misc]

    def test_what_hermes_adds_is_tolerated(self) -> None:
        assert load(dict.fromkeys(HERMES_KEYS - {"allow_admin_from"}, "x"), {}) == load({}, {})

    def test_numbers_from_environment_references_are_texts(self) -> None:
        """Hermes replaces ${PORT} in config.yaml by a text."""
        assert load({"port": "8651"}, {}).port == 8651

    def test_yaml_reads_a_bare_off_as_false(self) -> None:
        settings = load(yaml.safe_load("tool_output: off\nreasoning: off"), {})
        assert (settings.tool_output, settings.reasoning) == ("off", "off")

    def test_origins_and_hosts_are_normalised(self) -> None:
        settings = load({"cors_origins": ["HTTPS://App.Example/"], "allowed_hosts": "Hermes.Example:8443"}, {})
        assert settings.cors_origins == ("https://app.example",)
        assert settings.allowed_hosts == ("hermes.example:8443",)


class TestRefusals:
    @pytest.mark.parametrize(
        ("key", "value", "allowed"),
        [
            ("port", 65536, "from 0 (any free port) to 65535"),
            ("port", "http", "a whole number"),
            ("port", True, "a whole number"),
            ("port", None, "a whole number"),
            ("port", 1.5, "a whole number"),
            ("host", "", "an IP address"),
            ("host", "http://127.0.0.1", "an IP address"),
            ("busy", "drop", "reject, queue, steer or interrupt"),
            ("shorter_list", "edit", "rewind, append or refuse"),
            ("workers", 9, "from 10 to 1000"),
            ("heartbeat_seconds", 0, "seconds from 0.05 to 300"),
            ("heartbeat_seconds", float("nan"), "seconds"),
            ("tool_output", "some", "full, names or off"),
            ("max_body_bytes", -1, "bytes"),
            ("warmup", "perhaps", "true or false"),
            ("cors_origins", ["*"], "a list of origins"),
            ("cors_origins", ["app.example"], "a list of origins"),
            ("cors_origins", ["https://app.example/path"], "a list of origins"),
            ("cors_origins", [1], "a list of origins"),
            ("allowed_hosts", ["https://hermes.example"], "a list of host names"),
            ("user_scopes", ["root"], "out of read, run, approve and admin"),
            ("user_scopes", "everything", "out of read, run, approve and admin"),
            ("user_commands", ["/usage reset"], "a list of slash commands"),
            ("user_commands", [""], "a list of slash commands"),
            ("device_pairing", "some", "auto, on (true) or off (false)"),
            ("proxy_addresses", ["nowhere"], "a list of IP addresses or networks"),
            ("proxy_user_header", "X User", "a header's name"),
            ("proxy_user_header", "Authorization", "a header's name"),
            ("jwt_keys", "http://id.example/jwks", "a file, or an address"),
            ("mcp_tools", ["ask", "delete"], "a list of tools out of ask, start, status"),
            ("mcp_max_sessions", 0, "from 1 to 10000"),
            ("reasoning", "some", "full, summary or off"),
            ("long_tool_seconds", -1, "seconds from 0 (never)"),
            ("allow_overrides", ["model", "api_key"], "a list of names out of model, reasoning_effort"),
            ("allow_overrides", True, "a list of names"),
            ("undeclared_client", "1.0", "0.0.59, 0.0.53 or 0.0.45"),
            ("undeclared_client", 0.59, "0.0.59, 0.0.53 or 0.0.45"),
        ],
    )
    def test_a_wrong_value_names_key_value_and_what_is_allowed(self, key: str, value: Any, allowed: str) -> None:
        sentence = refusal({key: value})
        assert sentence.startswith(f"agui.{key}: ")
        assert allowed in sentence
        assert "(default " in sentence

    def test_every_wrong_value_is_named_at_once(self) -> None:
        assert [line.split(":")[0] for line in refusal({"port": -1, "busy": 3}).splitlines()] == [
            "agui.port",
            "agui.busy",
        ]

    def test_an_unknown_key_suggests_close_ones(self) -> None:
        assert refusal({"prot": 8650}) == "agui.prot: there is no such setting; did you mean port?"
        assert "heartbeat_seconds" in refusal({"heartbeat": 5})
        assert "known settings: access_log, allow_overrides, allowed_hosts, " in refusal({"zzz": 1})

    @given(
        st.dictionaries(
            st.one_of(st.sampled_from(sorted(NAMES)), st.text(max_size=12)),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                max_leaves=5,
            ),
            max_size=4,
        )
    )
    def test_any_section_is_settings_or_a_named_refusal(self, extra: dict[str, Any]) -> None:
        try:
            settings = load(extra, {})
        except ConfigError as error:
            assert str(error).startswith("agui.")
        else:
            assert is_loopback(settings.host)


class TestSecrets:
    def test_the_key_comes_from_the_environment_and_is_not_shown(self) -> None:
        settings = load({}, {"AGUI_API_KEY": f" {KEY} \n"})
        assert settings.api_key is not None and settings.api_key.get_secret_value() == KEY
        assert KEY not in repr(settings) and KEY not in str(settings) and KEY not in str(settings.model_dump())

    @pytest.mark.parametrize("key", ["api_key", "API_KEY", "token", "AGUI_API_KEY", "secret"])
    def test_a_key_in_the_file_is_refused_without_quoting_it(self, key: str) -> None:
        sentence = refusal({key: "hunter2hunter2hunter2"})
        assert "secrets do not belong in config.yaml" in sentence and ".env" in sentence
        assert "hunter2" not in sentence

    @pytest.mark.parametrize("key", ["short", "k" * 15, "k" * 15 + "é", "with blank in the middle", "line\nbreak" * 3])
    def test_a_bad_key_is_refused_without_quoting_it(self, key: str) -> None:
        sentence = refusal({}, {"AGUI_API_KEY": key})
        assert sentence.startswith("AGUI_API_KEY: ")
        assert key not in sentence

    def test_an_empty_key_is_no_key(self) -> None:
        assert load({}, {"AGUI_API_KEY": "  "}).api_key is None

    def test_a_required_token_needs_a_key(self) -> None:
        assert "AGUI_API_KEY" in refusal({"require_token": True})
        assert load({"require_token": True}, {"AGUI_API_KEY": KEY}).require_token


class TestHalves:
    @pytest.mark.parametrize(
        ("section", "missing"),
        [
            ({"proxy_user_header": "X-User"}, "agui.proxy_addresses"),
            ({"proxy_addresses": ["10.0.0.1"]}, "agui.proxy_user_header"),
            ({"jwt_keys": "keys.json"}, "agui.jwt_issuer, agui.jwt_audience"),
            ({"jwt_issuer": "https://id.example"}, "agui.jwt_keys"),
            ({"tls_cert": "cert.pem"}, "agui.tls_key"),
            ({"tls_key": "key.pem"}, "agui.tls_cert"),
        ],
    )
    def test_half_a_configuration_is_none(self, section: dict[str, Any], missing: str) -> None:
        assert refusal(section).startswith(missing)


class TestOpenDoors:
    @pytest.mark.parametrize(
        "host", ["0.0.0.0", "::", "192.168.1.5", "hermes.example", "[::]", "::ffff:10.0.0.1", "8650"]
    )
    def test_a_public_bind_needs_a_key(self, host: str) -> None:
        assert "AGUI_API_KEY" in refusal({"host": host})
        assert load({"host": host}, {"AGUI_API_KEY": KEY}).host == host.strip("[]")

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
    )
    def test_loopback_needs_none(self, host: str) -> None:
        assert is_loopback(load({"host": host}, {"AGUI_ALLOW_ALL_USERS": "true"}).host)

    @pytest.mark.parametrize(
        "environ",
        [
            {"AGUI_ALLOW_ALL_USERS": "true"},
            {"GATEWAY_ALLOW_ALL_USERS": "1"},
            {"AGUI_ALLOW_ALL_USERS": " YES "},
            {"AGUI_ALLOWED_USERS": "local, *"},
            {"GATEWAY_ALLOWED_USERS": "*"},
        ],
    )
    def test_a_public_bind_never_lets_everybody_in(self, environ: dict[str, str]) -> None:
        sentence = refusal({"host": "0.0.0.0"}, environ | {"AGUI_API_KEY": KEY})
        assert next(iter(environ)) in sentence and "anyone could run commands" in sentence

    def test_a_public_bind_with_named_users_is_fine(self) -> None:
        environ = {"AGUI_API_KEY": KEY, "AGUI_ALLOWED_USERS": "ana,ben", "AGUI_ALLOW_ALL_USERS": "false"}
        assert load({"host": "0.0.0.0"}, environ).host == "0.0.0.0"
