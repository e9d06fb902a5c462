"""`hermes-agui demo`: what it prints, and how it ends. The whole of it runs against a real gateway."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ag_ui.core import RunAgentInput

from agui_adapter.demo import command

# --- the pasted line


def test_the_curl_line_is_one_line_with_a_valid_input(tmp_path: Path) -> None:
    """A shell runs it with a `curl` that prints its arguments."""
    fake = tmp_path / "curl"
    fake.write_text(f"#!{sys.executable}\nimport sys, json; print(json.dumps(sys.argv[1:]))\n")
    fake.chmod(0o755)
    line = command.curl_line("http://127.0.0.1:8650")
    assert "\n" not in line
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    arguments = json.loads(subprocess.run(["sh", "-c", line], env=env, capture_output=True, check=True).stdout)
    assert arguments[:2] == ["-N", "http://127.0.0.1:8650/agui"]
    assert "Content-Type: application/json" in arguments
    body = RunAgentInput.model_validate_json(arguments[-1])
    assert (body.thread_id, len(body.messages)) == ("demo", 1)
    assert body.messages[0].id.removeprefix("msg-").isdigit()
    assert body.run_id.removeprefix("run-").isdigit()


# --- the printed answer


def sse(*events: dict[str, Any]) -> Iterator[bytes]:
    """The stream in pieces that cut through frames."""
    data = b"".join(b": beat\n\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return (data[i : i + 7] for i in range(0, len(data), 7))


def text(delta: str, message: str = "m1") -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": delta}


FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
STOPPED = FINISHED | {"outcome": {"type": "cancelled"}}


def test_text_goes_to_stdout_and_tools_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        text("Let me "),
        text("look."),
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "terminal"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"command": '},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '"ls"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        text("Done.", "m2"),
        FINISHED,
    ]
    assert command.print_answer(sse(*events)) == 0
    out, err = capsys.readouterr()
    assert out == "Let me look.\nDone.\n"
    assert 'terminal {"command": "ls"}' in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([text("half"), {"type": "RUN_ERROR", "message": "no key", "code": "auth"}], "no key"),
        ([FINISHED], "without an answer"),
        ([STOPPED], "the run was stopped"),
        ([text("half"), STOPPED], "the run was stopped"),
        ([text("half")], "ended before the run"),
        ([], "ended before the run"),
    ],
)
def test_failures_exit_with_1(events: list[dict[str, Any]], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.print_answer(sse(*events)) == 1
    assert said in capsys.readouterr().err


# --- what stops it from starting


def parse(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(options)


def test_without_hermes_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert command.run(parse()) == 2
    assert "pip install 'hermes-agent==0.19.0'" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["taken", "70000"])
def test_a_port_that_cannot_be_used(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hermes_cli")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1]) if port == "taken" else port
        assert command.run(parse("--port", number)) == 1
    err = capsys.readouterr().err
    assert f"Port {number}" in err
    assert "--port" in err


# --- the real thing

MAIN = [sys.executable, "-m", "agui_adapter.cli", "demo"]


@pytest.fixture
def temporary(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A directory for temporary files that must be empty at the end, and the environment with it."""
    return tmp_path, os.environ | {"TMPDIR": str(tmp_path), "AGUI_API_KEY": "a-key-for-another-gateway"}


@pytest.mark.e2e
def test_once_prints_the_answer_and_leaves_nothing(temporary: tuple[Path, dict[str, str]]) -> None:
    pytest.importorskip("hermes_cli")
    directory, env = temporary
    done = subprocess.run([*MAIN, "--once", "Please list files"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Let me look at the working directory.\n")
    assert "hello.txt" in done.stdout
    assert 'terminal {"command": "ls -la"}' in done.stderr
    assert not list(directory.iterdir())


@pytest.mark.e2e
def test_once_says_why_there_is_no_answer(temporary: tuple[Path, dict[str, str]]) -> None:
    """Somebody ends the gateway while the model thinks: the run was stopped, and the gateway's log says by what."""
    pytest.importorskip("hermes_cli")
    directory, env = temporary
    command = [*MAIN, "--once", "Please list files", "--first-ms", "60000"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        deadline = time.monotonic() + 90
        while not any("conversation turn:" in log.read_text() for log in directory.glob("*/logs/agent.log")):
            assert time.monotonic() < deadline and demo.poll() is None, "the turn never began"
            time.sleep(0.05)
        time.sleep(0.2)  # the model has been asked: whenever it is, the end is the same
        (gateway,) = (one for one in psutil.Process(demo.pid).children() if "hermes_cli.main" in one.cmdline())
        gateway.terminate()
        out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (1, "")
    assert "the run was stopped" in err
    assert "The gateway's last words:" in err
    assert "Shutdown context: signal=SIGTERM" in err
    assert not list(directory.iterdir())


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(temporary: tuple[Path, dict[str, str]], number: signal.Signals) -> None:
    pytest.importorskip("hermes_cli")
    directory, env = temporary
    with subprocess.Popen(MAIN, env=env, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        printed = []
        for line in demo.stdout:
            printed.append(line)
            if line.startswith("Stop with"):
                break
        curl = next(line for line in printed if line.startswith("curl"))
        console = next(line.split()[1] for line in printed if line.split()[:1] == ["console"])
        assert httpx.get(console, trust_env=False).headers["content-type"].startswith("text/html")
        answer = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=60).stdout
        again = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=60).stdout
        started = psutil.Process(demo.pid).children(recursive=True)
        assert started
        demo.send_signal(number)
        time.sleep(0.05)
        demo.send_signal(number)  # an impatient second one must not cut the cleaning up short
        assert demo.wait(40) == 0
    assert "RUN_FINISHED" in answer
    assert "hello.txt" in answer
    assert "RUN_FINISHED" in again, "the line can be pasted twice"
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not alive
    assert not list(directory.iterdir())


@pytest.mark.e2e
def test_a_signal_during_the_start_ends_everything(temporary: tuple[Path, dict[str, str]]) -> None:
    pytest.importorskip("hermes_cli")
    directory, env = temporary
    with subprocess.Popen(MAIN, env=env, stdout=subprocess.PIPE, text=True) as demo:
        started: list[psutil.Process] = []
        deadline = time.monotonic() + 30
        while not started and time.monotonic() < deadline:
            started = psutil.Process(demo.pid).children(recursive=True)
            time.sleep(0.02)
        assert started
        demo.send_signal(signal.SIGINT)
        assert demo.wait(40) == 0
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not alive
    assert not list(directory.iterdir())
