"""What Hermes loads, in real Hermes processes: import-light, binds nothing, found however it was installed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import textwrap
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import agui_adapter
import gateway_plugins.agui as plugin

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"aiohttp", "ag_ui", "orjson", "agui_adapter.adapter", "agui_adapter.hermes", "agui_adapter.config"}

REPORT = """
    import json, sys
    import psutil
    from hermes_cli.plugins import discover_plugins, get_plugin_manager
    discover_plugins()
    modules = sorted(sys.modules)
    from gateway.platform_registry import platform_registry
    entry = platform_registry.get("agui")
    loaded = get_plugin_manager()._plugins.get("agui")
    print(json.dumps({
        "modules": modules,
        "listening": [str(c.laddr) for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"],
        "registered": entry is not None,
        "check": entry is not None and entry.check_fn(),
        "error": loaded and loaded.error,
        "source": loaded and loaded.manifest.source,
        "hooks": loaded and loaded.hooks_registered,
        "middleware": loaded and loaded.middleware_registered,
        "commands": sorted(get_plugin_manager()._cli_commands),
    }))
"""


def hermes_home(path: Path, *, enabled: bool = True, **config: Any) -> Path:
    """A HERMES_HOME with a config.yaml."""
    path.mkdir(parents=True, exist_ok=True)
    config["plugins"] = {"enabled": ["agui"] if enabled else []}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    return path


def run(
    *argv: str, home: Path, env: dict[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "AGUI_", "GATEWAY_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *argv],
        env=inherited | {"HERMES_HOME": str(home)} | (env or {}),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def report(code: str, home: Path, *flags: str, env: dict[str, str] | None = None) -> Any:
    """Run `code` in a Python of its own and read the JSON it prints last."""
    result = run(*flags, "-c", textwrap.dedent(code), home=home, env=env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return report(REPORT, hermes_home(tmp_path_factory.mktemp("enabled")))  # type: ignore[no-any-return]


class TestInAProcessThatIsNotTheGateway:
    def test_the_entry_point_registers_everything(self, loaded: dict[str, Any]) -> None:
        assert loaded["error"] is None
        assert loaded["source"] == "entrypoint"
        assert loaded["registered"] and loaded["check"]
        assert set(loaded["hooks"]) == set(plugin.HOOKS)
        assert loaded["middleware"] == ["tool_execution"]
        assert "agui" in loaded["commands"]

    def test_it_imports_nothing_but_itself(self, loaded: dict[str, Any], tmp_path: Path) -> None:
        without = report(REPORT, hermes_home(tmp_path, enabled=False))
        assert not without["registered"]
        ours = set(loaded["modules"]) - set(without["modules"])
        assert ours & HEAVY == set()
        foreign = {m for m in ours if m.split(".")[0] not in sys.stdlib_module_names}
        # What remains are the plugin itself and the parts of Hermes that register any plugin.
        assert {
            m for m in foreign if not m.startswith(("gateway_plugins", "gateway.", "hermes_cli.", "tools."))
        } == set()

    def test_it_binds_nothing(self, loaded: dict[str, Any]) -> None:
        assert loaded["listening"] == []

    def test_hermes_knows_every_hook(self) -> None:
        from hermes_cli.plugins import VALID_HOOKS

        assert set(plugin.HOOKS) <= VALID_HOOKS

    def test_tools_run_as_if_it_were_not_there(self, tmp_path: Path) -> None:
        code = """
            import json
            from hermes_cli.middleware import run_tool_execution_middleware
            from hermes_cli.plugins import discover_plugins, get_plugin_manager, invoke_hook
            discover_plugins()
            assert get_plugin_manager().has_middleware("tool_execution")
            ran = []
            result = run_tool_execution_middleware(
                "terminal", {"a": 1}, lambda args: ran.append(args) or "done", session_id="s", tool_call_id="c"
            )
            print(json.dumps([result, ran, invoke_hook("pre_llm_call", session_id="s", turn_id="t")]))
        """
        assert report(code, hermes_home(tmp_path)) == ["done", [{"a": 1}], []]

    def test_hermes_agui_is_a_command_with_exit_codes(self, tmp_path: Path) -> None:
        home = hermes_home(tmp_path)
        helped = run("-m", "hermes_cli.main", "agui", "--help", home=home)
        assert helped.returncode == 0, helped.stderr
        assert all(command in helped.stdout for command in ("demo", "chat", "check"))
        failed = run("-m", "hermes_cli.main", "agui", "chat", "hi", "--url", "http://127.0.0.1:9", home=home)
        assert failed.returncode == 1
        assert "is the gateway running?" in failed.stderr


class TestConfiguration:
    CODE = """
        import json
        import gateway.config as config
        loaded = config.load_gateway_config()
        found = {p.value: c for p, c in loaded.platforms.items()}.get("agui")
        connected = [p.value for p in loaded.get_connected_platforms()]
        print(json.dumps([bool(found and found.enabled), dict(found.extra) if found else None, "agui" in connected]))
    """

    @pytest.mark.parametrize(
        "config",
        [
            {"agui": {"enabled": True, "port": 8651}},
            {"platforms": {"agui": {"enabled": True, "port": 8651}}},
            {"platforms": {"agui": {"enabled": True, "extra": {"port": 8651}}}},
            {"gateway": {"platforms": {"agui": {"enabled": True, "port": 8651}}}},
            {"agui": {"port": 8651}},
            {"agui": {"enabled": True}, "gateway": {"platforms": {"agui": {"port": 8651}}}},
            {"agui": {"enabled": True, "port": 8651}, "platforms": {"agui": {"port": 1, "extra": {"port": 2}}}},
        ],
        ids=[
            "top-level",
            "platforms",
            "platforms-extra",
            "gateway-platforms",
            "not-even-enabled",
            "in-two-places",
            "top-level-wins",
        ],
    )
    def test_the_section_is_found_wherever_it_stands(self, config: dict[str, Any], tmp_path: Path) -> None:
        """`gateway.config` is the first import of the process: a plugin that imports it back would be a cycle."""
        enabled, extra, connected = report(self.CODE, hermes_home(tmp_path, **config))
        assert enabled and connected
        assert extra["port"] == 8651

    @pytest.mark.parametrize("config", [{"agui": {"enabled": False}}, {"platforms": {"agui": {"enabled": False}}}])
    def test_enabled_false_is_respected(self, config: dict[str, Any], tmp_path: Path) -> None:
        enabled, _, connected = report(self.CODE, hermes_home(tmp_path, **config))
        assert not enabled and not connected

    @pytest.mark.e2e
    def test_a_wrong_setting_ends_the_start_by_name(self, tmp_path: Path) -> None:
        home = hermes_home(
            tmp_path,
            agui={"enabled": True, "port": 99999},
            model={
                "provider": "custom",
                "default": "scripted-1",
                "base_url": "http://127.0.0.1:9/v1",
                "api_key": "sk-local-dummy-0000",
            },
            security={"allow_lazy_installs": False, "tirith_enabled": False},
            agent={"environment_probe": False},
        )
        result = run("-m", "hermes_cli.main", "gateway", "run", home=home)
        output = result.stdout + result.stderr
        assert result.returncode != 0, output
        assert "agui.port: 99999 is not allowed; a whole number from 0 (any free port) to 65535" in output
        assert "Traceback" not in output


class TestDirectoryPlugin:
    """`hermes plugins install owner/repo/gateway_plugins/agui` copies the directory to <HERMES_HOME>/plugins/agui."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        home = hermes_home(tmp_path / "home")
        target = home / "plugins" / "agui"
        target.mkdir(parents=True)
        for name in ("__init__.py", "plugin.yaml"):
            (target / name).write_bytes((ROOT / "gateway_plugins" / "agui" / name).read_bytes())
        return home

    @pytest.fixture
    def libraries(self, tmp_path: Path) -> Path:
        """Everything that is installed here, except this project. Python runs with -S, so nothing else is found."""
        place = tmp_path / "libraries"
        place.mkdir()
        ours = ("hermes_agui", "_hermes_agui", "__editable__", "agui_adapter", "gateway_plugins")
        for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for item in Path(site).iterdir():
                if not item.name.startswith(ours) and item.suffix != ".pth":
                    (place / item.name).symlink_to(item)
        return place

    def test_it_uses_the_installed_package(self, home: Path, libraries: Path) -> None:
        (libraries / "agui_adapter").symlink_to(ROOT / "agui_adapter")
        found = report(REPORT, home, "-S", env={"PYTHONPATH": str(libraries)})
        assert found["source"] == "user"
        assert found["error"] is None and found["check"]
        assert set(found["hooks"]) == set(plugin.HOOKS)
        assert set(found["modules"]) & HEAVY == set()

    def test_it_says_which_pip_line_is_missing(self, home: Path, libraries: Path) -> None:
        result = run("-S", "-c", textwrap.dedent(REPORT), home=home, env={"PYTHONPATH": str(libraries)})
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout.splitlines()[-1])
        assert found["error"] is None and found["registered"] and not found["check"]
        assert found["hooks"] == [] and "agui" not in found["commands"]
        lines = [line for line in result.stderr.splitlines() if "agui" in line]
        assert len(lines) == 1
        assert "agui_adapter" in lines[0] and "-m pip install hermes-agui" in lines[0]
        assert "Traceback" not in result.stderr


def test_the_gateway_finds_the_adapter_by_its_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermes's map of adapters has `Platform` as its keys: one that is kept under its name is never found."""
    from gateway.config import Platform

    from agui_adapter.adapter import AguiAdapter
    from tests.scripted import new_adapter

    adapter = new_adapter(AguiAdapter, {}, tmp_path, monkeypatch)
    assert type(adapter.platform) is Platform and {adapter.platform: adapter}[Platform("agui")] is adapter
    source = adapter.source_of(adapter.threads.adopt("local.t", "local"))
    assert source.platform is adapter.platform


class TestSeam:
    """Hooks reach `agui_adapter.hermes` only where the gateway has loaded it."""

    @pytest.fixture
    def seam(self, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
        module = types.ModuleType("agui_adapter.hermes")
        monkeypatch.setitem(sys.modules, "agui_adapter.hermes", module)
        return module

    def test_a_hook_passes_its_name_and_arguments(self, seam: types.ModuleType) -> None:
        seam.on_hook = lambda name, kwargs: (name, kwargs)  # type: ignore[attr-defined]
        assert plugin._hook("pre_llm_call")(turn_id="t") == ("pre_llm_call", {"turn_id": "t"})

    def test_a_tool_call_is_handed_over(self, seam: types.ModuleType) -> None:
        seam.around_tool = lambda next_call, **kwargs: ("ours", next_call(kwargs["args"]))  # type: ignore[attr-defined]
        assert plugin.around_tool(lambda args: args, tool_name="x", args={"a": 1}) == ("ours", {"a": 1})

    def test_a_module_that_is_still_importing_is_left_alone(self, seam: types.ModuleType) -> None:
        assert plugin._hook("pre_llm_call")(turn_id="t") is None
        assert plugin.around_tool(lambda args: args, args={"a": 1}) == {"a": 1}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        env=os.environ | {"HERMES_AGUI_WEB": "0"},  # whether the console can be built is not asked here
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


class TestWheel:
    def test_it_holds_every_file_of_both_packages(self, wheel: zipfile.ZipFile) -> None:
        names = set(wheel.namelist())
        assert {"gateway_plugins/agui/plugin.yaml", "agui_adapter/py.typed"} <= names
        sources = {
            path.relative_to(ROOT).as_posix()
            for package in ("agui_adapter", "gateway_plugins")
            for path in (ROOT / package).rglob("*.py")
        }
        assert sources <= names
        built = (ROOT / "agui_adapter" / "web").rglob("*")
        assert {path.relative_to(ROOT).as_posix() for path in built if path.is_file()} <= names
        assert {name.split("/")[0] for name in names} == {
            "agui_adapter",
            "gateway_plugins",
            f"hermes_agui-{agui_adapter.__version__}.dist-info",
        }

    def test_it_declares_the_entry_point_and_the_command(self, wheel: zipfile.ZipFile) -> None:
        (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
        text = wheel.read(name).decode()
        assert "[hermes_agent.plugins]\nagui = gateway_plugins.agui" in text
        assert "hermes-agui = agui_adapter.cli:main" in text

    def test_the_version_is_the_same_everywhere(self) -> None:
        manifest = yaml.safe_load((ROOT / "gateway_plugins" / "agui" / "plugin.yaml").read_text())
        assert manifest["version"] == agui_adapter.__version__ == importlib.metadata.version("hermes-agui")


def test_our_ranges_contain_what_hermes_pins() -> None:
    pins: dict[str, str] = {}
    for line in importlib.metadata.requires("hermes-agent") or []:
        requirement = Requirement(line)
        for specifier in requirement.specifier:
            if specifier.operator == "==":
                pins[requirement.name.lower()] = specifier.version
    checked = set()
    for line in importlib.metadata.requires("hermes-agui") or []:
        requirement = Requirement(line)
        name = requirement.name.lower()
        extra = str(requirement.marker or "")
        if name in pins and "dev" not in extra and "mcp2" not in extra:
            assert requirement.specifier.contains(pins[name]), f"{line} excludes Hermes's pin {pins[name]}"
            checked.add(name)
    assert {"aiohttp", "pydantic", "mcp"} <= checked


def test_a_hermes_that_lets_a_plugin_do_less_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """As 0.14, which has no middleware: nothing is registered, so nothing half works."""
    seen: list[str] = []
    context = types.SimpleNamespace(
        register_platform=lambda **_: seen.append("platform"),
        register_cli_command=lambda **_: seen.append("command"),
        register_hook=lambda *_: seen.append("hook"),
    )
    plugin.register(context)
    assert seen == [] and "needs a newer Hermes (no register_middleware here)" in caplog.text


def test_a_hermes_that_is_laid_out_anew_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "agui_adapter.adapter", raising=False)
    monkeypatch.setitem(sys.modules, "gateway.stream_events", None)  # as a module that is gone
    monkeypatch.delitem(sys.modules, "agui_adapter.stream", raising=False)
    with pytest.raises(RuntimeError, match=r"does not know this Hermes \(.*gateway.stream_events.*hermes update"):
        plugin.create_adapter(None)
