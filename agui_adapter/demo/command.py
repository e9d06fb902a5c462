"""`hermes-agui demo`: the scripted model and a real gateway, started together and ended together.

Only the standard library and this package: Hermes runs in the child. Main thread only, since it handles signals.
"""

import argparse
import contextlib
import http.client
import importlib.metadata
import importlib.util
import json
import shlex
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

from agui_adapter.chat.outcome import FAILED
from agui_adapter.chat.screen import Screen
from agui_adapter.demo.gateway import Gateway, GatewayError, free_port
from agui_adapter.demo.model import BackgroundModel
from agui_adapter.peers import PROTOCOL_VERSION
from agui_adapter.sse import SseParser

DEFAULT_PORT = 8650

_PORTS_TRIED = 50
_SILENCE_SECONDS = 90.0  # the server sends a comment at least every 15 s, so this is a dead one
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `demo` to `parser`."""
    parser.add_argument("--once", metavar="TEXT", help="ask this, print the answer as it streams, and exit")
    parser.add_argument("--port", type=int, help=f"default {DEFAULT_PORT}, or the next free one if it is taken")
    parser.add_argument("--first-ms", type=float, default=0, help="the model's wait before its first chunk")
    parser.add_argument("--delta-ms", type=float, default=0, help="the model's time between two deltas")
    parser.add_argument("--keep", action="store_true", help="leave the temporary HERMES_HOME in place")
    parser.add_argument("--verbose", action="store_true", help="show the gateway's log on standard error")


def run(args: argparse.Namespace) -> int:
    """Run the demo until it is stopped, or for one answer with `--once`.

    Returns the exit status: 0; 1 for a failure or an empty answer; 2 if something is not installed; 3 if the answer
    to `--once` waits for a human; 130 if `--once` was interrupted.
    """
    missing = _missing()
    if missing is not None:
        return _fail(missing, 2)
    try:
        port = _choose_port(args)
    except (OSError, OverflowError) as error:
        return _fail(f"Port {args.port} of 127.0.0.1 cannot be used ({error}). Choose another with --port.")
    with _interruptible() as end_interruptions:
        try:
            with contextlib.ExitStack() as stack:
                return _run(args, port, stack, end_interruptions)
        except KeyboardInterrupt:
            if args.once is None:
                print("\nStopped.")
                return 0
            return 130
        except GatewayError as error:
            return _fail(str(error))


def _run(
    args: argparse.Namespace, port: int, stack: contextlib.ExitStack, end_interruptions: Callable[[], None]
) -> int:
    model = stack.enter_context(BackgroundModel(first_ms=args.first_ms, delta_ms=args.delta_ms))
    gateway = Gateway(model, agui={"port": port}, keep=args.keep, verbose=args.verbose)
    if args.keep:
        stack.callback(print, f"Kept: {gateway.home}", file=sys.stderr)
    _furnish(gateway.work_dir)
    if args.verbose:
        stack.enter_context(_following(gateway.log_path))
    if args.once is None:
        print("Starting the scripted model and a Hermes gateway …", flush=True)
    stack.enter_context(gateway)
    stack.callback(end_interruptions)  # runs before the gateway's end, which a signal must not cut short
    if args.once is not None:
        status = _ask(gateway.port, args.once)
        if status == FAILED:  # its home, and with it what it has logged, is about to be removed
            print(f"The gateway's last words:\n{_tail(gateway.agent_log_text())}", file=sys.stderr)
        return status
    print(_welcome(gateway, model.url, args.keep), flush=True)
    while gateway.running:
        time.sleep(0.2)
    return _fail(
        f"The gateway ended by itself (status {gateway.returncode}); its last words:\n{_tail(gateway.log_text())}"
    )


def curl_line(url: str) -> str:
    """A command that runs one turn when pasted. The ids hold the time, so that it may be pasted again."""
    body = (
        '{"threadId":"demo","runId":"run-NOW","messages":'
        '[{"id":"msg-NOW","role":"user","content":"Please list the files here"}]}'
    )
    quoted = shlex.quote(body).replace("NOW", "'$(date +%s)'")
    return f"curl -N {url}/agui -H 'Content-Type: application/json' -d {quoted}"


# --- the parts of the running demo


def _missing() -> str | None:
    """What is not installed, as a sentence with the command that helps, or None."""
    if importlib.util.find_spec("hermes_cli") is None:
        return "The demo needs Hermes Agent in this Python environment: pip install 'hermes-agent==0.19.0'"
    if not importlib.metadata.entry_points(group="hermes_agent.plugins", name="agui"):
        return "Hermes finds plugins by their package, and this one is not installed: pip install hermes-agui"
    return None


def _choose_port(args: argparse.Namespace) -> int:
    if args.port is not None:
        return free_port(args.port)
    return free_port(0) if args.once is not None else free_port(DEFAULT_PORT, _PORTS_TRIED)


def _furnish(work_dir: Path) -> None:
    """Give "list files" something to find."""
    work_dir.mkdir(parents=True, exist_ok=True)
    (work_dir / "hello.txt").write_text("Hello from the demo's working directory.\n", "utf-8")
    (work_dir / "notes.md").write_text("# Notes\n\n- the agent runs its commands here\n", "utf-8")


def _welcome(gateway: Gateway, model_url: str, keep: bool) -> str:
    return f"""
A real Hermes gateway is running, with a scripted model and no provider behind it.

  console {gateway.url}/
  AG-UI   {gateway.url}/agui
  model   {model_url}
  home    {gateway.home} ({"kept" if keep else "removed at the end"})

Talk to it from another terminal:

{curl_line(gateway.url)}

Stop with Ctrl-C.
"""


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Turn the first signal into KeyboardInterrupt and ignore later ones, which would cut the cleaning up short.

    Yields a function after which no signal interrupts any more.
    """

    def ignore() -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore()
        raise KeyboardInterrupt

    # Set explicitly: a shell starts a background job with SIGINT ignored.
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _following(path: Path) -> Iterator[None]:
    """Copy what is appended to `path` to standard error, from a thread."""
    ended = threading.Event()

    def copy() -> None:
        position = 0
        while True:
            last = ended.wait(0.2)
            with contextlib.suppress(FileNotFoundError), path.open("rb") as log:
                log.seek(position)
                text = log.read()
                position += len(text)
                sys.stderr.write(text.decode("utf-8", "replace"))
                sys.stderr.flush()
            if last:
                return

    thread = threading.Thread(target=copy, name="demo-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])


def _fail(sentence: str, status: int = 1) -> int:
    print(sentence, file=sys.stderr)
    return status


# --- one answer


def _ask(port: int, text: str) -> int:
    """POST one run and print its answer as it comes. Returns the exit status."""
    ids = uuid.uuid4().hex[:8]
    message = {"id": f"msg-{ids}", "role": "user", "content": text}
    body = {
        "threadId": f"demo-{ids}",
        "runId": f"run-{ids}",
        "protocolVersion": PROTOCOL_VERSION,  # or a run that was stopped would end like one that is done
        "messages": [message],
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SILENCE_SECONDS)
    try:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        connection.request("POST", "/agui", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            return _fail(f"The gateway answered {response.status}: {response.read().decode('utf-8', 'replace')}")
        return print_answer(iter(lambda: response.read1(65536), b""))
    except (OSError, http.client.HTTPException) as error:
        return _fail(f"The connection to the gateway broke: {error or type(error).__name__}")
    finally:
        connection.close()


def print_answer(chunks: Iterable[bytes]) -> int:
    """Print an event stream: text on standard output, tool calls and the rest on standard error.

    Returns 0; 1 if the run failed, said nothing or did not end; 3 if it waits for an answer.
    """
    parser, screen = SseParser(), Screen(sys.stdout, sys.stderr)
    said = False
    for chunk in chunks:
        for frame in parser.feed(chunk):
            event = json.loads(frame.data)
            said = said or event["type"] == "TEXT_MESSAGE_CONTENT"
            screen.show(event, frame.data)
    screen.end_line()
    if screen.code is None:
        return _fail("The stream ended before the run did.")
    if screen.code == 0 and not said:
        return _fail("The run ended without an answer.")
    return screen.code
