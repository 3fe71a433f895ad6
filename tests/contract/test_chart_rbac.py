"""The rights that the chart gives are those that the operator's own table asks for, no more."""

from __future__ import annotations

from typing import Any

import pytest
from chart import find_helm, of_kind

from rwkv_operator.cluster import kinds

STACKS = ("serving.rwkv.dev", "rwkvhardwarestacks")
STACK_STATUS = ("serving.rwkv.dev", "rwkvhardwarestacks/status")
NODES = ("", "nodes")
READ = {"get", "list", "watch"}

Rights = dict[tuple[str, str], set[str]]


def rights_of(*roles: dict[str, Any]) -> Rights:
    """Verbs by group and resource."""
    rights: Rights = {}
    for rule in (rule for role in roles for rule in role["rules"]):
        assert "resourceNames" not in rule
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def wanted() -> Rights:
    """What the operator's client can be asked to do."""
    return {(p.group, p.resource): set(p.verbs) for p in kinds.PERMISSIONS}


def test_cluster_wide_rights_are_the_operators_table() -> None:
    objects = find_helm().render()
    assert rights_of(of_kind(objects, "ClusterRole")["rwkv-operator"]) == wanted()
    assert not of_kind(objects, "Role")


def test_a_namespaced_operator_has_a_role_there_and_reads_stacks_and_nodes() -> None:
    objects = find_helm().render("watchNamespace=team-a", "catalogue.enabled=false")
    role = of_kind(objects, "Role")["rwkv-operator"]
    assert role["metadata"]["namespace"] == "team-a"
    everything = wanted()
    assert everything.pop(STACKS) >= READ
    del everything[STACK_STATUS]
    assert everything.pop(NODES) == READ
    assert rights_of(role) == everything
    reads = {STACKS: READ, NODES: READ}
    assert rights_of(of_kind(objects, "ClusterRole")["rwkv-operator"]) == reads


@pytest.mark.parametrize("setting", ["watchNamespace=", "watchNamespace=team-a"])
def test_no_wildcards_and_secrets_are_only_made(setting: str) -> None:
    objects = find_helm().render(setting)
    roles = [obj for obj in objects if obj["kind"] in ("Role", "ClusterRole")]
    rights = rights_of(*roles)
    assert rights[("", "secrets")] == {"create"}
    for (group, resource), verbs in rights.items():
        assert "*" not in (group, resource)
        assert "*" not in verbs


@pytest.mark.parametrize("settings", [(), ("watchNamespace=team-a",)])
def test_every_binding_is_to_the_operators_own_account(settings: tuple[str, ...]) -> None:
    objects = find_helm().render(*settings)
    bindings = [obj for obj in objects if obj["kind"].endswith("RoleBinding")]
    account = {"kind": "ServiceAccount", "name": "rwkv-operator", "namespace": "rwkv-system"}
    assert bindings
    assert all(binding["subjects"] == [account] for binding in bindings)
