"""`make demo`: a cluster, the operator, one RWKVDeployment, and a conversation with memory."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import installation
import kube as kubernetes

NAME = "chat"
SAMPLE = installation.ROOT / "crds" / "samples" / "tiny-recall.yaml"
FACT = "Nora"
TURNS = (
    f"Hello, my name is {FACT}.",
    "How are you?",
    "Tell me a joke.",
    "What is my name?",
)
_STARTED = time.monotonic()


def main() -> None:
    """Parse the command line and go up or down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("direction", choices=["up", "down"])
    parser.add_argument("--cluster-name", default="rwkv")
    args = parser.parse_args()
    machine = installation.Machine(args.cluster_name, say)
    if args.direction == "down":
        machine.bring_down()
        return
    run(machine)


def run(machine: installation.Machine) -> None:
    """The demo, step by step."""
    say(
        "this builds a Kubernetes of its own from Go modules and three images: about 10 GB of disk,"
    )
    say("ten minutes of compiling the first time; `make demo-down` removes the cluster again")
    with step("cluster"):
        cluster = machine.bring_up()
    with step("images"):
        images = machine.build_images()
    with step("images into the cluster"):
        machine.load_images(images)
    with step("operator, by helm"):
        installation.install_chart(cluster, images)
    with step(f"RWKVDeployment {NAME}"):
        cluster.apply(SAMPLE)
        wait_ready(cluster)
    with step("conversation, from a pod through the Service"):
        turns = converse(cluster, images["operator"])
    report(cluster, turns)


def wait_ready(cluster: kubernetes.Kube, timeout: float = 600) -> None:
    """Wait for Ready, telling each change of its reason."""
    seen = ""

    def ready() -> bool:
        nonlocal seen
        obj = cluster.get("rwkv", NAME)
        found = kubernetes.condition(obj, "Ready")
        text = f"Ready={found.get('status', 'Unknown')} {found.get('reason', '')}: "
        text += found.get("message", "waiting for the operator")
        if text != seen:
            say(f"  {text}")
            seen = text
        current = obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"]
        return current and found.get("status") == "True"

    kubernetes.wait_for(ready, f"rwkv/{NAME} to be Ready", timeout, every=1)


def converse(cluster: kubernetes.Kube, image: str) -> list[dict[str, str]]:
    """Run conversation.py in a pod and read its turns."""
    cluster.run("delete", "pod", "demo", "--ignore-not-found", "--wait")
    cluster.apply(pod(image))
    done = ("Succeeded", "Failed")

    def finished() -> str:
        phase: str = cluster.get("pod", "demo")["status"].get("phase", "")
        return phase if phase in done else ""

    phase = kubernetes.wait_for(finished, "the pod demo to end", timeout=300)
    output = cluster.logs("demo")
    if phase == "Failed":
        raise SystemExit(f"the conversation failed:\n{output}")
    return [json.loads(line) for line in output.splitlines()]


def pod(image: str) -> dict[str, Any]:
    """A restricted pod that runs conversation.py against the Service."""
    key = {"secretKeyRef": {"name": f"{NAME}-api-key", "key": "default"}}
    environment: list[dict[str, Any]] = [
        {"name": "URL", "value": f"http://{NAME}"},
        {"name": "MODEL", "value": NAME},
        {"name": "TURNS", "value": json.dumps(TURNS)},
        {"name": "API_KEY", "valueFrom": key},
    ]
    script = (Path(__file__).parent / "conversation.py").read_text()
    container = {
        "name": "demo",
        "image": image,
        "command": ["python3", "-c", script],
        "env": environment,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "demo"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def report(cluster: kubernetes.Kube, turns: list[dict[str, str]]) -> None:
    """The transcript, the object, what to try next, and the verdict."""
    print()
    for turn in turns:
        print(f"  user       {turn['user']}\n  assistant  {turn['assistant']}   ({turn['pod']})")
    print(f"\n$ kubectl get rwkv\n{cluster.run('get', 'rwkv')}")
    print("Try next:")
    print(f"  export KUBECONFIG={cluster.kubeconfig} PATH={Path(cluster.kubectl).parent}:$PATH")
    print(f"  kubectl scale rwkv {NAME} --replicas=1 && kubectl get rwkv {NAME}")
    print(f"  kubectl port-forward service/{NAME} 8080:80     # README shows a chat with curl")
    answer = turns[-1]["assistant"]
    if FACT not in answer:
        raise SystemExit(f"DEMO_FAILED the model answered {answer!r}, which lacks {FACT}")
    print(f"\nDEMO_OK turns={len(turns)} recalled={FACT}")


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Tell when a step begins and how long it took."""
    say(f"{name} …")
    began = time.monotonic()
    yield
    say(f"{name}: done in {time.monotonic() - began:.1f} s")


def say(text: str) -> None:
    """One line with the time since the start."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    main()
