"""Names at the limits of what Kubernetes accepts."""

from __future__ import annotations

import re

import pytest

from rwkv_operator import names

LONGEST = "a" * 40
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY = re.compile(r"[a-z0-9.]{1,253}/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
REVISION_HASH = "-" + "f" * 10
POD_SUFFIX = "-" + "x" * 5


@pytest.mark.parametrize("deployment", ["a", "chat", LONGEST])
@pytest.mark.parametrize(
    "build",
    [
        names.engine,
        names.router,
        names.service,
        names.service_account,
        names.pod_monitor,
        names.internal_secret,
        names.api_key_secret,
        lambda name: names.engine_pod(name, 63),
        # Kubernetes puts these into a label of the engine pods and into names of ReplicaSets.
        lambda name: names.engine(name) + REVISION_HASH,
        lambda name: names.router(name) + REVISION_HASH,
    ],
)
def test_a_name_is_a_dns_label(deployment: str, build: object) -> None:
    assert callable(build)
    assert DNS_LABEL.fullmatch(build(deployment))


def test_a_pod_of_the_router_keeps_its_deployments_name() -> None:
    # Kubernetes cuts a generated name's base to 58 characters before it adds five random ones.
    base = names.router(LONGEST) + REVISION_HASH + "-"
    assert base[:58].startswith(names.router(LONGEST))


@pytest.mark.parametrize("deployment", ["a", LONGEST])
@pytest.mark.parametrize("component", [None, "engine", "router"])
def test_labels_are_valid(deployment: str, component: names.Component | None) -> None:
    for key, value in names.labels(deployment, component).items():
        assert LABEL_KEY.fullmatch(key)
        assert LABEL_VALUE.fullmatch(value)


@pytest.mark.parametrize("component", ["engine", "router"])
def test_a_selector_selects_its_own_labels_and_no_others(component: names.Component) -> None:
    other: names.Component = "router" if component == "engine" else "engine"
    selector = names.selector("chat", component)
    assert selector.items() <= names.labels("chat", component).items()
    assert not selector.items() <= names.labels("chat", other).items()
    assert not selector.items() <= names.labels("chat2", component).items()
    assert not selector.items() <= names.labels("chat").items()


def test_no_two_deployments_want_the_same_service() -> None:
    allowed = [name for name in ("a", "a-engine", "a-router") if names.is_deployment_name(name)]
    services = [build(name) for name in allowed for build in (names.engine, names.service)]
    assert len(services) == len(set(services)) == 2


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a", True),
        ("chat", True),
        ("chat-2", True),
        (LONGEST, True),
        ("engine", True),
        ("my-engine-room", True),
        (LONGEST + "a", False),
        ("", False),
        ("2chat", False),
        ("-chat", False),
        ("chat-", False),
        ("my.dotted", False),
        ("Chat", False),
        ("chat\n", False),
        ("chat-engine", False),
        ("chat-router", False),
        ("chat-internal", False),
    ],
)
def test_a_deployments_name(name: str, allowed: bool) -> None:
    assert names.is_deployment_name(name) is allowed


def test_an_engines_host_belongs_to_its_ordinal() -> None:
    host = names.engine_host("chat", "talk", 3, "cluster.local")
    assert host == "chat-engine-3.chat-engine.talk.svc.cluster.local"
