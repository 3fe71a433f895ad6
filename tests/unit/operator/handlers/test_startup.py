import asyncio

import kopf
import pytest

from rwkv_operator import errors
from rwkv_operator.handlers import children, deployment, startup
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.metrics import Metrics


def test_kopf_writes_nothing_and_none_of_its_own_names_can_get_out() -> None:
    settings = startup.build_kopf_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.persistence.finalizer.startswith("serving.rwkv.dev/")
    assert settings.persistence.progress_storage.prefix == "serving.rwkv.dev"
    assert settings.persistence.diffbase_storage.prefix == "serving.rwkv.dev"


def test_no_handler_wants_a_finalizer_or_keeps_progress() -> None:
    registry = kopf.OperatorRegistry()
    queue, contact = WorkQueue(Metrics()), Contact(lambda: 0.0)
    deployment.register(registry, queue, contact)
    children.register(registry, startup.build_kopf_settings(), queue, contact)
    assert len(registry._watching.get_all_handlers()) == 1 + len(children.WATCHED)
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()


class Absent:
    """A cluster that has no CRDs for a while."""

    def __init__(self, times: int) -> None:
        self.times = times

    def find(self, kind: str, namespace: str | None) -> list:
        self.times -= 1
        if self.times >= 0:
            raise errors.ClusterError("the server could not find the requested resource", 404)
        return []


async def test_it_waits_for_the_crds_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Absent(3)
    await startup.wait_for_kinds(cluster, None, pause=0)  # type: ignore[arg-type]
    assert cluster.times < 0
    assert caplog.text.count("waiting for the CRDs") == 1


async def test_when_one_task_ends_all_end_and_its_error_is_told() -> None:
    cancelled = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def broken() -> None:
        await asyncio.sleep(0)
        raise errors.ClusterError("lost")

    with pytest.raises(errors.ClusterError, match="lost"):
        await startup._first_of(endless(), broken(), endless())
    assert cancelled == [True, True]
