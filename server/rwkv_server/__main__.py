"""`rwkv-server`: the commands of an engine pod.

    serve      run the engine until it is asked to end
    drain      Kubernetes' preStop hook: wait until every answer is complete
    fetch      bring the model from its hub, before the engine starts
    check      check the configured model's files and say what they are
    preflight  compare this container and machine with a hardware stack
    acceptance run the acceptance scenario on a real engine; `acceptance verify` checks evidence
    inspect    say everything about a model in a folder or a .pth file, and what is wrong with it
    convert    write a .pth checkpoint as safetensors
    state      list, show, move, fork and erase saved states of a deployment
    version    print the version

Objects are built here and passed on. Commands import what they need when they run, so that `drain`
starts quickly in a busy pod.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rwkv_server.errors import EngineFailed, ServerError
from rwkv_server.states.cli import arguments as state_arguments

CONFIG = Path("/etc/rwkv/engine.yaml")
BUNDLED = Path("/opt/rwkv/models/tiny-recall")
TERMINATION_LOG = Path("/dev/termination-log")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s rwkv-server: %(message)s",
    )
    for chatty in ("httpx", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        return int(options.run(options))
    except ServerError as error:
        if options.termination_log is not None:
            from rwkv_server.parent import termination

            termination.write_message(error, options.termination_log)
        print(f"rwkv-server: {error.reason}: {error.message}", file=sys.stderr, flush=True)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rwkv-server", description=__doc__.splitlines()[0])
    parser.set_defaults(termination_log=None)
    commands = parser.add_subparsers(required=True, metavar="command")
    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument("--config", type=Path, default=CONFIG, help="engine.yaml")

    serve = commands.add_parser("serve", parents=[configured], help="run the engine")
    serve.add_argument(
        "--termination-log",
        type=Path,
        default=TERMINATION_LOG,
        help="existing file for the reason of a failure",
    )
    serve.set_defaults(run=_serve)
    drain = commands.add_parser("drain", parents=[configured], help="wait for open answers")
    drain.set_defaults(run=_drain)
    check = commands.add_parser("check", parents=[configured], help="check the model's files")
    check.set_defaults(run=_check)
    preflight = commands.add_parser("preflight", help="compare this container with a stack")
    preflight.add_argument("--stack", type=Path, required=True, help="an RWKVHardwareStack's file")
    preflight.add_argument("--devices", type=int, help="how many have to be visible, not one more")
    preflight.add_argument("--json", action="store_true", help="for programs")
    preflight.add_argument("--termination-log", type=Path, default=TERMINATION_LOG)
    preflight.set_defaults(run=_preflight)
    acceptance = commands.add_parser("acceptance", help="run the acceptance scenario")
    acceptance.add_argument("--model", type=Path, default=BUNDLED, help="a folder")
    acceptance.add_argument("--stack", type=Path, help="an RWKVHardwareStack's file")
    acceptance.add_argument(
        "--dtype", choices=["Auto", "Float32", "BFloat16", "Float16"], default="Auto"
    )
    acceptance.add_argument("--out", type=Path, help="folder for the evidence")
    acceptance.add_argument("--termination-log", type=Path, default=TERMINATION_LOG)
    acceptance.set_defaults(run=_acceptance)
    verify = acceptance.add_subparsers(metavar="verify").add_parser("verify", help="evidence")
    verify.add_argument("folder", type=Path)
    verify.set_defaults(run=_verify)
    fetch = commands.add_parser("fetch", parents=[configured], help="bring the model from its hub")
    fetch.add_argument("--termination-log", type=Path, default=TERMINATION_LOG)
    fetch.add_argument("--port", type=int, default=8002, help="for GET /progress")
    fetch.set_defaults(run=_fetch)
    inspect = commands.add_parser("inspect", help="say everything about a model")
    inspect.add_argument("path", type=Path, help="a folder, or a .pth file")
    inspect.add_argument("--json", action="store_true", help="for programs")
    inspect.add_argument("--sessions", type=int, default=16, help="maxNumSeqs to plan memory for")
    inspect.add_argument("--format", choices=["Auto", "SafeTensors", "PTH"], default="Auto")
    inspect.set_defaults(run=_inspect)
    convert = commands.add_parser("convert", help="write a .pth checkpoint as safetensors")
    convert.add_argument("source", type=Path, help="a .pth file, or a folder with one")
    convert.add_argument("target", type=Path, help="a new folder")
    convert.set_defaults(run=_convert)
    state = commands.add_parser("state", help="saved states of a deployment")
    state_arguments.add_arguments(state)
    state.set_defaults(run=_state)
    commands.add_parser("version", help="print the version").set_defaults(run=_version)
    return parser


def _serve(options: argparse.Namespace) -> int:
    import asyncio

    from rwkv_server import settings
    from rwkv_server.metrics import Metrics
    from rwkv_server.parent import serve
    from rwkv_server.parent.status import Status

    config = settings.read_settings(options.config)
    key = serve.read_key(Path(config.http.internal_key_file))
    parent = serve.Parent(config, key, Status(), Metrics())
    try:
        asyncio.run(parent.run())
    except ServerError:
        raise
    except Exception as error:
        logging.exception("unexpected error")
        raise EngineFailed(f"unexpected {type(error).__name__}: {error}") from error
    return 0


def _drain(options: argparse.Namespace) -> int:
    from rwkv_server import settings
    from rwkv_server.parent import drain_command

    config = settings.read_settings(options.config)
    wait_s = config.drain.longest_seconds + 5
    print(drain_command.run_drain(config.ops.port, wait_s), flush=True)
    return 0


def _check(options: argparse.Namespace) -> int:
    import dataclasses
    import json

    from rwkv_server import settings
    from rwkv_server.preflight import conversion, location, model

    config = settings.read_settings(options.config)
    wanted = config.model
    files = wanted.download.files if wanted.download else None
    found = location.find_model(Path(wanted.path), wanted.format, files)
    folder = conversion.converted_folder(found, lambda percent: None)
    found = dataclasses.replace(found, folder=folder)
    info = model.check_model(found, wanted.dtype, config.stack.vendor, lambda percent: None)
    print(json.dumps({**vars(info), "path": str(info.path)}, indent=2))
    return 0


def _preflight(options: argparse.Namespace) -> int:
    import json

    from rwkv_server.preflight import stack_check, stack_file
    from rwkv_server.preflight.machine import LocalMachine

    machine = LocalMachine()
    stack = stack_file.read_stack(options.stack)
    findings = stack_check.examine(stack, machine, options.devices)
    if options.json:
        print(json.dumps(stack_check.render_json(stack, findings), indent=2), flush=True)
    else:
        notes = stack_check.describe(stack, machine)
        print(stack_check.render_table(stack, findings, notes), flush=True)
    error = stack_check.build_error(stack.name, findings)
    if error is not None:
        raise error
    return 0


def _acceptance(options: argparse.Namespace) -> int:
    from rwkv_server.acceptance import command

    wanted = command.Wanted(options.model, options.stack, options.dtype, options.out)
    command.run(wanted, lambda line: print(line, flush=True))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from rwkv_server.acceptance import evidence

    found = evidence.check(options.folder)
    digest = evidence.hash_file(options.folder / evidence.EVIDENCE)
    print(f"{options.folder}: trace sha256 {found['trace']}, evidence sha256 {digest}")
    print(found["result"])
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from rwkv_server.fetch import command

    return command.run_fetch(options.config, options.port)


def _inspect(options: argparse.Namespace) -> int:
    import json

    from rwkv_server.inspection import inspect, report

    found = inspect.inspect_model(options.path, options.format, options.sessions)
    print(json.dumps(report.render_json(found), indent=2) if options.json else report.render(found))
    return 65 if found.problems else 0


def _convert(options: argparse.Namespace) -> int:
    from rwkv_server.checkpoint import convert
    from rwkv_server.preflight import location

    pth = location.find_model(options.source, "PTH").pth
    assert pth is not None
    convert.convert(pth, options.target, lambda percent: None)
    print(f"{options.target}: safetensors of {pth}; check with sha256sum --check {convert.SUMS}")
    return 0


def _state(options: argparse.Namespace) -> int:
    import time

    from rwkv_server.states.cli import command

    return command.run(options, time.time)


def _version(options: argparse.Namespace) -> int:
    from importlib import metadata

    print(metadata.version("rwkv-operator"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
