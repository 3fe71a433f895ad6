"""The agent beside a real HAProxy: new keys without a reload, new configs with unbroken streams."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from router_rig import CONTEXT, Rig, deployment, eventually

from rwkv_cluster.ports import free_port
from rwkv_operator import agent, agent_status
from rwkv_operator.api import spec
from rwkv_operator.manifests import haproxy

pytestmark = pytest.mark.haproxy

OPERATOR = Path(__file__).resolve().parents[3] / "operator"
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


@dataclasses.dataclass
class Pod:
    """One router pod: HAProxy of a rig, and the agent in a thread with its real port."""

    rig: Rig
    secret: Path
    status_url: str
    stop: threading.Event

    def write_key(self, tenant: str, key: bytes) -> None:
        (self.secret / tenant).write_bytes(key)

    def status(self) -> dict[str, Any]:
        answer = self.rig.get(f"{self.status_url}/status")
        return {} if answer is None else dict(answer.json())

    def wait_for(self, **wanted: object) -> None:
        eventually(lambda: wanted.items() <= self.status().items())

    def answers(self, key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return self.rig.ask(path="/v1/models", headers=headers).status_code

    def workers(self) -> set[str]:
        """Process ids in the master's list, which changes with each reload."""
        master = self.rig.routers[0].folder / "master.sock"
        text = agent.agent_haproxy.ask(master, "show proc", 5)
        return {line.split()[0] for line in text.splitlines() if " worker " in line}


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    secret, port, stop = tmp_path / "keys", free_port(), threading.Event()
    secret.mkdir()
    with Rig(deployment(), engines=2, routers=1) as rig:
        router = rig.routers[0]
        paths = agent.Paths(router.config, router.folder, secret)
        board = agent_status.Board(time.monotonic)
        server = agent_status.serve(board, ("127.0.0.1", port))
        looking = agent.Agent(paths, paths.haproxy(), time.monotonic)
        thread = threading.Thread(
            target=agent.run, args=(looking, board, lambda _: stop.wait(0.05)), daemon=True
        )
        pod = Pod(rig, secret, f"http://127.0.0.1:{port}", stop)
        pod.write_key("alice", b"key-of-alice")
        thread.start()
        pod.wait_for(error=None)
        yield pod
        stop.set()
        thread.join()
        server.shutdown()
        server.server_close()


def test_a_key_works_once_it_is_in_the_secret_and_no_longer_than_that(pod: Pod) -> None:
    workers, before = pod.workers(), pod.status()
    assert (pod.answers("key-of-alice"), pod.answers("key-of-bob")) == (200, 401)
    pod.write_key("bob", b"key-of-bob")
    eventually(lambda: pod.answers("key-of-bob") == 200)
    answer = pod.rig.ask(path="/v1/models", headers={"authorization": "Bearer key-of-bob"})
    assert pod.rig.routers[0].log_line(answer)["tenant"] == "bob"
    (pod.secret / "alice").unlink()
    eventually(lambda: pod.answers("key-of-alice") == 401)
    assert pod.answers("key-of-bob") == 200
    after = pod.status()
    assert after["secretHash"] != before["secretHash"]
    assert after["configHash"] == before["configHash"]
    assert pod.workers() == workers, "HAProxy was reloaded for a key"


def test_a_bad_key_is_said_and_the_others_stay(pod: Pod) -> None:
    pod.write_key("bob", b"key-of-bob\n")
    eventually(lambda: "bob" in (pod.status()["error"] or ""))
    error = pod.status()["error"]
    assert error.startswith("API keys: bob: ") and "line break" in error
    assert pod.status()["reason"] == "InvalidAPIKeys"
    assert "key-of-bob" not in error
    assert (pod.answers("key-of-alice"), pod.answers("key-of-bob")) == (200, 401)
    pod.write_key("bob", b"key-of-bob")
    pod.wait_for(error=None)
    eventually(lambda: pod.answers("key-of-bob") == 200)


def test_hundreds_of_keys_are_put_in_force_at_once(pod: Pod) -> None:
    for number in range(450):
        pod.write_key(f"tenant-{number}", f"key-{number}".encode())
    eventually(lambda: pod.answers("key-449") == 200)
    assert {pod.answers(f"key-{number}") for number in range(0, 450, 50)} == {200}


def test_a_new_config_is_in_force_without_a_broken_stream(pod: Pod) -> None:
    rig, router = pod.rig, pod.rig.routers[0]
    for engine in rig.engines:
        engine.tokens, engine.pause = 40, 0.1
    pod.write_key("bob", b"key-of-bob")
    eventually(lambda: pod.answers("key-of-bob") == 200)
    old = pod.status()["configHash"]
    workers = pod.workers()
    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(rig.ask, json={**CHAT, "stream": True}) for _ in range(8)]
        eventually(lambda: sum(engine.running for engine in rig.engines) == 8)
        smaller = spec.Routing(max_engine_replicas=4, max_body_bytes=2**16)
        new = router.write_config(deployment(routing=smaller))
        assert new != old
        pod.wait_for(configHash=new, error=None)
        assert not any(stream.done() for stream in streams)
        rig.wait_for_engines(2)
        answer = rig.ask(json={"messages": [{"role": "user", "content": "x" * 70_000}]})
        assert answer.status_code == 413
        assert pod.answers("key-of-bob") == 200, "the new workers know older keys only"
        answers = [stream.result() for stream in streams]
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert pod.workers() != workers


def test_a_bad_config_is_refused_and_the_old_one_goes_on(pod: Pod) -> None:
    router = pod.rig.routers[0]
    old = pod.status()["configHash"]
    good = router.config.read_text()
    other = deployment(routing=spec.Routing(max_engine_replicas=3))
    bad = haproxy.render(other, CONTEXT).replace("mode http", "mode nonsense")
    router.config.write_text(bad)
    eventually(lambda: "refused" in (pod.status()["error"] or ""))
    status = pod.status()
    assert status["configHash"] == old
    assert status["reason"] == "ConfigRefused" and "nonsense" in status["error"]
    assert pod.answers("key-of-alice") == 200
    # Keys still come through while the config waits.
    pod.write_key("bob", b"key-of-bob")
    eventually(lambda: pod.answers("key-of-bob") == 200)
    router.config.write_text(good)
    pod.wait_for(configHash=old, error=None)


def test_the_agent_says_when_haproxy_is_gone(pod: Pod) -> None:
    process = pod.rig.routers[0].process
    assert process is not None
    process.terminate()
    process.wait(10)
    eventually(lambda: "does not answer" in (pod.status()["error"] or ""))
    assert pod.status()["configHash"] is None
    answer = pod.rig.get(f"{pod.status_url}/livez")
    assert answer is not None and answer.status_code == 200
    pod.rig.routers[0].start()
    pod.wait_for(error=None)


def test_the_command_serves_and_ends_when_the_pod_does(tmp_path: Path) -> None:
    secret, run, port = tmp_path / "keys", tmp_path / "run", free_port()
    secret.mkdir()
    run.mkdir()
    (secret / "alice").write_bytes(b"key-of-alice")
    (tmp_path / "haproxy.cfg").write_text("global\n")
    command = [sys.executable, "-m", "rwkv_operator.agent"]
    options = ["--config", f"{tmp_path}/haproxy.cfg", "--run", str(run), "--keys", str(secret)]
    environment = {**os.environ, "PYTHONPATH": str(OPERATOR)}
    subprocess.run([*command, "init", *options], check=True, env=environment)
    assert (run / "keys.map").read_text().endswith(" alice\n")
    running = subprocess.Popen([*command, "run", *options, "--port", str(port)], env=environment)
    with httpx.Client(trust_env=False) as client:

        def status() -> str:
            try:
                return str(client.get(f"http://127.0.0.1:{port}/status").json()["reason"])
            except httpx.TransportError:
                return ""

        eventually(lambda: status() == "HAProxyUnreachable")
    running.terminate()
    assert running.wait(10) == 0
