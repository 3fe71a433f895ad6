from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from rwkv_server.metrics import Metrics, sum_samples
from rwkv_server.parent import ops
from rwkv_server.parent.drain import Drainer
from rwkv_server.parent.engine_http import EngineHttp, Health
from rwkv_server.parent.status import Progress, Status
from rwkv_server.preflight.model import ModelInfo
from rwkv_server.preflight.store import StoreReport
from rwkv_server.settings import Drain

CHILD_METRICS = """\
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 5.0
rwkv_http_requests_in_flight 7.0
rwkv_states 12.0
rwkv_states_bytes 34567.0
"""
MODEL = ModelInfo(Path("/m"), "sha256:1", "SafeTensors", "float32", 320, 1000, 5)


class Pod:
    """The ops app over a child that answers as told."""

    def __init__(self, child_status=200):
        def child(request):
            return httpx.Response(child_status, text=CHILD_METRICS)

        self.status = Status(clock=lambda: 12.34)
        self.engine = EngineHttp(8000, httpx.MockTransport(child))
        bounds = Drain(
            routerCheckIntervalSeconds=1, shutdownTimeoutSeconds=1, flushTimeoutSeconds=1
        )
        self.drainer = Drainer(bounds, self.status, self.engine.load, self.engine.flush)
        app = ops.OpsApp(self.status, self.engine, self.drainer, Metrics()).build()
        self.app = app

    async def ask(self, path, method="GET", host="10.0.0.9"):
        transport = httpx.ASGITransport(self.app, client=(host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://pod") as client:
            return await client.request(method, path)


async def test_livez_says_nothing_about_load():
    pod = Pod()
    assert (await pod.ask("/livez")).json() == {"status": "ok"}
    pod.status.child_died = True
    assert (await pod.ask("/livez")).status_code == 503


@pytest.mark.parametrize(
    ("healthy", "draining", "died", "code"),
    [
        (False, False, False, 503),
        (True, False, False, 200),
        (True, True, False, 503),
        (True, False, True, 503),
    ],
)
async def test_readyz(healthy, draining, died, code):
    pod = Pod()
    pod.status.healthy, pod.status.draining, pod.status.child_died = healthy, draining, died
    answer = await pod.ask("/readyz")
    assert answer.status_code == code
    assert answer.json() == {"ready": code == 200, "draining": draining, "phase": "Preflight"}


async def test_progress():
    pod = Pod()
    pod.status.enter("LoadingModel", "starting vLLM")
    pod.status.progress = Progress("loading the weights", 40)
    pod.status.started = 0.0
    assert (await pod.ask("/progress")).json() == {
        "phase": "LoadingModel",
        "message": "loading the weights",
        "percent": 40,
        "elapsed_s": 12.3,
    }


async def test_report_is_there_before_anything_is_known():
    assert (await Pod().ask("/report")).json() == {
        "version": 1,
        "model": None,
        "store": None,
        "states": None,
        "requests": {"running": 0, "waiting": 0},
        "draining": False,
    }


async def test_report_in_full():
    pod = Pod()
    pod.status.healthy = True
    pod.status.model = MODEL
    pod.status.store = StoreReport("perPod", False, "StoreDenied", "no")
    assert (await pod.ask("/report")).json() == {
        "version": 1,
        "model": {
            "digest": "sha256:1",
            "stateBytes": 1000,
            "vocabSize": 320,
            "dtype": "float32",
            "format": "SafeTensors",
        },
        "store": {"kind": "perPod", "ok": False, "reason": "StoreDenied", "message": "no"},
        "states": {"count": 12, "bytes": 34567},
        "requests": {"running": 2, "waiting": 5},
        "draining": False,
    }


async def test_metrics_are_ours_and_the_childs():
    pod = Pod()
    pod.status.healthy = True
    answer = await pod.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert sum_samples(answer.text, "rwkv_engine_ready") == 1
    assert sum_samples(answer.text, "vllm:num_requests_running") == 2


async def test_metrics_without_the_child():
    answer = await Pod().ask("/metrics")
    assert sum_samples(answer.text, "rwkv_engine_child_up") == 0


async def test_only_the_pod_itself_may_start_the_drain():
    pod = Pod()
    assert (await pod.ask("/drain", "POST")).status_code == 403
    assert not pod.status.draining
    answer = await pod.ask("/drain", "POST", host="127.0.0.1")
    assert answer.status_code == 202
    assert answer.json()["draining"] is True
    await pod.drainer.finish()
    answer = await pod.ask("/drain", "POST", host="127.0.0.1")
    assert answer.json() == {"draining": True, "drained": True}


async def test_reading_does_not_drain():
    pod = Pod()
    assert (await pod.ask("/drain", host="127.0.0.1")).status_code == 405
    assert not pod.status.draining


@pytest.mark.parametrize(("code", "health"), [(200, Health.OK), (503, Health.BROKEN)])
async def test_health_of_the_child(code, health):
    assert await Pod(code).engine.health() is health


async def test_a_child_that_does_not_answer():
    def refuse(request):
        raise httpx.ConnectError("refused")

    engine = EngineHttp(8000, httpx.MockTransport(refuse))
    assert await engine.health() is Health.SILENT
    assert await engine.load() is None


async def test_report_of_a_busy_child_shows_the_last_load(monkeypatch):
    pod = Pod()
    pod.status.healthy = True
    await pod.ask("/report")

    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(pod.engine, "load", never)
    monkeypatch.setattr(ops, "REPORT_S", 0.01)
    assert (await pod.ask("/report")).json()["requests"] == {"running": 2, "waiting": 5}
