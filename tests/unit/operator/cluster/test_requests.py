"""What goes over the wire, against a small HTTP server that answers what the test wants."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes
import pytest

from rwkv_operator import errors
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.metrics import Metrics

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "chat", "namespace": "talk"},
    "spec": {"ports": [{"port": 80}]},
}
PATH = "/api/v1/namespaces/talk/services/chat"


class Wire:
    """Requests as they came, and the answers to give, the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answers: list[tuple[int, Any]] = [(200, {})]

    def take(self) -> tuple[int, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextlib.contextmanager
def server(wire: Wire) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            url = urlsplit(self.path)
            wire.requests.append(
                {
                    "method": self.command,
                    "path": url.path,
                    "query": {key: value[0] for key, value in parse_qs(url.query).items()},
                    "type": self.headers.get("Content-Type"),
                    "body": json.loads(self.rfile.read(length) or "null"),
                }
            )
            status, body = wire.take()
            payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def cluster(wire: Wire, metrics: Metrics) -> Iterator[Cluster]:
    with server(wire) as url:
        configuration = kubernetes.client.Configuration()
        configuration.host = url
        api = kubernetes.client.ApiClient(configuration)
        yield Cluster(api, metrics)
        api.rest_client.pool_manager.clear()


def test_an_apply_says_who_sets_what_on_which_object(wire: Wire, cluster: Cluster) -> None:
    cluster.apply(SERVICE, "u-1")
    (request,) = wire.requests
    assert (request["method"], request["path"]) == ("PATCH", PATH)
    assert request["query"] == {"fieldManager": "rwkv-operator", "force": "true"}
    assert request["type"] == "application/apply-patch+yaml"
    assert request["body"] == {**SERVICE, "metadata": {**SERVICE["metadata"], "uid": "u-1"}}


def test_making_an_object_is_an_apply_that_no_existing_one_lets_through(
    wire: Wire, cluster: Cluster
) -> None:
    cluster.make(SERVICE)
    (request,) = wire.requests
    assert request["method"] == "PATCH"
    assert request["body"]["metadata"]["resourceVersion"] == "1"
    wire.answers = [(409, {"message": "the object has been modified"})]
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        cluster.make(SERVICE)


def test_a_status_is_set_by_a_manager_of_its_own(wire: Wire, cluster: Cluster) -> None:
    obj = {"kind": "RWKVDeployment", "metadata": {"name": "chat", "namespace": "talk"}}
    cluster.apply_status({**obj, "status": {}}, "u-1")
    (request,) = wire.requests
    assert request["path"].endswith("/rwkvdeployments/chat/status")
    assert request["query"]["fieldManager"] == "rwkv-operator-status"


def test_a_secret_that_exists_is_kept(wire: Wire, cluster: Cluster) -> None:
    secret = {**SERVICE, "kind": "Secret"}
    assert cluster.create(secret)
    wire.answers = [(409, {"message": "already exists"})]
    assert not cluster.create(secret)
    assert [request["method"] for request in wire.requests] == ["POST", "POST"]


def test_only_the_very_object_is_deleted(wire: Wire, cluster: Cluster) -> None:
    for answer in ((200, {}), (404, {"message": "gone"}), (409, {"message": "another uid"})):
        wire.answers = [answer]
        cluster.delete("Service", "talk", "chat", "u-1")
    assert wire.requests[0]["body"]["preconditions"] == {"uid": "u-1"}


def test_what_is_not_there_is_none(wire: Wire, cluster: Cluster) -> None:
    wire.answers = [(404, {"message": "not found"})]
    assert cluster.get("Service", "talk", "chat") is None
    assert cluster.find_if_served("PodMonitor", "talk", "a=b") is None
    with pytest.raises(errors.ClusterError):
        cluster.find_if_served("Service", "talk", "a=b")


def test_a_long_list_is_read_page_by_page(wire: Wire, cluster: Cluster) -> None:
    wire.answers = [
        (200, {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]}),
        (200, {"metadata": {}, "items": [{"metadata": {"name": "b"}}]}),
    ]
    found = cluster.find("Service", None, labels="x=y")
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert {(item["kind"], item["apiVersion"]) for item in found} == {("Service", "v1")}
    first, second = wire.requests
    assert first["query"] == {"labelSelector": "x=y", "limit": "500"}
    assert second["query"]["continue"] == "more"


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        ((422, {"message": "spec.ports: Required"}), 422, "spec.ports: Required"),
        ((403, {"message": "forbidden"}), 403, "forbidden"),
        ((503, "upstream gone"), 503, "Service Unavailable"),
        ((500, {"no": "message"}), 500, "Internal Server Error"),
    ],
)
def test_a_refusal_keeps_the_api_servers_words(
    wire: Wire, cluster: Cluster, answer: tuple[int, Any], status: int, text: str
) -> None:
    wire.answers = [answer]
    with pytest.raises(errors.ClusterError, match=text) as caught:
        cluster.apply(SERVICE, "u-1")
    assert caught.value.status == status


def test_an_api_server_that_is_away_is_told_as_such(metrics: Metrics) -> None:
    configuration = kubernetes.client.Configuration()
    configuration.host = "http://127.0.0.1:9"
    configuration.retries = False
    cluster = Cluster(kubernetes.client.ApiClient(configuration), metrics)
    with pytest.raises(errors.ClusterError, match="can't be reached") as caught:
        cluster.get("Service", "talk", "chat")
    assert caught.value.status == 0


def test_only_requests_that_may_write_are_counted(
    wire: Wire, cluster: Cluster, metrics: Metrics
) -> None:
    cluster.get("Service", "talk", "chat")
    cluster.apply(SERVICE, "u-1")
    cluster.create(SERVICE)
    text = metrics.render().decode()
    for method, count in (("PATCH", 1), ("POST", 1), ("DELETE", 0)):
        sample = f'rwkv_operator_mutating_requests_total{{method="{method}"}} {count}.0'
        assert sample in text
