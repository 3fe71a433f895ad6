"""Evidence of an acceptance run: a folder that can be checked by anybody, and what was put into it.

evidence.json says what ran on what and what came out, trace.jsonl holds the first run's trace, and
SHA256SUMS both files' hashes, so that `sha256sum --check` works too. No times and no host names:
the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rwkv_server.acceptance import trace, verify
from rwkv_server.errors import AcceptanceFailed

SCHEMA = "rwkv-acceptance/1"
OK = "ACCEPTANCE_OK"
EVIDENCE, TRACE, SUMS = "evidence.json", "trace.jsonl", "SHA256SUMS"


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hash_object(value: Any) -> str:
    """SHA-256 of a value as JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_sources(package: Path) -> str:
    """One hash over the sources that run inside an engine: names and contents."""
    files = [package / "plugin.py", package / "vllm_compat.py"]
    for part in ("kernels", "model"):
        files += [p for p in (package / part).rglob("*") if p.suffix in {".py", ".cpp"}]
    return hash_object({str(f.relative_to(package)): hash_file(f) for f in sorted(files)})


def check_target(folder: Path) -> None:
    """Refuse a folder whose evidence could never be accepted, for what else lies in it.

    Raises:
        AcceptanceFailed: it holds other files than evidence, or is none.
    """
    if folder.exists() and not folder.is_dir():
        raise AcceptanceFailed(f"{folder} is no folder; name a new one for the evidence")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = sorted(names - {EVIDENCE, TRACE, SUMS})
    if foreign:
        raise AcceptanceFailed(
            f"{folder} holds {foreign[0]}; name a new or empty folder for the evidence",
            found=", ".join(foreign[:8]),
            wanted="an empty folder",
        )


def write(folder: Path, evidence: Mapping[str, Any], steps: list[trace.Step]) -> None:
    """Write the three files, over earlier ones."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(evidence, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    (folder / EVIDENCE).write_text(text, encoding="utf-8")
    (folder / TRACE).write_bytes(trace.render(steps))
    sums = "".join(f"{hash_file(folder / name)}  {name}\n" for name in (EVIDENCE, TRACE))
    (folder / SUMS).write_text(sums, encoding="ascii")


def check(folder: Path) -> dict[str, Any]:
    """Read a folder of evidence and judge it anew.

    Raises:
        AcceptanceFailed: a file is missing, changed or foreign, or what it says isn't acceptable.
    """
    try:
        return _check(folder)
    except OSError as error:
        raise AcceptanceFailed(f"{error.filename}: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise AcceptanceFailed(f"{folder}: not evidence of this form: {error}") from None


def _check(folder: Path) -> dict[str, Any]:
    _check_sums(folder)
    evidence: dict[str, Any] = json.loads((folder / EVIDENCE).read_bytes())
    if evidence["schema"] != SCHEMA:
        raise AcceptanceFailed(
            f"{folder}: unknown schema", found=str(evidence["schema"]), wanted=SCHEMA
        )
    raw = (folder / TRACE).read_bytes()
    steps = trace.parse(raw)
    if trace.render(steps) != raw or evidence["trace"] != trace.digest(steps):
        raise AcceptanceFailed(f"{folder}: {TRACE} isn't the trace that {EVIDENCE} tells of")
    if evidence["counts"] != trace.count(steps, verify.PROMPTS):
        raise AcceptanceFailed(f"{folder}: the counts don't follow from {TRACE}")
    runs = [verify.Run(**run) for run in evidence["runs"]]
    other = verify.Run(**evidence["otherBudget"])
    checks = verify.evaluate(steps, runs, other, evidence["reference"])
    failed = [check.name for check in checks if not check.ok]
    if failed or evidence["result"] != OK:
        raise AcceptanceFailed(f"{folder}: not accepted: {'; '.join(failed) or evidence['result']}")
    return evidence


def _check_sums(folder: Path) -> None:
    lines = (folder / SUMS).read_text(encoding="ascii").splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    there = {path.name for path in folder.iterdir()} - {SUMS}
    if set(sums) != {EVIDENCE, TRACE} or there != set(sums):
        raise AcceptanceFailed(
            f"{folder} holds other files than it should",
            found=", ".join(sorted(there | set(sums))),
            wanted=f"{EVIDENCE}, {TRACE}",
        )
    for name, digest in sums.items():
        if hash_file(folder / name) != digest:
            raise AcceptanceFailed(f"{folder / name} was changed: its hash isn't {SUMS}'s")
