"""Write the hash-pinned constraint files that follow from pyproject.toml.

`operator.txt` goes into the operator's image, `dev.txt` into the development environment,
`build.txt` builds our own package inside images. The engines' files are `engine_env.py --lock`'s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
CONSTRAINTS = REPO / "image" / "constraints"
SOURCES = {
    "operator": ["pyproject.toml", "--extra", "operator"],
    "dev": ["pyproject.toml", "--extra", "dev", "--no-emit-package", "rwkv-operator"],
    "build": ["image/constraints/build.in"],
}
HEAD = "# Made by `python image/lock.py {name}`.\n"


def lock(name: str) -> None:
    """Resolve one set anew and write its file; exits with uv's own message when that fails."""
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"]
    options += ["--no-header", "--no-emit-index-url", "--quiet"]
    command = ["uv", "pip", "compile", *SOURCES[name], *options]
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"lock: `uv pip compile` failed for {name}, see above")
    target = CONSTRAINTS / f"{name}.txt"
    target.write_text(HEAD.format(name=name) + done.stdout)
    print(f"{target.relative_to(REPO)}: {done.stdout.count('==')} packages", file=sys.stderr)


def main() -> None:
    """Lock the named sets, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", choices=[*SOURCES, []], help="default: all")
    for name in parser.parse_args().name or SOURCES:
        lock(name)


if __name__ == "__main__":
    main()
