"""The settings under `agui:` in Hermes's config.yaml, and the one secret from the environment.

`load` is the only way in: it knows no Hermes, reads no file and no global environment, and every error names the key,
what was found and what is allowed. `config.example.yaml` lists the same settings for people; a test keeps them equal.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from .forwarded import NAMES
from .principal import SCOPES, Scope

KEY_VARIABLE = "AGUI_API_KEY"
KEY_LENGTH = 16
"""Fewest characters of the operator's key."""

USER_COMMANDS = (
    *("help", "commands", "whoami", "status", "usage", "version", "start"),
    *("stop", "new", "retry", "undo", "title", "compress", "branch"),
)
"""What everybody may use by default: commands that tell of, or change, nothing but the caller's own conversation."""

_ALLOW_ALL = ("AGUI_ALLOW_ALL_USERS", "GATEWAY_ALLOW_ALL_USERS")
_ALLOWLISTS = ("AGUI_ALLOWED_USERS", "GATEWAY_ALLOWED_USERS")
_TRUE = frozenset({"1", "true", "yes", "on"})

# What Hermes puts into the same dict: its own switches, those it shares between platforms (gateway/config.py,
# load_gateway_config) and two defaults of the runner (gateway/run.py, _create_adapter). Not ours to judge.
HERMES_KEYS = frozenset(
    {
        *("enabled", "_enabled_explicit", "extra", "home_channel", "reply_to_mode", "reply_prefix", "reply_in_thread"),
        *("gateway_restart_notification", "typing_indicator", "typing_status_text", "notice_delivery"),
        *("channel_overrides", "channel_prompts", "cron_continuable_surface", "unauthorized_dm_behavior"),
        *("require_mention", "free_response_channels", "mention_patterns", "exclusive_bot_mentions", "dm_policy"),
        *("allow_from", "allow_admin_from", "user_allowed_commands", "group_policy", "group_allow_from"),
        *("group_allow_admin_from", "group_user_allowed_commands"),
        *("group_sessions_per_user", "thread_sessions_per_user"),
    }
)
MCP_TOOLS = (
    *("ask", "start", "status", "wait", "events", "answer", "steer", "stop"),
    *("threads", "history", "branch"),
)
"""The tools of the MCP door; a test compares them with what it offers."""
_SECRET_KEYS = frozenset({"api_key", "apikey", "key", "token", "secret", "password", "agui_api_key"})


class ConfigError(ValueError):
    """A setting that cannot be used. The text is one sentence for the operator and never holds the secret."""


def _no_bool(value: Any) -> Any:
    # pydantic takes True for 1, but `port: yes` is a mistake.
    if isinstance(value, bool):
        raise ValueError("a number is needed")
    return value


def _switch(value: Any) -> Any:
    # YAML 1.1 reads a bare `off` as False and `on` as True.
    return {False: "off", True: "full"}.get(value, value) if isinstance(value, bool) else value


def _auto_switch(value: Any) -> Any:
    return {False: "off", True: "auto"}.get(value, value) if isinstance(value, bool) else value


def _owner_switch(value: Any) -> Any:
    return {False: "off", True: "owner"}.get(value, value) if isinstance(value, bool) else value


def _items(value: Any) -> Any:
    """A list as a tuple; a single text is a list of one."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value)
    raise ValueError("a list of texts is needed")


def _host(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip() or any(char in value for char in "/ *"):
        raise ValueError("an address is needed")
    return value.strip().strip("[]")


def _origins(value: Any) -> Any:
    origins = []
    for item in _items(value):
        parts = urlsplit(item)
        if not (parts.scheme and parts.netloc) or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("not an origin")
        if "*" in item or parts.username is not None:
            raise ValueError("not an origin")
        origins.append(f"{parts.scheme.lower()}://{parts.netloc.lower()}")
    return tuple(origins)


def _host_names(value: Any) -> Any:
    names = _items(value)
    if any(not name or any(char in name for char in "/*@ ") for name in names):
        raise ValueError("not a host name")
    return tuple(name.lower() for name in names)


def _override_names(value: Any) -> Any:
    names = _items(value)
    if not set(names) <= set(NAMES):
        raise ValueError("not a name that can be allowed")
    return names


def _scopes(value: Any) -> Any:
    names = _items(value)
    if not set(names) <= SCOPES:
        raise ValueError("not a scope")
    return names


def _commands(value: Any) -> Any:
    names = tuple(name.lower().removeprefix("/").replace("_", "-") for name in _items(value))
    if any(not name or any(char in name for char in "/@ ") for name in names):
        raise ValueError("not a command")
    return names


def _mcp_tools(value: Any) -> Any:
    names = _items(value)
    if not set(names) <= set(MCP_TOOLS):
        raise ValueError("not a tool")
    return names


def _pairing_switch(value: Any) -> Any:
    return {False: "off", True: "on"}.get(value, value) if isinstance(value, bool) else value


def _networks(value: Any) -> Any:
    return tuple(str(ipaddress.ip_network(one)) for one in _items(value))


def _header(value: Any) -> Any:
    if not isinstance(value, str) or (value and not re.match(r"[A-Za-z0-9-]+\Z", value)):
        raise ValueError("not the name of a header")
    if value.lower() in ("authorization", "host", "origin", "cookie"):
        raise ValueError("not a header of a proxy's own")
    return value


def _keys(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a file or an address is needed")
    parts = urlsplit(value.strip())
    if "://" in value and not (
        parts.netloc and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")))
    ):
        raise ValueError("not an address that is safe to read keys from")
    return value.strip()


def _name(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip().isprintable() or not 0 < len(value.strip()) <= 200:
        raise ValueError("a name is needed")
    return value.strip()


def _public_url(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("an address is needed")
    value = value.strip().rstrip("/")
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
        raise ValueError("an address is needed")
    if parts.username is not None or any(char in value for char in " <>()\"'"):
        raise ValueError("an address is needed")
    return value


def _setting(default: Any, allowed: str, **limits: Any) -> Any:
    """A field with what a user may write there, in words; `ConfigError` quotes them."""
    return Field(default=default, json_schema_extra={"allowed": allowed}, **limits)


_Int = Annotated[int, BeforeValidator(_no_bool)]
_Float = Annotated[float, BeforeValidator(_no_bool)]
_Switch = BeforeValidator(_switch)


class Settings(BaseModel):
    """All settings, checked. Sizes are bytes, times are seconds unless the name says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    host: Annotated[str, BeforeValidator(_host)] = _setting("127.0.0.1", "an IP address or a host name of this machine")
    port: _Int = _setting(8650, "a whole number from 0 (any free port) to 65535", ge=0, le=65535)
    require_token: bool = _setting(False, "true or false")
    cors_origins: Annotated[tuple[str, ...], BeforeValidator(_origins)] = _setting(
        (), "a list of origins like https://app.example or http://localhost:3000, without a path and without *"
    )
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(_host_names)] = _setting(
        (), "a list of host names like hermes.example or hermes.example:8443, without http:// and without *"
    )

    user_scopes: Annotated[tuple[Scope, ...], BeforeValidator(_scopes)] = _setting(
        ("read", "run", "approve"), "a list of names out of read, run, approve and admin"
    )
    user_commands: Annotated[tuple[str, ...], BeforeValidator(_commands)] = _setting(
        USER_COMMANDS, "a list of slash commands like status or /status, without arguments"
    )

    device_pairing: Annotated[Literal["auto", "on", "off"], BeforeValidator(_pairing_switch)] = _setting(
        "auto", "auto, on (true) or off (false)"
    )
    proxy_addresses: Annotated[tuple[str, ...], BeforeValidator(_networks)] = _setting(
        (), "a list of IP addresses or networks like 10.0.0.5 or 10.0.0.0/24"
    )
    proxy_user_header: Annotated[str, BeforeValidator(_header)] = _setting("", "a header's name like X-Forwarded-User")
    jwt_keys: Annotated[str, BeforeValidator(_keys)] = _setting(
        "", "a file, or an address like https://id.example/jwks"
    )
    jwt_issuer: str = _setting("", "the issuer as its tokens name it, like https://id.example/")
    jwt_audience: str = _setting("", "the audience as tokens for this server name it")
    jwt_user_claim: str = _setting("sub", "the name of a claim", min_length=1)
    jwt_leeway_seconds: _Float = _setting(30.0, "seconds from 0 to 300", ge=0, le=300)
    tls_cert: str = _setting("", "the path of a PEM file with the certificate and its chain")
    tls_key: str = _setting("", "the path of a PEM file with the certificate's private key")

    public_url: Annotated[str, BeforeValidator(_public_url)] = _setting("", "an address like https://hermes.example")

    busy: Literal["reject", "queue", "steer", "interrupt"] = _setting("reject", "reject, queue, steer or interrupt")
    shorter_list: Literal["rewind", "append", "refuse"] = _setting("rewind", "rewind, append or refuse")
    interrupt_wait_seconds: _Float = _setting(10.0, "seconds from 0.1 to 600", ge=0.1, le=600)
    start_wait_seconds: _Float = _setting(30.0, "seconds from 0 to 600", ge=0, le=600)
    warmup: bool = _setting(True, "true or false")
    workers: _Int = _setting(100, "a whole number from 10 to 1000", ge=10, le=1000)

    detach: Literal["continue", "stop"] = _setting("continue", "continue or stop")
    grace_seconds: _Float = _setting(15.0, "seconds from 0 to 86400", ge=0, le=86400)

    parked: Literal["cancel", "refuse"] = _setting("cancel", "cancel or refuse")
    max_parked: _Int = _setting(64, "a whole number from 0 to 1000, smaller than agui.workers", ge=0, le=1000)
    max_parked_per_principal: _Int = _setting(32, "a whole number from 0 to 1000", ge=0, le=1000)
    approval_timeout_seconds: _Float = _setting(300.0, "seconds from 0 to 86400", ge=0, le=86400)
    client_tool_timeout_seconds: _Float = _setting(600.0, "seconds from 0 to 604800", ge=0, le=604800)

    observe: bool = _setting(False, "true or false")
    shared_request_seconds: _Float = _setting(120.0, "seconds from 1 to 86400", ge=1, le=86400)

    tool_output: Annotated[Literal["full", "names", "off"], _Switch] = _setting("full", "full, names or off")
    hermes_state: Annotated[Literal["auto", "always", "off"], BeforeValidator(_auto_switch)] = _setting(
        "auto", "auto (true), always or off (false)"
    )
    reasoning: Annotated[Literal["full", "summary", "off"], _Switch] = _setting("full", "full, summary or off")
    steps: bool = _setting(False, "true or false")
    long_tool_seconds: _Float = _setting(20.0, "seconds from 0 (never) to 86400", ge=0, le=86400)
    max_tool_result_chars: _Int = _setting(100_000, "characters, a whole number from 200 upwards", ge=200)
    merge_ms: _Int = _setting(0, "milliseconds, a whole number from 0 to 1000", ge=0, le=1000)
    heartbeat_seconds: _Float = _setting(15.0, "seconds from 0.05 to 300", ge=0.05, le=300)

    allow_overrides: Annotated[tuple[str, ...], BeforeValidator(_override_names)] = _setting(
        (), f"a list of names out of {', '.join(NAMES)}"
    )
    forward_props: bool = _setting(False, "true or false")
    undeclared_client: Literal["0.0.59", "0.0.53", "0.0.45"] = _setting("0.0.59", "0.0.59, 0.0.53 or 0.0.45")

    mcp: bool = _setting(True, "true or false")
    mcp_read_only: bool = _setting(False, "true or false")
    mcp_tools: Annotated[tuple[str, ...], BeforeValidator(_mcp_tools)] = _setting(
        (), f"a list of tools out of {', '.join(MCP_TOOLS)}"
    )
    mcp_max_sessions: _Int = _setting(200, "a whole number from 1 to 10000", ge=1, le=10_000)
    mcp_session_seconds: _Float = _setting(3600.0, "seconds from 1 to 604800", ge=1, le=604_800)

    max_turns: _Int = _setting(32, "a whole number from 1 to 1000", ge=1, le=1000)
    max_turns_per_principal: _Int = _setting(16, "a whole number from 1 to 1000", ge=1, le=1000)
    max_queued_per_principal: _Int = _setting(64, "a whole number from 1 to 10000", ge=1, le=10_000)
    requests_per_minute: _Int = _setting(1200, "a whole number from 0 (no limit) upwards", ge=0)
    failures_per_minute: _Int = _setting(30, "a whole number from 0 (no limit) upwards", ge=0)
    max_streams: _Int = _setting(512, "a whole number from 1 upwards", ge=1)
    max_streams_per_principal: _Int = _setting(256, "a whole number from 1 upwards", ge=1)
    stream_stalled_seconds: _Float = _setting(60.0, "seconds from 0.1 to 86400", ge=0.1, le=86400)
    stream_idle_seconds: _Float = _setting(7200.0, "seconds from 0 (no limit) to 604800", ge=0, le=604800)
    stream_seconds: _Float = _setting(86_400.0, "seconds from 0 (no limit) to 604800", ge=0, le=604800)

    rest_model: Annotated[str, BeforeValidator(_name)] = _setting(
        "hermes-agent", "a name of 1 to 200 printable characters"
    )
    rest_tools: Literal["opaque", "progress", "transparent"] = _setting("opaque", "opaque, progress or transparent")
    rest_reasoning: bool = _setting(False, "true or false")
    response_ttl_seconds: _Float = _setting(2_592_000.0, "seconds from 1 to 31536000", ge=1, le=31_536_000)
    max_responses: _Int = _setting(1000, "a whole number from 1 upwards", ge=1)
    rest_stateless: Literal["remove", "archive"] = _setting("remove", "remove or archive")

    max_body_bytes: _Int = _setting(28 * 1024 * 1024, "bytes, a whole number from 1024 upwards", ge=1024)
    body_seconds: _Float = _setting(120.0, "seconds from 0.1 to 3600", ge=0.1, le=3600)
    max_json_depth: _Int = _setting(128, "levels, a whole number from 8 to 500", ge=8, le=500)
    max_messages: _Int = _setting(5000, "a whole number from 1 upwards", ge=1)
    max_tools: _Int = _setting(128, "a whole number from 0 to 10000", ge=0, le=10_000)
    max_tools_bytes: _Int = _setting(512 * 1024, "bytes, a whole number from 1024 upwards", ge=1024)
    max_attachment_bytes: _Int = _setting(20 * 1024 * 1024, "bytes, a whole number from 1024 upwards", ge=1024)
    max_attachments: _Int = _setting(16, "a whole number from 0 to 100", ge=0, le=100)
    file_ttl_seconds: _Float = _setting(86_400.0, "seconds from 1 to 31536000", ge=1, le=31_536_000)
    file_store_bytes: _Int = _setting(1024**3, "bytes, a whole number from 1048576 upwards", ge=2**20)
    retention_days: _Float = _setting(0.0, "days from 0 (for ever) to 36500", ge=0, le=36_500)
    log_bytes_per_turn: _Int = _setting(8 * 1024 * 1024, "bytes, a whole number from 65536 upwards", ge=65536)
    log_bytes_total: _Int = _setting(512 * 1024 * 1024, "bytes, a whole number from 1048576 upwards", ge=2**20)
    metrics: Annotated[Literal["owner", "open", "off"], BeforeValidator(_owner_switch)] = _setting(
        "owner", "owner (true), open or off (false)"
    )
    access_log: bool = _setting(False, "true or false")
    turn_ttl_seconds: _Float = _setting(300.0, "seconds from 0 to 86400", ge=0, le=86400)

    api_key: SecretStr | None = Field(default=None, repr=False)
    """The operator's bearer key, from AGUI_API_KEY only."""
    admins: frozenset[str] = frozenset()
    """Principals that Hermes's own ``allow_admin_from`` names (gateway/slash_access.py)."""


def load(extra: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from `PlatformConfig.extra` and the environment. Raises `ConfigError`."""
    known = Settings.model_fields.keys() - {"api_key", "admins"}
    for key in extra:
        if str(key).lower() in _SECRET_KEYS and extra[key] is not None:
            raise ConfigError(
                f"agui.{key}: secrets do not belong in config.yaml; put {KEY_VARIABLE}=… into Hermes's .env file"
            )
        if key not in known and key not in HERMES_KEYS and str(key).lower() not in _SECRET_KEYS:
            raise ConfigError(_unknown(str(key), sorted(known)))
    values = {key: extra[key] for key in extra if key in known}
    try:
        settings = Settings(**values, api_key=_api_key(environ), admins=_admins(extra.get("allow_admin_from")))
    except ValidationError as error:
        raise ConfigError(_wrong(error, values)) from None
    _refuse_open_doors(settings, environ)
    _refuse_halves(settings)
    return settings


def public_base(settings: Settings, port: int) -> str:
    """What stands before ``/files/…`` in links: ``public_url``, else the address this server listens on.

    Empty, for links that hold on pages of this server only, where that is not the address that clients use.
    """
    if settings.public_url:
        return settings.public_url
    if settings.host in ("0.0.0.0", "::") or settings.allowed_hosts:
        return ""
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{settings.host}]:{port}" if ":" in settings.host else f"{scheme}://{settings.host}:{port}"


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to `host`. A name that is not localhost counts as not."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _admins(listed: Any) -> frozenset[str]:
    """As Hermes reads its list: names, or one text with commas."""
    names = listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, (list, tuple)) else ()
    return frozenset(name for one in names if (name := str(one).strip()))


def _api_key(environ: Mapping[str, str]) -> SecretStr | None:
    key = environ.get(KEY_VARIABLE, "").strip()
    if not key:
        return None
    if len(key) < KEY_LENGTH:
        raise ConfigError(
            f"{KEY_VARIABLE}: the key has {len(key)} characters, at least {KEY_LENGTH} are needed; "
            "`openssl rand -hex 24` makes a good one"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{KEY_VARIABLE}: only printable ASCII characters without blanks can travel as a bearer key")
    return SecretStr(key)


def _refuse_open_doors(settings: Settings, environ: Mapping[str, str]) -> None:
    if settings.require_token and settings.api_key is None:
        raise ConfigError(f"agui.require_token: true needs {KEY_VARIABLE} in the environment or nobody could get in")
    if is_loopback(settings.host):
        return
    if settings.api_key is None:
        raise ConfigError(
            f"agui.host: {settings.host!r} can be reached from other machines, which is allowed only with "
            f"{KEY_VARIABLE} (at least {KEY_LENGTH} characters) in Hermes's .env file; else use 127.0.0.1"
        )
    open_by = [name for name in _ALLOW_ALL if environ.get(name, "").strip().lower() in _TRUE]
    open_by += [name for name in _ALLOWLISTS if "*" in [part.strip() for part in environ.get(name, "").split(",")]]
    if open_by:
        raise ConfigError(
            f"agui.host: {settings.host!r} can be reached from other machines, which is not allowed together with "
            f"{open_by[0]}={environ[open_by[0]]}: anyone could run commands here; "
            "name the users in AGUI_ALLOWED_USERS instead, or use 127.0.0.1"
        )


def _refuse_halves(settings: Settings) -> None:
    """Settings that mean nothing, or too much, without another."""
    for needed, of in (
        (("proxy_addresses", "proxy_user_header"), "a header that anybody could send says nothing"),
        (("jwt_keys", "jwt_issuer", "jwt_audience"), "a token is good for its issuer's audience only"),
        (("tls_cert", "tls_key"), "a certificate needs its key"),
    ):
        missing = [f"agui.{name}" for name in needed if not getattr(settings, name)]
        if missing and len(missing) < len(needed):
            raise ConfigError(f"{', '.join(missing)}: needed with {_others(needed, missing)}, since {of}")


def _others(names: tuple[str, ...], missing: list[str]) -> str:
    return " and ".join(f"agui.{name}" for name in names if f"agui.{name}" not in missing)


def _unknown(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known settings: {', '.join(known)}"
    return f"agui.{key}: there is no such setting; {hint}"


def _wrong(error: ValidationError, values: Mapping[str, Any]) -> str:
    sentences = []
    for key in dict.fromkeys(str(detail["loc"][0]) for detail in error.errors(include_url=False, include_input=False)):
        field = Settings.model_fields[key]
        schema = field.json_schema_extra
        allowed = schema["allowed"] if isinstance(schema, dict) else ""
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        sentences.append(f"agui.{key}: {_shown(values[key])} is not allowed; {allowed} (default {_shown(default)})")
    return "\n".join(sentences)


def _shown(value: Any) -> str:
    text = (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else "nothing"
        if value is None
        else repr(value)
    )
    return text if len(text) <= 80 else text[:77] + "..."
