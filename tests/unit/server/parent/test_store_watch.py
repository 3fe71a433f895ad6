from __future__ import annotations

import threading

import engine_config
import yaml

from rwkv_server import settings
from rwkv_server.metrics import Metrics, sum_samples
from rwkv_server.parent import store_watch
from rwkv_server.parent.status import Status
from rwkv_server.preflight.store import StoreReport


def watch(path):
    text = yaml.safe_dump(engine_config.changed(state__path=str(path)))
    status, metrics = Status(), Metrics()
    state = settings.parse_settings(text).state
    return store_watch.StoreWatch(state, status, metrics), status, metrics


async def test_a_probe_is_told_in_status_and_metrics(tmp_path):
    probe, status, metrics = watch(tmp_path)
    await probe.probe()
    assert status.store == StoreReport("perPod", True, "PerPod", status.store.message)
    assert sum_samples(metrics.render(None), "rwkv_state_store_ok") == 1
    tmp_path.rmdir()
    await probe.probe()
    assert status.store.reason == "StoreUnreachable"
    assert sum_samples(metrics.render(None), "rwkv_state_store_probe_failures_total") == 1


async def test_a_volume_that_hangs_gets_one_thread_and_may_come_back(tmp_path, monkeypatch):
    answer = threading.Event()
    started = []

    def hang(state, owner):
        started.append(owner)
        answer.wait()
        return StoreReport(state.store, True, "PerPod", "back")

    monkeypatch.setattr(store_watch, "report_store", hang)
    probe, status, _ = watch(tmp_path)
    for _ in range(3):
        await probe.probe(timeout_s=0.01)
        assert status.store.reason == "StoreUnreachable"
        assert "didn't answer" in status.store.message
    assert len(started) == 1
    answer.set()
    await probe.probe()
    assert status.store.ok
