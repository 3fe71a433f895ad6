"""A cluster as tests and demo see it: kubectl and helm, by path and kubeconfig, nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class KubeError(Exception):
    """kubectl or helm said no; the text is what it printed."""


@dataclasses.dataclass(frozen=True)
class Kube:
    """One cluster: where its programs and its kubeconfig are."""

    kubectl: str
    helm: str
    kubeconfig: Path

    def run(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl and return what it printed on standard output."""
        return self._call([self.kubectl, *args], stdin, timeout)

    def run_helm(self, *args: str, timeout: float = 300) -> str:
        """Run helm and return what it printed on standard output."""
        return self._call([self.helm, *args], None, timeout)

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get … -o json` as a value."""
        value: dict[str, Any] = json.loads(self.run("get", *args, "-o", "json"))
        return value

    def items(self, *args: str) -> list[dict[str, Any]]:
        """The items of a list."""
        items: list[dict[str, Any]] = self.get(*args)["items"]
        return items

    def exists(self, *args: str) -> bool:
        """Whether `kubectl get …` finds anything by that name."""
        return bool(self.run("get", *args, "--ignore-not-found", "-o", "name").strip())

    def apply(self, obj: Mapping[str, Any] | Path) -> str:
        """Apply a file, or an object given as a value."""
        if isinstance(obj, Path):
            return self.run("apply", "-f", str(obj))
        return self.run("apply", "-f", "-", stdin=json.dumps(obj))

    def logs(self, *args: str) -> str:
        """Logs, or why there are none."""
        try:
            return self.run("logs", *args)
        except KubeError as error:
            return f"(no logs: {error})"

    def _call(self, command: list[str], stdin: str | None, timeout: float) -> str:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment(),
            check=False,
        )
        if done.returncode != 0:
            name = Path(command[0]).name
            raise KubeError(f"{name} {' '.join(command[1:])}: {done.stderr.strip()}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """This process's environment with the cluster's kubeconfig.

        kubectl caches what a server offers by its address, which another cluster may have had.
        """
        cache = self.kubeconfig.with_name("kubectl-cache")
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(cache)}

    @contextlib.contextmanager
    def port_forward(self, target: str, port: int, namespace: str = "default") -> Iterator[str]:
        """Forward a free local port to `target`; yields its URL, ends the program afterwards."""
        command = [self.kubectl, "-n", namespace, "port-forward", target, f":{port}"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if match is None:
                raise KubeError(f"kubectl port-forward {target}: {line.strip()}")
            yield f"http://127.0.0.1:{match.group(1)}"
        finally:
            process.terminate()
            process.wait(timeout=10)
            assert process.stdout is not None
            process.stdout.close()


def condition(obj: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One condition of an object; empty when it isn't there yet."""
    for item in obj.get("status", {}).get("conditions", []):
        if item["type"] == kind:
            found: dict[str, Any] = item
            return found
    return {}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a condition has to tell, in the end.

    The operator tells more with every pass: a test that is about a message waits for its words,
    since a reason may be written first for a cause that is seen earlier.
    """

    kind: str
    status: str
    reason: str
    words: tuple[str, ...] = ()
    generation: int | None = None

    def fits(self, found: Mapping[str, Any]) -> bool:
        """Whether a condition tells all of it."""
        return (
            (found.get("status"), found.get("reason")) == (self.status, self.reason)
            and all(word in found["message"] for word in self.words)
            and self.generation in (None, found.get("observedGeneration"))
        )


def wait_condition(
    get: Callable[[], Mapping[str, Any]], wanted: Wanted, timeout: float = 60
) -> dict[str, Any]:
    """Wait until a condition of an object is as wanted; a time-out tells how it was last."""
    seen: dict[str, Any] = {}

    def look() -> bool:
        seen.clear()
        seen.update(condition(get(), wanted.kind))
        return wanted.fits(seen)

    try:
        wait_for(look, f"{wanted}", timeout, every=0.1)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:.0f} s for {wanted}; last seen: {seen}") from None
    return seen


def wait_for(probe: Callable[[], T], what: str, timeout: float = 60, every: float = 0.3) -> T:
    """Call `probe` until it returns something true; a time-out names `what` and the last value."""
    deadline = time.monotonic() + timeout
    value = probe()
    while not value:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}; last seen: {value!r}")
        time.sleep(every)
        value = probe()
    return value
