"""`hermes-agui token`: make, list and revoke named tokens. It works while the gateway runs, and at once."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

from . import tokens
from .principal import SCOPES, Scope
from .store import Store, store_path

DEFAULT: tuple[Scope, ...] = ("read", "run", "approve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    actions = parser.add_subparsers(dest="token_action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a token and show it, this once")
    create.add_argument("name", help="who or what will hold it: small letters, digits and hyphens")
    create.add_argument(
        "--scope",
        action="append",
        choices=sorted(SCOPES),
        help=f"what it is good for; may be given several times (default: {', '.join(DEFAULT)})",
    )
    actions.add_parser("list", help="show the tokens by name; nobody can read them again")
    revoke = actions.add_parser("revoke", help="end a token, from its next request on")
    revoke.add_argument("name")


def run(args: argparse.Namespace) -> int:
    """0 done, 1 not done, with a sentence on standard error."""
    try:
        from hermes_constants import get_hermes_home

        from .hermes import grants
    except ImportError:
        print("Hermes is not installed in this Python: run `hermes agui token` instead.", file=sys.stderr)
        return 1
    store = Store(store_path(get_hermes_home()))
    store.open()
    try:
        if not store.on_disk:
            print(f"{store_path(get_hermes_home())} cannot be written.", file=sys.stderr)
            return 1
        if args.token_action == "create":
            token = tokens.create(store, args.name, args.scope or DEFAULT)
            grants.grant(tokens.principal_of(args.name), args.name)
            print(f"The token {args.name!r}. It is shown this once; keep it like a password:", file=sys.stderr)
            print(token)
        elif args.token_action == "list":
            for record in store.tokens():
                made = datetime.fromtimestamp(record.created).isoformat(sep=" ", timespec="minutes")
                print(f"{record.name:<24} {tokens.principal_of(record.name):<30} {','.join(record.scopes):<28} {made}")
        else:
            removed = store.remove_token(args.name)
            grants.revoke(tokens.principal_of(args.name))
            if not removed:
                raise ValueError(f"There is no token {args.name!r}.")
            print(f"The token {args.name!r} is good for nothing from now on.", file=sys.stderr)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        store.close()
    return 0
