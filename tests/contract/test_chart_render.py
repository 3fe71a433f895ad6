"""The chart as Helm renders it: the kinds of installation, and values that are refused."""

from __future__ import annotations

from typing import Any

import golden
import pytest
import yaml
from chart import CHART, REPO, find_helm, of_kind

INSTALLATIONS = {
    "default": (),
    "namespaced": ("watchNamespace=team-a", "catalogue.enabled=false"),
    "second": ("crds.enabled=false", "catalogue.enabled=false", "aggregateRoles.enabled=false"),
    "everything": (
        "imagePullSecrets[0].name=pull",
        "operator.nodeSelector.disk=ssd",
        "operator.tolerations[0].operator=Exists",
        "operator.priorityClassName=system-cluster-critical",
        "operator.podLabels.team=a",
        "operator.podAnnotations.note=b",
        "networkPolicy.scrapeFrom[0].namespaceSelector.matchLabels.name=monitoring",
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=prometheus",
    ),
}


def without_crds(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """CRDs are compared with their sources; whole copies of them in golden files would only rot."""
    return [obj for obj in objects if obj["kind"] != "CustomResourceDefinition"]


def without_copies(obj: dict[str, Any]) -> dict[str, Any]:
    """The same without evidence and the hash over it: other tests compare those."""
    if obj["kind"] == "ConfigMap":
        kept = {name: "…" if name.endswith(".json") else text for name, text in obj["data"].items()}
        return {**obj, "data": kept}
    if obj["kind"] == "Deployment":
        annotations = obj["spec"]["template"]["metadata"]["annotations"]
        if "checksum/catalogue" in annotations:
            annotations["checksum/catalogue"] = "…"
    return obj


@pytest.mark.parametrize("case", INSTALLATIONS)
def test_an_installation_has_just_these_objects(case: str) -> None:
    objects = [
        without_copies(obj) for obj in without_crds(find_helm().render(*INSTALLATIONS[case]))
    ]
    golden.check_all(f"chart/{case}", objects)


def test_lint_has_nothing_to_say() -> None:
    done = find_helm().run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_crds_are_the_sources_plus_the_keep_policy() -> None:
    rendered = of_kind(find_helm().render(), "CustomResourceDefinition")
    sources = [yaml.safe_load(path.read_text()) for path in sorted((REPO / "crds").glob("*.yaml"))]
    assert sources
    for source in sources:
        kept = {"helm.sh/resource-policy": "keep"}
        source["metadata"]["annotations"] = {**source["metadata"].get("annotations", {}), **kept}
    assert rendered == {source["metadata"]["name"]: source for source in sources}


def test_no_crds_when_switched_off() -> None:
    assert not of_kind(find_helm().render("crds.enabled=false"), "CustomResourceDefinition")


def test_the_catalogue_names_the_image_of_the_release() -> None:
    objects = find_helm().render("images.server=example.test/engine:v7")
    catalogue = of_kind(objects, "ConfigMap")["rwkv-operator-catalogue"]["data"]
    stacks = REPO / "crds" / "stacks"
    evidence = {path.name: path / "evidence.json" for path in (stacks / "evidence").iterdir()}
    sources = {path.name for path in stacks.glob("*.yaml")}
    assert set(catalogue) == sources | {f"{name}.evidence.json" for name in evidence}
    for name, path in evidence.items():
        assert catalogue[f"{name}.evidence.json"] == path.read_text()
    stack = yaml.safe_load(catalogue["cpu.yaml"])
    source = yaml.safe_load((REPO / "crds" / "stacks" / "cpu.yaml").read_text())
    source["spec"]["engineImage"] = "example.test/engine:v7"
    assert stack == source


def test_a_changed_catalogue_restarts_the_operator() -> None:
    def checksum(*settings: str) -> str:
        template = of_kind(find_helm().render(*settings), "Deployment")["rwkv-operator"]
        return str(template["spec"]["template"]["metadata"]["annotations"]["checksum/catalogue"])

    assert checksum() == checksum("operator.workers=8")
    assert checksum() != checksum("images.server=example.test/engine:v7")


def test_every_name_has_room_for_a_long_release() -> None:
    release = "a-very-long-release-name-of-fifty-three-characters-ok"
    for obj in without_crds(find_helm().render(release=release)):
        assert len(obj["metadata"]["name"]) <= 63


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("images.server=engine", "/images/server"),
        ("images.router=Router:1", "/images/router"),
        ("image.tag=v1", "'image' not allowed"),
        ("operator.replicas=2", "'replicas' not allowed"),
        ("operator.workers=0", "/operator/workers"),
        ("operator.resources.limits.memory=256MB", "/operator/resources/limits/memory"),
        ("watchNamespace=Team_A", "/watchNamespace"),
        ("imagePullPolicy=Sometimes", "/imagePullPolicy"),
        ("crds.enabled=yes", "/crds/enabled"),
        ("networkPolicy.scrapeFrom[0].port=1", "/networkPolicy/scrapeFrom/0"),
        ("serviceMonitor.interval=soon", "/serviceMonitor/interval"),
    ],
)
def test_the_schema_refuses_and_says_where(value: str, words: str) -> None:
    assert words in find_helm().refusal(value)


def test_an_old_kubernetes_is_refused() -> None:
    done = find_helm().run("template", "x", str(CHART), "--kube-version", "1.29.0")
    assert done.returncode != 0
    assert "1.30" in done.stderr


def test_notes_tell_the_next_step() -> None:
    done = find_helm().run("install", "x", str(CHART), "--dry-run=client", "--namespace", "here")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "kubectl apply" in notes
    assert "helm test x -n here" in notes
