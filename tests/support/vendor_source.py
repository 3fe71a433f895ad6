"""Runs single functions and classes of vllm-ascend from its installed source.

The package itself can't be imported without Ascend's libraries; most of what concerns a model's
state is plain Python and torch, which runs as it is on the CPU.
"""

from __future__ import annotations
import __future__

import ast
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/engine-env/ascend/bin/python"
SITE = "import sys; print(*sys.path, sep='\\n')"


def package() -> Path:
    """Where vllm_ascend lies in the environment that `make engine-env STACK=ascend` makes."""
    done = subprocess.run([PYTHON, "-c", SITE], capture_output=True, text=True, check=True)
    folders = [Path(line) for line in done.stdout.splitlines() if line]
    return next(folder / "vllm_ascend" for folder in folders if (folder / "vllm_ascend").is_dir())


def load(file: Path, names: set[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """The functions and classes `names` of a file, methods too, with `namespace` as their globals.

    Annotations stay text, so that types that only they name needn't be there.

    Raises:
        LookupError: the file has no longer what is asked for.
    """
    kinds = (ast.FunctionDef, ast.ClassDef)
    tree = ast.parse(file.read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name in names]
    if missing := names - {node.name for node in found}:
        raise LookupError(f"{file}: no {', '.join(sorted(missing))}")
    made = types.ModuleType(f"vendor_{file.stem}")
    vars(made).update(namespace)
    sys.modules[made.__name__] = made  # where dataclasses look their own module up
    flags = __future__.annotations.compiler_flag
    body = ast.Module(body=list(found), type_ignores=[])
    exec(compile(body, str(file), "exec", flags, dont_inherit=True), vars(made))
    return {name: vars(made)[name] for name in names}
