from __future__ import annotations

from typing import Any

import deployments
import pytest

from rwkv_operator.manifests import security

OPERATOR = "operator"
ROUTER = "router"
ENGINE = "engine"
SCRAPER = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
CTX = deployments.context(scrape_from=(SCRAPER,))


def who(peers: list[dict[str, Any]]) -> set[str]:
    """Peers by what they are."""
    found = set()
    for peer in peers:
        labels = peer.get("podSelector", {}).get("matchLabels", {})
        if peer == SCRAPER:
            found.add("scraper")
        elif "namespaceSelector" in peer and labels:
            found.add(OPERATOR)
        else:
            found.add(labels.get("serving.rwkv.dev/component", "everyone"))
    return found


def table(rules: list[dict[str, Any]], direction: str) -> dict[int, set[str]]:
    """Port → peers; a rule without peers means everywhere."""
    found: dict[int, set[str]] = {}
    for rule in rules:
        for port in rule["ports"]:
            peers = who(rule[direction]) if direction in rule else {"everywhere"}
            found.setdefault(port["port"], set()).update(peers)
    return found


def test_who_reaches_an_engine_and_whom_it_reaches() -> None:
    policy = security.build_engine_policy(deployments.parsed(), CTX)["spec"]
    assert table(policy["ingress"], "from") == {
        8000: {ROUTER, ENGINE},
        8001: {ROUTER, OPERATOR, "scraper"},
    }
    assert table(policy["egress"], "to") == {53: {"everywhere"}, 8000: {ENGINE}}


def test_a_download_is_asked_by_the_operator_and_reaches_a_hub_anywhere() -> None:
    changes = {
        "model": {"source": {"huggingFace": {"repo": "org/model"}}},
        "engine": {"podTemplate": {"env": [{"name": "HF_ENDPOINT", "value": "http://hub:8080"}]}},
    }
    policy = security.build_engine_policy(deployments.parsed(changes), CTX)["spec"]
    assert table(policy["ingress"], "from") == {
        8000: {ROUTER, ENGINE},
        8001: {ROUTER, OPERATOR, "scraper"},
        8002: {OPERATOR},
    }
    assert table(policy["egress"], "to") == {
        53: {"everywhere"},
        443: {"everywhere"},
        8000: {ENGINE},
        8080: {"everywhere"},
    }


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [(None, 443), ("https://s3.example.com", 443), ("http://s3", 80), ("http://s3:7070", 7070)],
)
def test_a_store_in_s3_is_reached_anywhere(endpoint: str | None, port: int) -> None:
    own = {"endpoint": endpoint} if endpoint else {}
    store = {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "s3"}, **own}}
    dep = deployments.parsed({"state": {"store": store}})
    policy = security.build_engine_policy(dep, CTX)["spec"]
    assert table(policy["egress"], "to") == {
        53: {"everywhere"},
        8000: {ENGINE},
        port: {"everywhere"},
    }


def test_an_offline_engine_reaches_nothing_more() -> None:
    model = {
        "source": {"huggingFace": {"repo": "org/model"}},
        "cache": {"claimName": "cache"},
        "offline": True,
    }
    policy = security.build_engine_policy(deployments.parsed({"model": model}), CTX)["spec"]
    assert table(policy["egress"], "to") == {53: {"everywhere"}, 8000: {ENGINE}}


def test_who_reaches_a_router_and_whom_it_reaches() -> None:
    policy = security.build_router_policy(deployments.parsed(), CTX)["spec"]
    assert table(policy["ingress"], "from") == {
        8080: {"everyone"},
        8404: {OPERATOR, "scraper"},
        8405: {OPERATOR, "scraper"},
    }
    assert table(policy["egress"], "to") == {
        53: {"everywhere"},
        8000: {ENGINE},
        8001: {ENGINE},
    }


def test_no_rule_is_open_by_an_empty_list() -> None:
    # `from: []` would let in everyone.
    for build in (security.build_engine_policy, security.build_router_policy):
        policy = build(deployments.parsed(), deployments.context())["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["from"] for rule in policy["ingress"])
        assert all(rule.get("to", True) for rule in policy["egress"])


def test_clients_can_be_narrowed() -> None:
    peers = [{"podSelector": {"matchLabels": {"app": "front"}}}]
    dep = deployments.parsed({"routing": {"allowFrom": peers}})
    policy = security.build_router_policy(dep, CTX)["spec"]
    assert policy["ingress"][0]["from"] == peers


@pytest.mark.parametrize(("replicas", "wanted"), [(0, False), (1, False), (2, True), (16, True)])
def test_a_budget_is_only_made_where_it_blocks_no_drain(replicas: int, wanted: bool) -> None:
    dep = deployments.parsed({"replicas": replicas, "routing": {"replicas": max(replicas, 1)}})
    assert (security.build_engine_budget(dep) is not None) is wanted
    assert (security.build_router_budget(dep) is not None) is wanted
