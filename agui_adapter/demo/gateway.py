"""A real `hermes gateway run` in a home of its own, as a child process: for the demo, the tests and the benches.

Everything the gateway writes lies under one directory, with the user's home and environment kept out, so that several
can run at once beside a configured Hermes. It must not import Hermes: the child is started with this interpreter.
"""

import asyncio
import contextlib
import copy
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self
from urllib.parse import urlsplit

START_SECONDS = 60.0
STOP_SECONDS = 20.0
DEFAULT_TOOLSETS = ("terminal", "file", "todo", "clarify")

_LOG_LINES = 60
_POLL_SECONDS = 0.05

# Below the ports that a system gives out unasked (Linux from 32768 on, others from 49152): whoever listens on port 0 or
# connects somewhere could be given one of those between its choice and the moment when the gateway listens.
_PORTS = range(20_000, 32_000)
_PORTS_TRIED = 50

# What Hermes 0.19 logs when the platform will not come up though the gateway lives on (GatewayRunner.start).
_HOPELESS = ("No adapter could be created", "✗ agui failed to connect")

# What of the caller's environment reaches the gateway. An allowlist, since provider keys, proxies and other tools'
# settings have too many names to drop one by one.
_KEPT_ENV = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "SHELL",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


class GatewayError(RuntimeError):
    """The gateway did not start; the text ends with the last lines of its log."""


class _HasUrl(Protocol):
    @property
    def url(self) -> str: ...


class Gateway:
    """One gateway process. `start` and `stop` as often as wanted on the same home and port, `close` at the end.

    Context manager, plain and async: entering starts, leaving closes. The calls block (the async form uses a thread)
    and are meant for one thread, except `abort` and the attributes.

    Args:
        model: the scripted model, or the base URL of any OpenAI-compatible server (with `/v1`).
        agui: members of the `agui:` section, over `enabled`, `host` and `port`.
        config: merged deeply over the whole `config.yaml`; None as a value removes the member.
        env: over the child's environment; None as a value removes the variable.
        home: the HERMES_HOME to use, made if absent and never removed. Default: a temporary one.
        toolsets: the platform's toolsets.
        ready_url: what must answer 200 before `start` returns. Default: the adapter's `/health`.
        keep: leave the temporary directory in place.
        verbose: let Hermes log at level INFO.

    Attributes:
        home: HERMES_HOME. Inside it `gateway-run/` holds what Hermes itself does not own: the child's HOME (`user/`),
            the agent's working directory (`work/`) and the log.
        port, url: of the agui platform.
        log_path: standard output and error of the process, appended to over restarts.
    """

    def __init__(
        self,
        model: _HasUrl | str,
        *,
        agui: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str | None] | None = None,
        home: Path | None = None,
        toolsets: Sequence[str] = DEFAULT_TOOLSETS,
        ready_url: str | None = None,
        keep: bool = False,
        verbose: bool = False,
    ) -> None:
        self.model_url = model if isinstance(model, str) else model.url
        self.port = int((agui or {}).get("port") or free_port())
        self.url = f"http://127.0.0.1:{self.port}"
        # Tests and benches ask as fast as they can, and whoever starts it may use every command in it but /yolo.
        scopes = ["read", "run", "approve", "admin"]
        own = {"enabled": True, "host": "127.0.0.1", "requests_per_minute": 0, "user_scopes": scopes}
        self._agui = own | dict(agui or {}) | {"port": self.port}
        self._overrides = dict(config or {})
        self._env = dict(env or {})
        self._toolsets = list(toolsets)
        self._ready_url = ready_url or f"{self.url}/health"
        self._temporary = home is None and not keep
        self._verbose = verbose
        self.home = Path(tempfile.mkdtemp(prefix="hermes-agui-")) if home is None else Path(home)
        self.run_dir = self.home / "gateway-run"
        self.user_home = self.run_dir / "user"
        self.work_dir = self.run_dir / "work"
        self._tmp_dir = self.run_dir / "tmp"
        self.log_path = self.run_dir / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._aborted = threading.Event()

    # --- life

    def start(self) -> None:
        """Write the configuration, start the process, wait until it is ready.

        Raises:
            GatewayError: the process ended, its platform did not come up, the start was aborted, or it was not ready
            within 60 s. It has been stopped then.
        """
        if self.running:
            return
        self._write_home()
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log)
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 20 s; then end whatever its tools left running. The home stays."""
        process = self._process
        if process is None:
            return
        offspring = _descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                offspring = _descendants(process.pid)
        self._end(process, offspring)

    def kill(self) -> None:
        """SIGKILL to the gateway and its descendants at once, as a crash would. The home stays."""
        if self._process is not None:
            self._end(self._process, _descendants(self._process.pid))

    def abort(self) -> None:
        """Make a `start` that is waiting in another thread give up. Any thread."""
        self._aborted.set()

    def close(self) -> None:
        """Stop, and remove the temporary directory."""
        try:
            self.stop()
        finally:
            if self._temporary:
                shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([starting])
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.close)

    # --- what it is doing

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def returncode(self) -> int | None:
        """The exit status of the last process, None while it runs or before the first."""
        return None if self._process is None else self._process.poll()

    def log_text(self) -> str:
        """Everything the process has printed so far."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def agent_log_text(self) -> str:
        """What Hermes has logged from INFO on, whatever it prints."""
        path = self.home / "logs" / "agent.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def config(self) -> dict[str, Any]:
        """The `config.yaml` that `start` writes."""
        # Nothing here may look up a host or install anything: the demo and the tests run offline.
        base: dict[str, Any] = {
            "model": {
                "provider": "custom",
                "default": "scripted-1",
                "base_url": self.model_url,
                "api_key": "sk-local-dummy-0000",  # Hermes takes plain "dummy" for a placeholder
                "context_length": 128_000,
            },
            "plugins": {"enabled": ["agui"]},
            "agui": self._agui,
            "platform_toolsets": {"agui": self._toolsets},
            "terminal": {"backend": "local", "cwd": str(self.work_dir)},
            "security": {"allow_lazy_installs": False, "tirith_enabled": False},
            "auxiliary": {"title_generation": {"enabled": False}},
            "approvals": {"mode": "manual"},
            # A stop waits for no turn, as is Hermes's default from 0.18 on; before, it is three minutes.
            "agent": {"environment_probe": False, "restart_drain_timeout": 0},
            "gateway": {"respawn_storm": {"max_starts": 0}},  # restart tests start often; no waiting for that
        }
        return merge(base, self._overrides)

    # --- inside

    def _write_home(self) -> None:
        for directory in (self.home, self.user_home, self.work_dir, self._tmp_dir):
            directory.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, and this package does not depend on a YAML library.
        (self.home / "config.yaml").write_text(json.dumps(self.config(), indent=2) + "\n", "utf-8")

    def environment(self) -> dict[str, str]:
        """The child's whole environment."""
        env: dict[str, str | None] = {name: os.environ[name] for name in _KEPT_ENV if name in os.environ}
        env |= {
            "HOME": str(self.user_home),
            "HERMES_HOME": str(self.home),
            # Locks that gateways of one machine share would otherwise lie in the user's state directory
            # (gateway/status.py, _get_lock_dir).
            "HERMES_GATEWAY_LOCK_DIR": str(self.run_dir / "locks"),
            "AGUI_ALLOWED_USERS": "local",
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        # Hermes puts a Unix socket there for execute_code, and the path of a socket may have 107 bytes.
        if len(os.fsencode(self._tmp_dir)) < 58:
            env["TMPDIR"] = str(self._tmp_dir)
        env |= self._env
        return {name: value for name, value in env.items() if value is not None}

    def command(self) -> list[str]:
        """What is started."""
        # -P: the agent's working directory must not become a place to import from.
        # --force: a Hermes that runs as a service of this machine has another home, so it is no conflict.
        command = [sys.executable, "-P", "-m", "hermes_cli.main", "gateway", "run", "--force"]
        return [*command, "-v"] if self._verbose else command

    def _spawn(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(),
            cwd=self.work_dir,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the caller's terminal is the caller's to handle
        )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._aborted.is_set():
                raise GatewayError("The start of the gateway was given up.")
            if not self.running:
                raise GatewayError(f"The gateway ended with status {self.returncode}.{self._log_tail()}")
            if any(line in self._log_now() for line in _HOPELESS):
                raise GatewayError(f"The gateway runs, but its platform did not come up.{self._log_tail()}")
            if time.monotonic() > deadline:
                raise GatewayError(
                    f"The gateway was not ready at {self._ready_url} within {START_SECONDS:g} s.{self._log_tail()}"
                )
            self._aborted.wait(_POLL_SECONDS)

    def _ready(self) -> bool:
        """Whether it is this gateway that answers: somebody else may have got its port since that was chosen."""
        assert self._process is not None
        return _answers_200(self._ready_url) and _listens(self._process.pid, urlsplit(self._ready_url).port)

    def _log_now(self) -> str:
        """The log since the last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def _log_tail(self) -> str:
        return "\n".join([" Its log ends:", *self._log_now().splitlines()[-_LOG_LINES:]])

    def _end(self, process: "subprocess.Popen[bytes]", offspring: Iterable[Any]) -> None:
        if process.poll() is None:
            process.kill()
            process.wait()
        _kill(offspring)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, member by member where both are mappings; None removes a member."""
    merged: dict[str, Any] = copy.deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def free_port(preferred: int = 0, tries: int = 1) -> int:
    """A port of 127.0.0.1 that nobody listens on: the first free one of `tries` from `preferred` on, or any for 0.

    Raises:
        OSError: none of them is free.
    """
    # Not the module's own generator: processes that have seeded it alike would all try the same ports.
    any_ports = random.SystemRandom().sample(_PORTS, _PORTS_TRIED)
    trouble = OSError("no port to try")
    for port in range(preferred, preferred + tries) if preferred else any_ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                trouble = error
            else:
                return port
    raise trouble


def _answers_200(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=2)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listens(pid: int, port: int | None) -> bool:
    """Whether this process listens on the port; True where the system does not tell."""
    # A dependency of Hermes, not of this package; without Hermes there is no gateway to look at.
    import psutil  # type: ignore[import-untyped,unused-ignore]

    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


def _descendants(pid: int) -> list[Any]:
    """Processes (`psutil.Process`) that `pid` has started, in sessions of their own too: Hermes's tools make such."""
    import psutil

    try:
        children: list[Any] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return children


def _kill(processes: Iterable[Any]) -> None:
    import psutil

    for process in processes:
        # psutil compares the start time first, so that a number which was given anew is not hit.
        with contextlib.suppress(psutil.Error):
            process.kill()
