"""Files of the chart that must agree with others: copies, README, the operator's settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from chart import CHART, REPO, find_helm, of_kind

from rwkv_operator import settings

ROW = re.compile(
    r"^\| `(?P<path>[\w.]+)` \| `(?P<default>.*)` \| (?P<meaning>.+) \|$", re.MULTILINE
)
WHOLE = {"operator.resources", "serviceMonitor.labels"}


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that a user sets, by its path."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in WHOLE:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def test_the_readme_lists_every_value_with_its_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = {m["path"]: m["default"] for m in ROW.finditer((CHART / "README.md").read_text())}
    expected = {
        path: value if isinstance(value, str) and value else json.dumps(value, sort_keys=True)
        for path, value in leaves(values)
    }
    assert rows == expected


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def paths(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        if reference := node.get("$ref"):
            node = schema["definitions"][reference.rsplit("/", 1)[1]]
        inner = node.get("properties")
        if not inner or prefix.rstrip(".") in WHOLE:
            yield prefix.rstrip(".")
            return
        for key, child in inner.items():
            yield from paths(child, f"{prefix}{key}.")

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(paths(schema)) - {"global"} == {path for path, _ in leaves(values)}


def test_copies_are_current() -> None:
    done = subprocess.run([sys.executable, str(CHART / "sync.py"), "--check"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_copy_is_found(tmp_path: Path) -> None:
    shutil.copytree(REPO / "crds", tmp_path / "crds")
    shutil.copytree(CHART, tmp_path / "charts" / "rwkv-operator")
    script = tmp_path / "charts" / "rwkv-operator" / "sync.py"
    source = tmp_path / "crds" / "stacks" / "cpu.yaml"
    source.write_text(source.read_text() + "# changed\n")
    check = [sys.executable, str(script), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 1
    assert "files/stacks/cpu.yaml" in done.stderr
    subprocess.run([sys.executable, str(script)], check=True)
    assert subprocess.run(check).returncode == 0


def test_the_operator_understands_the_environment_that_the_chart_sets() -> None:
    objects = find_helm().render("watchNamespace=team-a", "operator.workers=7")
    (container,) = of_kind(objects, "Deployment")["rwkv-operator"]["spec"]["template"]["spec"][
        "containers"
    ]
    environ = {entry["name"]: str(entry.get("value", "")) for entry in container["env"]}
    environ["POD_NAMESPACE"] = "rwkv-system"
    parsed = settings.parse_settings(environ)
    labels = of_kind(objects, "Deployment")["rwkv-operator"]["spec"]["selector"]["matchLabels"]
    assert parsed.labels == labels
    assert parsed.watch_namespace == "team-a"
    assert parsed.workers == 7
    assert parsed.catalogue == "/etc/rwkv/catalogue"
    assert (parsed.operator_image, parsed.router_image) == (
        "ghcr.io/rwkv-operator/operator:0.1.0",
        "ghcr.io/rwkv-operator/router:0.1.0",
    )


def test_no_variable_of_the_chart_is_unknown_to_the_operator() -> None:
    (container,) = of_kind(find_helm().render(), "Deployment")["rwkv-operator"]["spec"]["template"][
        "spec"
    ]["containers"]
    source = Path(settings.__file__).read_text()
    names = [entry["name"] for entry in container["env"]]
    assert [name for name in names if f'"{name}"' not in source] == []


def test_the_operator_knows_the_command_that_the_chart_gives() -> None:
    (container,) = of_kind(find_helm().render(), "Deployment")["rwkv-operator"]["spec"]["template"][
        "spec"
    ]["containers"]
    command = [sys.executable, "-m", "rwkv_operator", *container["args"], "--help"]
    environ = os.environ | {"PYTHONPATH": str(REPO / "operator")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
