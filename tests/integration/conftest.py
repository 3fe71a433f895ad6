"""Fixtures of the integration tests: a real API server, made when the first test asks for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rwkv_cluster.apiserver import ApiServer
from rwkv_cluster.progress import Progress

CRDS = Path(__file__).resolve().parents[2] / "crds"


def crd_files() -> list[Path]:
    """The repo's CRDs: known before the controllers start, so that owners are followed at once."""
    return sorted(CRDS.glob("*.yaml"))


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """An API server with our CRDs, the garbage collector and the namespace controller."""
    progress = Progress(sys.__stderr__)
    with ApiServer(controllers=True, manifests=crd_files(), progress=progress) as server:
        yield server


@pytest.fixture(scope="session")
def apiserver_with_workloads() -> Iterator[ApiServer]:
    """The same, with the Deployment and StatefulSet controllers too; pods stay Pending."""
    progress = Progress(sys.__stderr__)
    with ApiServer(workloads=True, manifests=crd_files(), progress=progress) as server:
        yield server
