"""The command line of `rwkv-server state`. Standard library only: every start needs it."""

from __future__ import annotations

import argparse
from pathlib import Path

ENDPOINT, KEY = "RWKV_ENDPOINT", "RWKV_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare all commands; which one it is comes out as `work`."""
    parser.add_argument("--endpoint", help=f"such as http://chat.default (or set {ENDPOINT})")
    commands = parser.add_subparsers(
        required=True, metavar="command", dest="work", help=f"the API key is read from {KEY}"
    )
    listed = commands.add_parser("ls", help="list states")
    listed.add_argument("--session")
    listed.add_argument("--json", action="store_true", help="for programs")
    commands.add_parser("show", help="say everything about a state").add_argument("ref")
    exported = commands.add_parser("export", help="write a state to a file")
    exported.add_argument("ref")
    exported.add_argument("file", type=Path, help="a new file")
    imported = commands.add_parser("import", help="make a state from an exported file or a .pth")
    imported.add_argument("file", type=Path)
    forked = commands.add_parser("fork", help="copy a state")
    forked.add_argument("ref")
    for command in (imported, forked):
        command.add_argument("--name", help="of your own; only in a shared store")
        command.add_argument("--ttl", type=float, metavar="SECONDS", help="how long it lives")
    removed = commands.add_parser("rm", help="delete states")
    removed.add_argument("refs", nargs="+", metavar="ref")
    tree = commands.add_parser("tree", help="draw which state continues which")
    tree.add_argument("--session", help="only the trees with a state of this session")
    forgotten = commands.add_parser(
        "forget", help="erase a session, or everything; there is no way back"
    )
    which = forgotten.add_mutually_exclusive_group(required=True)
    which.add_argument("--session")
    which.add_argument("--all", action="store_true", help="every state of this API key's tenant")
