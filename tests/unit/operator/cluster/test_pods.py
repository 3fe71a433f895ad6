import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.observed import FetchReport
from rwkv_operator.cluster.pods import PodReports

ENGINE = {
    ":8001/progress": {"phase": "Ready", "message": "", "percent": None, "elapsed_s": 3.0},
    ":8001/report": {
        "version": 1,
        "model": {"digest": "sha256:1", "stateBytes": 10, "vocabSize": 320},
        "store": {"kind": "perPod", "ok": True, "reason": "PerPod", "message": ""},
        "requests": {"running": 0, "waiting": 0},
        "draining": False,
    },
}
REPORT: dict[str, Any] = ENGINE[":8001/report"]
ROUTER = {
    ":8405/status": {"configHash": "hash-1", "secretHash": "s", "error": None},
    ":8404/readyz": {},
}


class World:
    """Pods that answer."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def reports(self) -> PodReports:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return PodReports(http)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        for suffix, body in self.answers.items():
            if str(request.url).endswith(suffix):
                if isinstance(body, Callable):
                    return body(request)
                return httpx.Response(200, json=body)
        raise httpx.ConnectTimeout("no answer", request=request)


async def test_all_pods_are_asked_on_their_ops_ports() -> None:
    world = World({**ENGINE, **ROUTER})
    told = await world.reports().ask("talk", "chat", (seen.engine(0), seen.router(0)))
    assert told.engines == {"chat-engine-0": seen.REPORT}
    assert told.routers == {"chat-router-0": seen.ROUTER}
    assert sorted(world.asked) == [
        "http://10.1.0.1:8001/progress",
        "http://10.1.0.1:8001/report",
        "http://10.1.1.1:8404/readyz",
        "http://10.1.1.1:8405/status",
    ]


async def test_a_router_that_is_not_ready_sees_no_engine() -> None:
    world = World({**ROUTER, ":8404/readyz": lambda _: httpx.Response(503)})
    told = await world.reports().ask("talk", "chat", (seen.router(0),))
    assert told.routers["chat-router-0"].sees_engine is False


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: httpx.Response(500),
        lambda _: httpx.Response(200, text="<html>"),
        lambda _: httpx.Response(200, json=[]),
        lambda _: httpx.Response(200, json={"model": {"digest": 1}}),
        lambda request: (_ for _ in ()).throw(httpx.ReadTimeout("slow", request=request)),
        lambda _: httpx.Response(200, json={**REPORT, "more": "x" * 2**16}),
        lambda _: httpx.Response(200, text="[" * 2**15),
        lambda _: httpx.Response(200, text=json.dumps(REPORT).replace(": 10,", ": 1e999,")),
        lambda _: httpx.Response(
            200, content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"}
        ),
    ],
    ids=[
        "an error",
        "no JSON",
        "no object",
        "another shape",
        "too slow",
        "too long",
        "too deep",
        "too much",
        "packed",
    ],
)
async def test_what_cannot_be_read_is_unknown(answer: Any) -> None:
    world = World({**ENGINE, ":8001/report": answer})
    told = await world.reports().ask("talk", "chat", (seen.engine(0),))
    assert told.engines == {}


async def test_a_pod_that_never_ends_its_answer_holds_up_nobody() -> None:
    class Drops(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.001)
                yield b" "

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "10.1.0.1":
            return httpx.Response(200, stream=Drops())
        return httpx.Response(200, content=json.dumps(ENGINE[f":8001{request.url.path}"]))

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    told = await PodReports(http, deadline=0.1).ask(
        "talk", "chat", (seen.engine(0), seen.engine(1))
    )
    assert told.engines == {"chat-engine-1": seen.REPORT}


async def test_long_words_are_cut_to_what_a_condition_can_take() -> None:
    words = {"phase": "p" * 9000, "message": "m" * 9000}
    world = World({**ENGINE, ":8001/progress": words})
    told = await world.reports().ask("talk", "chat", (seen.engine(0),))
    report = told.engines["chat-engine-0"]
    assert (len(report.phase), len(report.message)) == (1024, 1024)


@pytest.mark.parametrize(
    "status",
    [pod_objects.unscheduled("full"), pod_objects.crashed(1)],
    ids=["no address", "crashed"],
)
async def test_pods_that_cannot_answer_are_not_asked(status: dict) -> None:
    world = World(ENGINE)
    assert (await world.reports().ask("talk", "chat", (seen.engine(0, **status),))).engines == {}
    assert world.asked == []


FETCH = {
    "phase": "Downloading",
    "message": "model.safetensors",
    "percent": 40,
    "bytes": 400,
    "total": 1000,
    "rate": 7,
}


@pytest.mark.parametrize("restarts", [0, 1], ids=["first try", "again after a crash"])
async def test_a_pod_that_downloads_is_asked_how_far_it_is(restarts: int) -> None:
    world = World({**ENGINE, ":8002/progress": FETCH})
    pod = seen.engine(0, **pod_objects.fetching(restarts=restarts))
    told = await world.reports().ask("talk", "chat", (pod,))
    report = FetchReport("Downloading", "model.safetensors", 40, 400, 1000, 7)
    assert told.fetches == {"chat-engine-0": report}
    assert told.engines == {}
    assert world.asked == ["http://10.1.0.1:8002/progress"]


@pytest.mark.parametrize("answer", [{}, {"phase": "Downloading", "percent": "x"}])
async def test_a_download_that_cannot_be_read_is_unknown(answer: dict[str, Any]) -> None:
    world = World({":8002/progress": answer})
    pod = seen.engine(0, **pod_objects.fetching())
    assert (await world.reports().ask("talk", "chat", (pod,))).fetches == {}


async def test_what_the_download_said_is_nothing_the_engine_says() -> None:
    world = World({":8002/progress": FETCH})
    reports = world.reports()
    await reports.ask("talk", "chat", (seen.engine(0, **pod_objects.fetching()),))
    world.answers.clear()
    told = await reports.ask("talk", "chat", (seen.engine(0, **pod_objects.loading()),))
    assert (told.engines, told.fetches) == ({}, {})


async def test_an_ipv6_address_is_written_in_brackets() -> None:
    world = World(ENGINE)
    await world.reports().ask("talk", "chat", (seen.engine(0, **pod_objects.ready("fd00::1")),))
    assert "http://[fd00::1]:8001/report" in world.asked


async def test_a_few_missed_answers_are_forgiven() -> None:
    world = World(dict(ENGINE))
    reports = world.reports()
    pod = seen.engine(0)
    assert not (await reports.ask("talk", "chat", (pod,))).missed
    world.answers.clear()
    for _ in range(2):
        told = await reports.ask("talk", "chat", (pod,))
        assert (told.engines, told.missed) == ({"chat-engine-0": seen.REPORT}, True)
    told = await reports.ask("talk", "chat", (pod,))
    assert (told.engines, told.missed) == ({}, False)


async def test_a_restarted_container_has_to_report_anew() -> None:
    world = World(dict(ENGINE))
    reports = world.reports()
    await reports.ask("talk", "chat", (seen.engine(0),))
    world.answers.clear()
    restarted = pod_objects.loading()
    restarted["containerStatuses"][0]["containerID"] = "containerd://2"
    assert (await reports.ask("talk", "chat", (seen.engine(0, **restarted),))).engines == {}


async def test_what_is_gone_is_forgotten() -> None:
    world = World(dict(ENGINE))
    reports = world.reports()
    await reports.ask("talk", "chat", (seen.engine(0),))
    reports.forget("talk", "chat")
    world.answers.clear()
    assert (await reports.ask("talk", "chat", (seen.engine(0),))).engines == {}
