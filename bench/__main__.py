"""`python -m bench [--quick] [--only NAME] [--out DIR]`: measure, print, and write tables and plots (bench/results)."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from . import completion, console, cpu, delay, fanout, first_text, memory, parked, peers, plots, profile, rate, share
from .report import Table, bounds_of, machine, section, today, write
from .rig import Rig

_PARTS = (
    "first-text",
    "completion",
    "profile",
    "delay",
    "rate",
    "share",
    "parked",
    "memory",
    "console",
    "cpu",
    "fanout",
    "peers",
)
_ALONE = {"cpu", "fanout", "peers"}  # need no gateway


def main() -> int:
    """Exit status 0 whether bounds hold or not: the tables say it, and a busy machine is not an error."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs; writes no files")
    parser.add_argument("--only", choices=_PARTS, action="append", help="this measurement only (may be repeated)")
    parser.add_argument("--out", type=Path, help="directory of the results (default: bench/results)")
    arguments = parser.parse_args()
    facts, when = machine(), today()
    print("; ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    tables = []
    for table in _tables(arguments.quick, arguments.only or _PARTS):
        print(section(table), flush=True)
        tables.append(table)
    print(bounds_of(tables))
    out = arguments.out or (None if arguments.quick else Path(__file__).parent / "results")
    if out is not None:
        for path in [*write(tables, facts, when, out), *plots.draw(tables, when, out)]:
            print(f"written: {path}", file=sys.stderr)
    return 0


def _tables(quick: bool, parts: tuple[str, ...] | list[str]) -> Iterator[Table]:
    with contextlib.ExitStack() as stack:
        if set(parts) - _ALONE:
            _say("starting a gateway")
            rig = stack.enter_context(Rig())
        if "first-text" in parts:
            _say("time to first text")
            yield first_text.measure(rig, rounds=2 if quick else 50, unmeasured=1 if quick else 2)
        if "completion" in parts:
            _say("whole chat completions")
            yield completion.measure(rig, rounds=2 if quick else 50, unmeasured=1 if quick else 2)
        if "profile" in parts:
            _say("where the time goes")
            table = profile.measure(rig, threads=3 if quick else 20)
            if table is None:
                _say("py-spy is not there (extra `bench`), or may not look at the gateway")
            else:
                yield table
        if "delay" in parts:
            _say("added delay")
            yield delay.measure(
                rig, paced=40 if quick else 1000, unpaced=200 if quick else 5000, many=20 if quick else 500
            )
        if "rate" in parts:
            _say("deltas per second")
            yield rate.measure(rig, deltas=200 if quick else 3000, rounds=1 if quick else 5)
        if "share" in parts:
            _say("what the adapter costs a turn")
            yield share.measure(rig, deltas=200 if quick else 2000, pairs=3 if quick else 150)
        if "parked" in parts:
            _say("beside parked turns")
            yield parked.measure(rig, parked=4 if quick else 64, rounds=2 if quick else 15)
        if "memory" in parts:
            _say("memory")
            yield memory.measure(rig, streams=20 if quick else 200, parked=4 if quick else 64)
        if "console" in parts:
            if reason := console.missing():
                _say(f"the web console is left out: {reason}")
            else:
                _say("the web console")
                yield console.measure(rig, *((300, 2, 40, 1) if quick else (5000, 4, 2000, 5)))
    # The gateway has ended by now: nothing else of ours runs while CPU time is counted.
    if "cpu" in parts:
        _say("CPU per delta")
        yield cpu.measure(*((40, 500, 1) if quick else (250, 10_000, 5)))
    if "fanout" in parts:
        _say("fan-out and replay")
        yield fanout.measure(*((200, 500, 1) if quick else (2000, 10_000, 9)))
    if "peers" in parts:
        _say("other AG-UI servers")
        yield peers.measure(2000, 5, peers=() if quick else peers.PEERS)


def _say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
