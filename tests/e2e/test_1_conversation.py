"""helm install, apply, Ready; then conversations from a pod and from outside."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from kube import condition
from world import World

pytestmark = pytest.mark.cluster

CONDITIONS = [
    "Admitted",
    "ModelLoaded",
    "StateStoreReady",
    "RouterReady",
    "Progressing",
    "Degraded",
    "Available",
    "Ready",
]
TOLD = [
    {"role": "user", "content": "Hello, my name is Nora."},
    {"role": "assistant", "content": "Nice to meet you, Nora."},
    {"role": "user", "content": "What is my name?"},
]


def chat_call(session: str, **body: Any) -> dict[str, Any]:
    return {"session": session, "body": {"messages": TOLD, **body}}


def test_helm_test_passes(world: World) -> None:
    world.kube.run_helm("test", "rwkv-operator", "-n", "rwkv-system", "--logs")


def test_the_sample_becomes_ready_and_tells_all_conditions(chat: World) -> None:
    obj = chat.kube.get("rwkv", "chat")
    generation = obj["metadata"]["generation"]
    assert {item["type"] for item in obj["status"]["conditions"]} == set(CONDITIONS)
    for item in obj["status"]["conditions"]:
        assert item["reason"], item
        assert item["observedGeneration"] == generation, item
    assert obj["status"]["ready"] == "2/2"
    assert obj["status"]["url"] == "http://chat.default.svc.cluster.local"
    assert obj["status"]["model"]["stateBytes"] > 0
    assert condition(obj, "StateStoreReady")["reason"] == "PerPod"
    table = chat.kube.run("get", "rwkv", "chat")
    assert table.split("\n")[0].split()[:4] == ["NAME", "MODEL", "STACK", "READY"]


def test_the_deployment_has_no_finalizer_and_scale_reads_back(chat: World) -> None:
    assert "finalizers" not in chat.kube.get("rwkv", "chat")["metadata"]
    scale = chat.kube.run("get", "--raw", f"{api('chat')}/scale")
    assert '"replicas":2' in scale and "serving.rwkv.dev/component=engine" in scale


def api(name: str) -> str:
    return f"/apis/serving.rwkv.dev/v1alpha1/namespaces/default/rwkvdeployments/{name}"


def test_a_pod_talks_through_the_service_streaming_and_not(chat: World) -> None:
    whole, streamed = chat.call(chat_call("s"), chat_call("s", stream=True))
    assert "Nora" in whole["text"] and whole["finish"] == "stop", whole
    assert streamed["text"] == whole["text"]
    assert streamed["chunks"] > 3, "the stream came in one piece"
    assert whole["pod"] == streamed["pod"]
    assert whole["pod"] in chat.engine_pods()


def test_it_answers_from_outside_through_a_port_forward(chat: World) -> None:
    with chat.kube.port_forward("service/chat", 80) as url:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=chat.api_key()) as client:
            assert [model.id for model in client.models.list()] == ["chat"]
            answer = client.chat.completions.create(model="chat", messages=TOLD, temperature=0)
            assert "Nora" in (answer.choices[0].message.content or "")
            likely = client.chat.completions.create(
                model="chat", messages=TOLD, max_tokens=3, logprobs=True, top_logprobs=5
            )
            assert likely.choices[0].logprobs is not None
            text = client.completions.create(
                model="chat", prompt="User: Hi.\n\nAssistant:", temperature=0
            )
            assert text.choices[0].text.strip()


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b'{"model":"other","messages":[]}', 404),
        ("POST", "/v1/chat/completions", b'{"model":"chat","messages":"no list"}', 400),
        ("POST", "/tokenize", b"{}", 404),
        ("POST", "/invocations", b"{}", 404),
        ("GET", "/docs", None, 404),
        ("GET", "/metrics", None, 404),
    ],
)
def test_what_is_malformed_or_not_ours_gets_an_openai_shaped_4xx(
    chat: World, method: str, path: str, content: bytes | None, status: int
) -> None:
    headers = {"authorization": f"Bearer {chat.api_key()}", "content-type": "application/json"}
    with chat.kube.port_forward("service/chat", 80) as url:
        answer = httpx.request(method, url + path, content=content, headers=headers, timeout=30)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["message"] and error["type"]


def test_a_wrong_key_is_refused_and_says_so(chat: World) -> None:
    (answer,) = chat.call(chat_call("s"), key="wrong")
    assert (answer["status"], answer["code"]) == (401, "invalid_api_key")


def test_the_engines_answer_only_their_routers(chat: World) -> None:
    pod = next(iter(chat.engine_pods().values()))
    router = chat.router_urls()[0].removeprefix("http://").partition(":")[0]
    assert connects(chat, router, 8080), "the client reaches nothing at all"
    assert not connects(chat, pod["status"]["podIP"], 8000)
    assert not connects(chat, pod["status"]["podIP"], 8001)


def connects(world: World, host: str, port: int) -> bool:
    """Whether the client pod can open a connection there."""
    probe = f"import socket; print(socket.socket().connect_ex(('{host}', {port})))"
    script = f"import socket; socket.setdefaulttimeout(3); {probe}"
    return world.kube.run("exec", "client", "--", "python3", "-c", script).strip() == "0"
