"""The sample Job calls the server as it can be called, and may write where it does."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from rwkv_server.__main__ import _parser

JOB = Path(__file__).parents[2] / "crds/samples/jobs/acceptance.yaml"


def test_the_job_runs_the_acceptance_command():
    pod = yaml.safe_load(JOB.read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *rest = container["args"][0].splitlines()
    program, *arguments = shlex.split(command)
    options = _parser().parse_args(arguments)
    assert program == "rwkv-server"
    assert options.run.__name__ == "_acceptance"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[str(options.stack.parent)] == "stack"
    assert mounts[str(options.out.parent)] == "tmp"
    assert options.out.name in " ".join(rest)


def test_the_job_is_as_restricted_as_an_engine():
    pod = yaml.safe_load(JOB.read_text())["spec"]["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (pod["securityContext"]["runAsUser"], pod["automountServiceAccountToken"]) == (
        65532,
        False,
    )
