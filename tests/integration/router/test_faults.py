"""Engines that die, drain, hang or are busy, and a DNS server that is gone."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from router_rig import Rig, deployment, eventually

from rwkv_operator.api import spec
from rwkv_operator.manifests import router_sizing

pytestmark = pytest.mark.haproxy

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
STREAM = {**CHAT, "stream": True}
SESSIONS = [{"x-session-id": f"session-{index}"} for index in range(60)]


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error in OpenAI's shape."""
    return answer.status_code, answer.json()["error"]["code"]


def homes(rig: Rig, router: int) -> list[str]:
    """The engine of each session, as one router sees it."""
    return [rig.home(router, headers=session, json=CHAT) for session in SESSIONS]


def small(**fields: object) -> spec.Deployment:
    """One engine, with short timeouts."""
    timeouts = spec.Timeouts(request_seconds=2, response_seconds=1, queue_seconds=1)
    routing = spec.Routing(max_engine_replicas=2, timeouts=timeouts)
    return deployment(replicas=1, routing=routing, **fields)


def test_only_the_sessions_of_a_lost_engine_move_and_they_come_back(own_rig: Rig) -> None:
    before = homes(own_rig, 0)
    own_rig.kill_engine(1)
    # At once: not a single request fails, whatever the checks know already.
    after = homes(own_rig, 0)
    moved = [index for index in range(len(SESSIONS)) if before[index] != after[index]]
    assert moved == [index for index, home in enumerate(before) if home == "chat-engine-1"]
    assert len({after[index] for index in moved}) == 2, "all of them moved to one engine"
    own_rig.wait_for_engines(2)
    assert homes(own_rig, 1) == after
    own_rig.revive_engine(1)
    own_rig.wait_for_engines(3)
    assert homes(own_rig, 0) == homes(own_rig, 1) == before


def test_a_ref_goes_elsewhere_while_its_engine_is_down(own_rig: Rig) -> None:
    ref = {"path": "/v1/states/p2-abcdefgh-x"}
    assert own_rig.home(**ref) == "chat-engine-2"
    own_rig.kill_engine(2)
    own_rig.wait_for_engines(2)
    away = own_rig.home(0, **ref)
    assert away != "chat-engine-2" and away == own_rig.home(1, **ref)
    own_rig.revive_engine(2)
    own_rig.wait_for_engines(3)
    assert own_rig.home(**ref) == "chat-engine-2"


def test_a_new_ordinal_is_used_without_a_reload(own_rig: Rig) -> None:
    before = homes(own_rig, 0)
    own_rig.engines.append(own_rig.new_engine(3))
    own_rig.call(own_rig.engines[3].start())
    own_rig.name_engine(3)
    own_rig.wait_for_engines(4)
    after = homes(own_rig, 0)
    assert after == homes(own_rig, 1)
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"chat-engine-3"}


def test_a_draining_engine_ends_its_streams_and_gets_nothing_new(own_rig: Rig) -> None:
    before = homes(own_rig, 0)
    drained = own_rig.engines[0]
    mine = [s for s, home in zip(SESSIONS, before, strict=True) if home == drained.name]
    others = [s for s, home in zip(SESSIONS, before, strict=True) if home != drained.name]
    for engine in own_rig.engines:
        engine.tokens, engine.pause = 30, 0.1
    with ThreadPoolExecutor(20) as pool:
        streams = [
            pool.submit(own_rig.ask, index % 2, headers=mine[index % len(mine)], json=STREAM)
            for index in range(20)
        ]
        eventually(lambda: drained.running == 20)
        drained.ready = False
        own_rig.wait_for_engines(2)
        count = len(drained.seen)
        assert all(own_rig.home(headers=session, json=CHAT) != drained.name for session in mine)
        assert [own_rig.home(headers=session, json=CHAT) for session in others] == [
            home for home in before if home != drained.name
        ]
        answers = [stream.result() for stream in streams]
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert len(drained.seen) == count
    drained.ready = True
    own_rig.wait_for_engines(3)
    assert homes(own_rig, 0) == before


def test_a_token_passes_before_the_next_one_is_made(rig: Rig) -> None:
    for engine in rig.engines:
        engine.tokens, engine.pause = 4, 0.3
    completed = sum(engine.completed for engine in rig.engines)
    url = f"{rig.routers[0].url}/v1/chat/completions"
    headers = {"authorization": "Bearer key-of-alice"}
    tokens = 0
    with rig.client.stream("POST", url, json=STREAM, headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                tokens += 1
                assert sum(engine.running for engine in rig.engines) == 1
                assert sum(engine.completed for engine in rig.engines) == completed
    assert tokens == 4


def test_a_client_that_leaves_is_noticed(rig: Rig) -> None:
    engine = rig.engines[1]
    for each in rig.engines:
        each.tokens, each.pause = 1000, 0.05
    aborted = engine.aborted
    url = f"{rig.routers[0].url}/v1/chat/completions"
    headers = {"authorization": "Bearer key-of-alice"}
    body = {**STREAM, "state": {"ref": "p1-abcdefgh-x"}}
    with rig.client.stream("POST", url, json=body, headers=headers) as answer:
        next(answer.iter_lines())
    eventually(lambda: engine.aborted == aborted + 1 and engine.running == 0)


def test_a_stream_of_a_dying_engine_is_cut_and_not_run_again(own_rig: Rig) -> None:
    for engine in own_rig.engines:
        engine.tokens, engine.pause = 1000, 0.05
    ref = {"json": {**STREAM, "state": {"ref": "p0-abcdefgh-x"}}}
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(own_rig.ask, **ref)
        eventually(lambda: own_rig.engines[0].running == 1)
        own_rig.kill_engine(0)
        assert isinstance(stream.exception(), httpx.TransportError)
    assert sum(len(engine.seen) for engine in own_rig.engines) == 1


def test_a_connection_that_breaks_before_the_answer_is_not_tried_again(own_rig: Rig) -> None:
    for engine in own_rig.engines:
        engine.hang_up = True
    assert code(own_rig.ask(json=CHAT)) == (502, "upstream_failed")
    assert sum(len(engine.seen) for engine in own_rig.engines) == 1


def test_an_engine_that_does_not_answer_is_given_up() -> None:
    with Rig(small(), engines=1, routers=1) as rig:
        rig.engines[0].delay = 3
        assert code(rig.ask(json=CHAT)) == (504, "upstream_timeout")


def test_busy_engines_are_told_from_missing_ones() -> None:
    busy = small(engine=spec.Engine(max_num_seqs=1))
    with Rig(busy, engines=1, routers=1) as rig:
        rig.engines[0].tokens, rig.engines[0].pause = 40, 0.1
        keyless = {"path": "/v1/models"}
        keyed = {"headers": {"x-session-id": "s"}, "json": STREAM}
        with ThreadPoolExecutor(3) as pool:
            streams = [pool.submit(rig.ask, **keyed) for _ in range(3)]
            answers = [stream.result() for stream in streams]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert [code(answer) for answer in refused] == [(503, "overloaded")]
        assert refused[0].headers["retry-after"] == "1"
        assert "busy" in refused[0].json()["error"]["message"]

        rig.kill_engine(0)
        for request in (keyless, keyed):
            answer = rig.ask(**request)
            assert code(answer) == (503, "no_ready_pod")
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["message"] == "no model server is ready"


def test_without_engines_the_pod_is_alive_and_says_so() -> None:
    with Rig(small(), engines=0, routers=1) as rig:
        ops = rig.routers[0].ops_url
        assert rig.client.get(f"{ops}/livez").json() == {"status": "ok"}
        answer = rig.client.get(f"{ops}/readyz")
        assert (answer.status_code, answer.json()) == (503, {"ready": False, "engines": 0})
        assert code(rig.ask(json=CHAT)) == (503, "no_ready_pod")
        assert rig.client.get(f"{ops}/v1/models").status_code == 404


def test_metrics_count_requests(rig: Rig) -> None:
    rig.ask(json=CHAT)
    text = rig.client.get(f"{rig.routers[0].ops_url}/metrics").text
    assert 'haproxy_backend_http_responses_total{proxy="sticky",code="2xx"}' in text
    # Of four ordinals, three exist.
    assert 'server="chat-engine-2"' in text and 'server="chat-engine-3"' not in text


def test_engines_stay_known_while_dns_is_out(own_rig: Rig) -> None:
    before = homes(own_rig, 0)
    own_rig.dns.silent = True
    time.sleep(6)
    assert homes(own_rig, 0) == before
    own_rig.dns.silent = False


def test_a_soft_stop_closes_the_port_and_lets_streams_end(own_rig: Rig) -> None:
    for engine in own_rig.engines:
        engine.tokens, engine.pause = 20, 0.1
    leaving, staying = own_rig.routers
    with ThreadPoolExecutor(10) as pool:
        streams = [pool.submit(own_rig.ask, 0, json=STREAM) for _ in range(10)]
        eventually(lambda: sum(engine.running for engine in own_rig.engines) == 10)
        leaving.soft_stop()
        eventually(lambda: own_rig.get(f"{leaving.ops_url}/livez") is None)
        assert own_rig.ask(1, json=CHAT).status_code == 200
        answers = [stream.result() for stream in streams]
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert staying.engines_seen() == 3
    # A connection that was busy at the stop may stay for one more request: it is not reset.
    own_rig.client.close()
    assert leaving.process is not None
    assert leaving.process.wait(10) == 0


def test_clients_that_hold_every_connection_leave_the_ops_port_to_probes(
    haproxy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_sizing, "MAX_CONNECTIONS", router_sizing.OPS_CONNECTIONS + 2)
    with Rig(deployment(), engines=1, routers=1) as rig:
        router = rig.routers[0]
        # More than it takes; the last ones wait in the kernel.
        held = [socket.create_connection(("127.0.0.1", router.port)) for _ in range(4)]
        try:
            for client in held[:2]:
                client.sendall(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
                assert client.recv(64).startswith(b"HTTP/1.1 401")
            answer = httpx.get(f"{router.ops_url}/livez", timeout=5, trust_env=False)
            assert answer.status_code == 200
        finally:
            for client in held:
                client.close()
