import copy
import hashlib
import json
from pathlib import Path

import deployments
import pytest
import yaml
from memory_cluster import MemoryCluster

from rwkv_operator import errors
from rwkv_operator.cluster import catalogue

EVIDENCE = {"status": "Validated", "report": "evidence.json", "sha256": "0" * 64}


def stack(**spec: object) -> dict:
    obj = deployments.load(deployments.CRDS / "stacks" / "cpu.yaml")
    obj["spec"] |= spec
    return obj


class Stacks(MemoryCluster):
    """A cluster that also takes evidence."""

    def apply_evidence(self, obj: dict, evidence: dict) -> None:
        self._write("evidence", "evidence")
        live = self.objects[obj["kind"], obj["metadata"]["name"]]
        live["spec"]["evidence"] = evidence


def test_a_missing_stack_is_made_with_its_evidence() -> None:
    cluster = Stacks()
    catalogue.apply_stack(cluster, stack(evidence=EVIDENCE))
    assert cluster.writes == ["make RWKVHardwareStack cpu", "evidence"]
    assert cluster.get("RWKVHardwareStack", None, "cpu")["spec"]["evidence"] == EVIDENCE


def test_a_stack_that_is_as_it_should_be_is_not_written() -> None:
    cluster = Stacks(stack(evidence=EVIDENCE))
    catalogue.apply_stack(cluster, stack(evidence=EVIDENCE))
    assert cluster.writes == []


def test_a_new_image_is_applied_and_evidence_that_is_there_stays() -> None:
    own = {"status": "Unvalidated"}
    cluster = Stacks(stack(evidence=own))
    catalogue.apply_stack(cluster, stack(engineImage="server:2", evidence=EVIDENCE))
    assert cluster.writes == ["apply RWKVHardwareStack cpu"]
    spec = cluster.get("RWKVHardwareStack", None, "cpu")["spec"]
    assert (spec["engineImage"], spec["evidence"]) == ("server:2", own)


@pytest.mark.parametrize("status", [409, 422])
def test_a_stack_that_an_admin_has_changed_does_not_end_the_start(
    status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Stacks(stack(engineImage="own:1"))
    cluster.refuse["RWKVHardwareStack"] = errors.ClusterError("conflict with admin", status)
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(stack()))
    catalogue.apply_catalogue(cluster, tmp_path, "now")
    assert "RWKVHardwareStack cpu: it stays as it is: conflict with admin" in caplog.text
    (event,) = cluster.find("Event", "default")
    assert event["message"] == "it stays as it is: conflict with admin"


class Fixed(Stacks):
    """A cluster that refuses what no stack may change, as the CRD's rule does."""

    def apply(self, obj: dict, uid: str, force: bool = True) -> dict:
        live = self.objects[obj["kind"], obj["metadata"]["name"]]
        if catalogue.find_fixed(live["spec"], obj["spec"]):
            raise errors.ClusterError("only engineImage and evidence can be changed", 422)
        return super().apply(obj, uid, force)


SMALL = {"requests": {"cpu": "1"}}


def test_a_field_that_cannot_be_changed_does_not_keep_the_new_image_away() -> None:
    cluster = Fixed(stack(engineImage="server:1", resources=SMALL))
    problem = catalogue.apply_stack(cluster, stack(engineImage="server:2", resources={}))
    assert problem is not None
    assert 'spec.resources is {"requests": {"cpu": "1"}}, the catalogue has {}' in problem
    assert "delete the stack and restart the operator" in problem and "new name" in problem
    assert "engineImage is set to server:2 all the same" in problem
    spec = cluster.get("RWKVHardwareStack", None, "cpu")["spec"]
    assert (spec["engineImage"], spec["resources"]) == ("server:2", SMALL)


def test_an_image_for_other_requirements_is_kept_away_and_so_is_its_evidence() -> None:
    older = {"packages": {"vllm": "0.1"}}
    cluster = Fixed(stack(engineImage="server:1", runtimeRequirements=older))
    problem = catalogue.apply_stack(cluster, stack(engineImage="server:2", evidence=EVIDENCE))
    assert problem is not None and "engineImage stays server:1: server:2 is made for" in problem
    assert cluster.writes == []


def test_what_the_catalogue_cannot_set_is_told_once_by_an_event(tmp_path: Path) -> None:
    cluster = Fixed(stack(resources=SMALL))
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(stack(resources={})))
    for _ in range(2):
        catalogue.apply_catalogue(cluster, tmp_path, "now")
    (event,) = cluster.find("Event", "default")
    assert (event["type"], event["reason"]) == ("Warning", "CatalogueDiffers")
    assert event["involvedObject"]["kind"] == "RWKVHardwareStack"
    assert "spec.resources" in event["message"]


def test_an_unreachable_api_server_does() -> None:
    cluster = Stacks()
    cluster.refuse["RWKVHardwareStack"] = errors.ClusterError("no answer")
    with pytest.raises(errors.ClusterError, match="no answer"):
        catalogue.apply_stack(cluster, stack())


def test_all_documents_of_all_files_are_read_in_order(tmp_path: Path) -> None:
    second = copy.deepcopy(stack())
    second["metadata"]["name"] = "other"
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(stack()))
    (tmp_path / "a.yaml").write_text("---\n" + yaml.safe_dump_all([second, None]))
    (tmp_path / "readme.txt").write_text("not a stack")
    found = [obj["metadata"]["name"] for obj in catalogue.read_catalogue(tmp_path)]
    assert found == ["other", "cpu"]


def accepted(**changes: object) -> bytes:
    """evidence.json as an acceptance run on the cpu stack writes it; `changes` replace parts."""
    runtime = {"chip": [], **stack()["spec"]["runtimeRequirements"]}
    about = {"name": "cpu", "vendor": "cpu", "runtime": runtime}
    return json.dumps({"stack": about, "result": "ACCEPTANCE_OK", **changes}).encode()


def test_evidence_beside_a_stack_makes_it_validated_by_the_hash_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(stack()))
    (tmp_path / "cpu.evidence.json").write_bytes(accepted())
    (found,) = catalogue.read_catalogue(tmp_path)
    assert found["spec"]["evidence"] == {
        "status": "Validated",
        "report": "cpu.evidence.json of the catalogue",
        "sha256": hashlib.sha256(accepted()).hexdigest(),
    }
    cluster = Stacks()
    catalogue.apply_catalogue(cluster, tmp_path, "now")
    catalogue.apply_catalogue(cluster, tmp_path, "now")
    assert cluster.writes == ["make RWKVHardwareStack cpu", "evidence"]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (accepted(result="ACCEPTANCE_FAILED"), "its result is ACCEPTANCE_FAILED"),
        (accepted(stack={"name": "gpu", "runtime": {}}), "it is about stack gpu"),
        (accepted(stack={"name": "cpu", "runtime": {"cann": "8"}}), "other runtimeRequirements"),
        (accepted(stack=None), "it can't be read"),
        (b"[]", "it can't be read"),
        (b"{", "it can't be read"),
    ],
)
def test_what_isnt_evidence_for_the_stack_leaves_it_unvalidated(
    raw: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(stack()))
    (tmp_path / "cpu.evidence.json").write_bytes(raw)
    (found,) = catalogue.read_catalogue(tmp_path)
    assert "evidence" not in found["spec"]
    assert why in caplog.text


def test_anything_else_in_the_folder_is_refused_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("kind: Pod")
    with pytest.raises(errors.InvalidSpec, match=r"x\.yaml: kind: found Pod"):
        catalogue.read_catalogue(tmp_path)


def test_the_repos_own_evidence_speaks_for_its_stack() -> None:
    folders = sorted((deployments.CRDS / "stacks" / "evidence").iterdir())
    assert [folder.name for folder in folders] == ["cpu"]
    for folder in folders:
        obj = deployments.load(deployments.CRDS / "stacks" / f"{folder.name}.yaml")
        assert catalogue.find_problem(obj, (folder / "evidence.json").read_bytes()) is None
