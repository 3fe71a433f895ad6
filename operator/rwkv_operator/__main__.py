"""The operator's program: `rwkv-operator run`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from rwkv_operator import errors
from rwkv_operator.handlers import startup
from rwkv_operator.settings import parse_settings


def main() -> int:
    """Parse the command line and serve; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="rwkv-operator", description="Serves RWKVDeployments of a Kubernetes cluster."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run the operator; settings are environment variables RWKV_*")
    parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # It tells of every connection and every watch.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        asyncio.run(startup.run(parse_settings(os.environ)))
    except errors.OperatorError as error:
        print(f"rwkv-operator: {error}", file=sys.stderr)
        return 2 if isinstance(error, errors.SettingsError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
