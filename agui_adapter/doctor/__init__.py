"""`hermes-agui doctor`: looks at the installation, the settings and the running gateway, and says what to do.

Exit codes: 0 nothing is wrong (there may be warnings), 1 something does not work, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from dataclasses import asdict
from typing import Any

from . import installed
from .findings import Finding

_SIGNS = {"ok": "✓", "note": "·", "warning": "!", "error": "✗"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--no-run", action="store_true", help="leave out the round trip, which asks the model for one word"
    )
    parser.add_argument("--offline", action="store_true", help="look at the installation and the settings only")


def run(args: argparse.Namespace) -> int:
    """Look at everything, print it, return the exit code."""
    logging.disable(logging.WARNING)  # Hermes's own modules talk while they are imported
    findings = examine(live=not args.offline, trip=not (args.no_run or args.offline))
    bad = any(one.level == "error" for one in findings)
    if args.json:
        print(json.dumps({"ok": not bad, "findings": [asdict(one) for one in findings]}, ensure_ascii=False, indent=2))
    else:
        for one in findings:
            print(f"{_SIGNS[one.level]} {one.check}: {one.text}")
            if one.do and one.level != "ok":
                print(f"    → {one.do}")
        print("\nSomething does not work; see ✗." if bad else "\nNothing is wrong.", file=sys.stderr)
    return 1 if bad else 0


def examine(*, live: bool = True, trip: bool = True) -> list[Finding]:
    """Every finding, in the order in which things depend on each other. Runs an event loop of its own."""
    findings = list(installed.packages())
    if any(one.check == "hermes" and one.level == "error" for one in findings):
        return findings
    try:
        from agui_adapter.hermes import installation
        from gateway_plugins.agui import missing_packages

        config, environ = installation.configuration(), installation.environment()
        extra = installation.platform_settings(config)
    except Exception as error:
        text = f"Hermes's configuration cannot be read ({type(error).__name__}: {error})"
        return [*findings, Finding("config", "error", text, "hermes doctor")]
    findings += installed.plugin(config, missing_packages())
    settings, told = installed.settings(extra, environ)
    findings += told
    if settings is None:
        return findings
    findings += installed.who(settings, environ)
    findings += installed.hermes(config, settings, installation.approval_seconds(config))
    if live:
        findings += asyncio.run(_live(config, settings, trip=trip))
    return findings


async def _live(config: dict[str, Any], settings: Any, *, trip: bool) -> list[Finding]:
    from . import live

    findings = [await live.model(config)]
    url, key = live.address(settings), settings.api_key.get_secret_value() if settings.api_key is not None else ""
    ready, told = await live.server(url)
    findings.append(told)
    if ready and key:
        findings += await live.details(url, key)
    if ready and trip:
        findings.append(await live.round_trip(url, key))
    return findings
