import deployments
import pytest

from rwkv_operator import names
from rwkv_operator.cluster.kinds import KINDS
from rwkv_operator.handlers.children import WATCHED, deployment_of
from rwkv_operator.handlers.deployment import wants_look
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.handlers.resync import count, enqueue_missed
from rwkv_operator.metrics import Metrics


def chat(observed: int | None = None, ready: str = "False", **metadata: object) -> dict:
    obj = deployments.raw()
    obj["metadata"] |= metadata
    if observed is not None:
        conditions = [{"type": "Ready", "status": ready}]
        obj["status"] = {"observedGeneration": observed, "conditions": conditions}
    return obj


@pytest.mark.parametrize(
    ("kind", "obj", "wanted"),
    [
        pytest.param("ADDED", chat(observed=1), True, id="a new one"),
        pytest.param(None, chat(observed=1), True, id="one of the first list"),
        pytest.param("DELETED", chat(observed=1), True, id="it is gone"),
        pytest.param("MODIFIED", chat(observed=1, generation=2), True, id="its spec has changed"),
        pytest.param("MODIFIED", chat(), True, id="it has no status yet"),
        pytest.param("MODIFIED", chat(observed=1), False, id="the echo of our own status"),
        pytest.param(
            "MODIFIED", chat(observed=1, deletionTimestamp="now"), True, id="it is being deleted"
        ),
    ],
)
def test_an_event_wants_a_look(kind: str | None, obj: dict, wanted: bool) -> None:
    assert wants_look(kind, obj) is wanted


def test_a_child_leads_to_its_deployment() -> None:
    metadata = {"namespace": "talk", "name": "chat-engine", "labels": names.labels("chat")}
    assert deployment_of({"metadata": metadata}) == ("talk", "chat")
    assert deployment_of({"metadata": {"namespace": "talk", "name": "x"}}) is None


def test_everything_that_is_watched_may_be_watched() -> None:
    allowed = {
        (kind.group, kind.version, kind.plural) for kind in KINDS.values() if "watch" in kind.verbs
    }
    own = {
        (names.GROUP, names.VERSION, plural)
        for plural in (names.DEPLOYMENT_PLURAL, names.STACK_PLURAL)
    }
    assert set(WATCHED) | own | {("", "v1", "nodes")} == allowed


async def test_the_slow_loop_finds_what_events_have_missed() -> None:
    queue = WorkQueue(Metrics())
    known, missed, newer = (chat(observed=1, name=name) for name in ("known", "missed", "newer"))
    newer["metadata"]["generation"] = 2
    for name in ("known", "newer"):
        queue.add_later(("talk", name), 100)
    enqueue_missed([known, missed, newer], queue)
    assert sorted([await queue.take(), await queue.take()]) == [
        ("talk", "missed"),
        ("talk", "newer"),
    ]
    queue.close()


def test_the_slow_loop_counts() -> None:
    metrics = Metrics()
    count([chat(observed=1, ready="True"), chat(observed=1), chat()], metrics)
    text = metrics.render().decode()
    assert 'rwkv_operator_deployments{ready="true"} 1.0' in text
    assert 'rwkv_operator_deployments{ready="false"} 2.0' in text
