"""`make demo`: a cluster, the operator, a model, and a conversation that outlives its pod."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import installation
import kube as kubernetes

NAME = "chat"
CLIENT = "demo"
SAMPLES = installation.ROOT / "crds" / "samples"
CLAIM = SAMPLES / "volumes" / "states.yaml"
SAMPLE = SAMPLES / "states-on-shared-volume.yaml"
FACT = "Nora"
TURNS = (
    f"Hello, my name is {FACT}.",
    "How are you?",
    "Tell me a joke.",
    "What is my name?",
)
LOST_AFTER = 2
"""Turns before the pod that serves the session is deleted."""

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
        cluster.apply(CLAIM)
        cluster.apply(SAMPLE)
        wait_ready(cluster)
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
    """The conversation; the engine that serves it is deleted in the middle."""
    with step("a pod for the client"):
        cluster.run("delete", "pod", CLIENT, "--ignore-not-found", "--wait")
        cluster.apply(pod(image))
        cluster.run("wait", f"pod/{CLIENT}", "--for=condition=Ready", "--timeout=60s")
    session = f"demo-{secrets.token_hex(4)}"
    with step(f"turns 1 and 2, from a pod through the Service; session {session}"):
        first = hold(cluster, session, TURNS[:LOST_AFTER], opens=True)
    serving = first[-1]["pod"]
    with step(f"kubectl delete pod {serving}, which holds the conversation"):
        cluster.run("delete", "pod", serving, "--wait")
    with step("turns 3 and 4, only the new texts"):
        return first + hold(cluster, session, TURNS[LOST_AFTER:], opens=False)


def hold(
    cluster: kubernetes.Kube, session: str, texts: tuple[str, ...], opens: bool
) -> list[dict[str, str]]:
    """Run conversation.py in the client pod and read its turns."""
    data = cluster.get("secret", f"{NAME}-api-key")["data"]
    job = {
        "url": f"http://{NAME}",
        "key": base64.b64decode(data["default"]).decode(),
        "model": NAME,
        "session": session,
        "opens": opens,
        "turns": texts,
    }
    script = (Path(__file__).parent / "conversation.py").read_text()
    try:
        output = cluster.run(
            "exec", "-i", CLIENT, "--", "python3", "-c", script, stdin=json.dumps(job)
        )
    except kubernetes.KubeError as error:
        raise SystemExit(f"the conversation failed: {error}") from None
    return [json.loads(line) for line in output.splitlines()]


def pod(image: str) -> dict[str, Any]:
    """A restricted pod that has Python and waits."""
    container = {
        "name": "client",
        "image": image,
        "command": ["sleep", "86400"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT},
        "spec": {
            "terminationGracePeriodSeconds": 0,
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
        print(f"  user       {turn['user']}\n  assistant  {turn['assistant']}")
        print(f"             {turn['pod']}, state from: {turn['source']}")
    print("\n$ kubectl get rwkv     # the engine that was deleted is on its way back")
    print(cluster.run("get", "rwkv"))
    print("Try next:")
    print(f"  export KUBECONFIG={cluster.kubeconfig} PATH={Path(cluster.kubectl).parent}:$PATH")
    print(f"  kubectl scale rwkv {NAME} --replicas=1 && kubectl get rwkv {NAME}")
    print(f"  kubectl port-forward service/{NAME} 8080:80     # README shows a chat with curl")
    answer = turns[-1]["assistant"]
    if FACT not in answer:
        raise SystemExit(f"DEMO_FAILED the model answered {answer!r}, which lacks {FACT}")
    pods = {turn["pod"] for turn in turns}
    if len(pods) < 2:
        raise SystemExit(f"DEMO_FAILED the lost pod {pods} was back before turn {LOST_AFTER + 1}")
    tier = turns[LOST_AFTER]["source"]
    print(f"\nDEMO_OK turns={len(turns)} recalled={FACT} resumed_from={tier} pods={len(pods)}")


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
