from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import acceptance_run
import pytest

from rwkv_server.__main__ import main
from rwkv_server.acceptance import evidence, trace, verify
from rwkv_server.errors import AcceptanceFailed

COMMITTED = sorted((Path(__file__).parents[4] / "crds/stacks/evidence").glob("*"))


def document(**changes):
    steps = acceptance_run.play()
    return {
        "schema": evidence.SCHEMA,
        "result": evidence.OK,
        "counts": trace.count(steps, verify.PROMPTS),
        "trace": trace.digest(steps),
        "runs": [asdict(acceptance_run.run())] * 3,
        "otherBudget": asdict(acceptance_run.run(24)),
        "reference": acceptance_run.answers(),
    } | changes


@pytest.fixture
def folder(tmp_path):
    evidence.write(tmp_path / "e", document(), acceptance_run.play())
    return tmp_path / "e"


def test_evidence_that_nobody_touched_is_accepted(folder, capsys):
    assert evidence.check(folder)["result"] == "ACCEPTANCE_OK"
    assert main(["acceptance", "verify", str(folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "ACCEPTANCE_OK"
    assert evidence.hash_file(folder / "evidence.json") in told[0]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)


def test_the_same_run_gives_the_same_bytes(folder, tmp_path):
    evidence.write(tmp_path / "again", document(), acceptance_run.play())
    for name in (evidence.EVIDENCE, evidence.TRACE, evidence.SUMS):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", [evidence.EVIDENCE, evidence.TRACE])
def test_any_changed_byte_is_found(folder, name, capsys):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert main(["acceptance", "verify", str(folder)]) == 1
    assert "was changed" in capsys.readouterr().err


@pytest.mark.parametrize("name", [evidence.EVIDENCE, evidence.TRACE, evidence.SUMS])
def test_a_missing_file_is_found(folder, name):
    (folder / name).unlink()
    with pytest.raises(AcceptanceFailed):
        evidence.check(folder)


def test_a_foreign_file_is_found(folder):
    (folder / "more.txt").touch()
    with pytest.raises(AcceptanceFailed, match="other files than it should"):
        evidence.check(folder)


def test_a_target_with_other_files_is_refused_before_anything_runs(folder, tmp_path, capsys):
    evidence.check_target(folder)
    evidence.check_target(tmp_path / "new")
    (folder / "more.txt").touch()
    for target, words in ((folder, "holds more.txt"), (folder / "more.txt", "is no folder")):
        arguments = ["acceptance", "--model", str(tmp_path / "none"), "--out", str(target)]
        assert main(arguments) == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "rwkv-acceptance/2"}, "unknown schema"),
        ({"result": "FINE"}, "not accepted: FINE"),
        ({"trace": "0" * 64}, "isn't the trace"),
        ({"counts": {}}, "the counts don't follow"),
        ({"reference": {}}, "answers are the reference's"),
        ({"runs": []}, "not evidence of this form"),
        ({"runs": [{"budget": 32}]}, "not evidence of this form"),
    ],
)
def test_whoever_writes_new_sums_is_still_found_by_the_checks(tmp_path, changes, words):
    evidence.write(tmp_path / "e", document(**changes), acceptance_run.play())
    with pytest.raises(AcceptanceFailed, match=words):
        evidence.check(tmp_path / "e")


def test_another_trace_is_found_even_with_right_sums(tmp_path):
    evidence.write(tmp_path / "e", document(), acceptance_run.play(24))
    with pytest.raises(AcceptanceFailed, match="isn't the trace"):
        evidence.check(tmp_path / "e")


@pytest.mark.parametrize("committed", COMMITTED, ids=lambda path: path.name)
def test_committed_evidence_holds_and_is_of_the_stack_it_lies_with(committed):
    found = evidence.check(committed)
    assert found["stack"]["name"] == committed.name
    assert all(not finding["problem"] for finding in found["preflight"])


def test_hashes_of_sources_change_with_any_source(tmp_path):
    package = tmp_path / "package"
    (package / "model").mkdir(parents=True)
    (package / "kernels").mkdir()
    for name in ("plugin.py", "vllm_compat.py", "model/a.py"):
        (package / name).write_text("x")
    before = evidence.hash_sources(package)
    (package / "kernels/k.cpp").write_text("y")
    assert evidence.hash_sources(package) != before
    assert json.loads(json.dumps(before)) == before
