"""The agent's decisions, beside a HAProxy of a few lines; integration tests have the real one."""

import dataclasses
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from rwkv_operator import agent, agent_haproxy, agent_status

A, B = "a" * 64, "b" * 64


class FakeHAProxy(agent_haproxy.HAProxy):
    """Takes what it is given, unless it is told otherwise."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.running = A
        self.answers = True
        self.refuses = False
        self.reloads = 0
        self.maps: list[Mapping[str, str]] = []

    def running_config(self) -> str:
        if not self.answers:
            raise agent_haproxy.HAProxyError("HAProxy does not answer on stats.sock: gone")
        return self.running

    def reload(self) -> None:
        self.reloads += 1
        if self.refuses:
            raise agent_haproxy.ConfigRefused("unknown keyword")
        self.running = self.config.read_text().split()[2]

    def replace_map(self, name: Path, entries: Mapping[str, str]) -> None:
        if not self.answers:
            raise agent_haproxy.HAProxyError("HAProxy does not answer on stats.sock: gone")
        self.maps.append(dict(entries))


class Pod:
    """A pod's folders, an agent and a clock that is moved by hand."""

    def __init__(self, folder: Path, keys: bool = True) -> None:
        self.now = 0.0
        (folder / "run").mkdir()
        self.paths = agent.Paths(folder / "haproxy.cfg", folder / "run", folder / "keys")
        if keys:
            (folder / "keys").mkdir()
            self.write_key("alice", b"key-of-alice")
        else:
            self.paths = dataclasses.replace(self.paths, keys=None)
        self.write_config(A)
        self.haproxy = FakeHAProxy(self.paths.config)
        self.agent = agent.Agent(self.paths, self.haproxy, lambda: self.now)

    def write_key(self, tenant: str, key: bytes) -> None:
        assert self.paths.keys is not None
        (self.paths.keys / tenant).write_bytes(key)

    def write_config(self, digest: str) -> None:
        self.paths.config.write_text(f"  setenv RWKV_CONFIG_HASH {digest}\n")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_keys_are_put_in_force_once(pod: Pod) -> None:
    first, second = pod.agent.step(), pod.agent.step()
    assert first == second
    assert (first.config_hash, first.error) == (A, None)
    assert [list(entries.values()) for entries in pod.haproxy.maps] == [["alice"]]
    assert "alice" in pod.paths.key_map.read_text()


def test_keys_are_tried_again_until_haproxy_takes_them(pod: Pod) -> None:
    pod.haproxy.answers = False
    status = pod.agent.step()
    assert (status.secret_hash, status.config_hash) == (None, None)
    assert "does not answer" in (status.error or "")
    assert "alice" in pod.paths.key_map.read_text(), "HAProxy may be starting: it reads the file"
    pod.haproxy.answers = True
    assert pod.agent.step().error is None
    assert len(pod.haproxy.maps) == 1


@pytest.mark.parametrize("name", ["read_keys", "write_map"])
def test_a_file_that_fails_is_told_and_tried_again(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(agent.agent_keys, name, fail)
        assert "no space left" in (pod.agent.step().error or "")
    assert pod.agent.step().error is None
    assert len(pod.haproxy.maps) == 1


def test_a_bad_key_is_an_error_for_as_long_as_it_is_there(pod: Pod) -> None:
    pod.write_key("bob", b"key\n")
    errors = {pod.agent.step().error, pod.agent.step().error}
    assert len(errors) == 1 and None not in errors
    pod.write_key("bob", b"key")
    assert pod.agent.step().error is None
    assert set(pod.haproxy.maps[-1].values()) == {"alice", "bob"}


def test_the_worst_problem_gives_the_reason(pod: Pod) -> None:
    pod.write_key("bob", b"key\n")
    assert pod.agent.step().as_json()["reason"] == "InvalidAPIKeys"
    pod.haproxy.refuses = True
    pod.write_config(B)
    assert pod.agent.step().as_json()["reason"] == "ConfigRefused"
    pod.haproxy.answers = False
    status = pod.agent.step()
    assert status.as_json()["reason"] == "HAProxyUnreachable"
    assert (status.error or "").count("does not answer") == 1


def test_open_access_needs_no_keys(tmp_path: Path) -> None:
    pod = Pod(tmp_path, keys=False)
    assert pod.agent.step() == agent_status.Status(config_hash=A)
    assert pod.haproxy.maps == []


def test_a_new_config_is_loaded_once(pod: Pod) -> None:
    pod.agent.step()
    assert pod.haproxy.reloads == 0
    pod.write_config(B)
    assert pod.agent.step().config_hash == B
    assert pod.agent.step().config_hash == B
    assert pod.haproxy.reloads == 1


def test_a_refused_config_is_tried_again_only_after_a_while(pod: Pod) -> None:
    pod.haproxy.refuses = True
    pod.write_config(B)
    for _ in range(3):
        status = pod.agent.step()
        assert status.config_hash == A
        assert status.error == (
            "the new config is refused, the old one is in force: unknown keyword"
        )
    assert pod.haproxy.reloads == 1
    pod.now += agent.REFUSED_AGAIN_SECONDS
    pod.agent.step()
    assert pod.haproxy.reloads == 2
    pod.haproxy.refuses = False
    pod.write_config("c" * 64)
    assert pod.agent.step() == dataclasses.replace(status, config_hash="c" * 64, problems=())


def test_a_config_without_a_hash_is_left_alone(pod: Pod) -> None:
    pod.paths.config.write_text("global\n")
    assert pod.agent.step().error == "haproxy.cfg carries no hash"
    assert pod.haproxy.reloads == 0


def test_the_first_map_is_written_before_haproxy_starts(pod: Pod) -> None:
    agent.initialise(pod.paths)
    assert "alice" in pod.paths.key_map.read_text()
    pod.write_key("alice", b"")
    agent.initialise(pod.paths)
    assert pod.paths.key_map.read_text() == "", "a pod with no usable key starts all the same"


def test_the_loop_ends_when_it_is_told_to(pod: Pod) -> None:
    waits = iter([False, False, True])
    board = agent_status.Board(lambda: pod.now)
    agent.run(pod.agent, board, lambda _: next(waits))
    assert board.status.error is None


def read(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_port_says_what_is_in_force_and_whether_the_loop_turns() -> None:
    now = 0.0
    board = agent_status.Board(lambda: now)
    server = agent_status.serve(board, ("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        problems = (
            agent_status.Problem("ConfigRefused", "bad config"),
            agent_status.Problem("InvalidAPIKeys", "bad key"),
        )
        board.write(agent_status.Status(A, B, problems))
        wanted = {"error": "bad config; bad key", "reason": "ConfigRefused"}
        assert read(f"{url}/status") == (200, {"configHash": A, "secretHash": B, **wanted})
        assert read(f"{url}/livez") == (200, {"status": "ok"})
        assert read(f"{url}/other")[0] == 404
        now = agent_status.STALE_SECONDS
        assert read(f"{url}/livez") == (503, {"status": "stuck"})
    finally:
        server.shutdown()
        server.server_close()
