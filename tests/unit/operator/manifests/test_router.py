"""The routers' Deployment and ConfigMap."""

import deployments
import golden
import pytest

from rwkv_operator.manifests import haproxy, router, security

CASES = {
    "router/default": deployments.parsed(),
    "router/open": deployments.parsed({"auth": {"mode": "Open"}}, name="open"),
    "router/own-keys": deployments.parsed(
        {
            "auth": {"apiKeysSecretRef": {"name": "team-keys"}},
            "engine": {"podTemplate": {"imagePullSecrets": [{"name": "registry"}]}},
            "routing": {"replicas": 1, "maxBodyBytes": "16Mi"},
        },
        name="own",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_deployment_is_as_reviewed(case: str) -> None:
    golden.check(case, router.build_router_deployment(CASES[case], deployments.context()))


def test_the_config_is_the_rendered_one() -> None:
    dep, ctx = deployments.parsed(), deployments.context()
    config = router.build_router_config(dep, ctx)
    assert config["metadata"]["name"] == "chat-router"
    assert config["data"] == {"haproxy.cfg": haproxy.render(dep, ctx)}


def test_a_new_config_leaves_the_pods_alone() -> None:
    """The agents bring it into force; a changed template would replace the pods instead."""
    ctx = deployments.context()
    other = deployments.parsed({"routing": {"maxEngineReplicas": 9, "timeouts": {"queue": "9s"}}})
    template = router.build_router_deployment(deployments.parsed(), ctx)["spec"]["template"]
    assert router.build_router_deployment(other, ctx)["spec"]["template"] == template


def test_only_the_agent_sees_the_api_keys() -> None:
    pod = router.build_router_deployment(deployments.parsed(), deployments.context())
    template = pod["spec"]["template"]["spec"]
    seen = {
        container["name"]
        for container in [*template["initContainers"], *template["containers"]]
        if any(mount["name"] == "keys" for mount in container["volumeMounts"])
    }
    assert seen == {"agent", "agent-init"}


def test_streams_have_their_time_before_the_kill() -> None:
    pod = router.build_router_deployment(deployments.parsed(), deployments.context())
    grace = pod["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > router.LEAVE_SECONDS + haproxy.STREAM_END_SECONDS


def test_the_group_that_shares_the_sockets_is_the_pods() -> None:
    context = security.build_pod_security_context()
    assert context["fsGroup"] == security.USER_ID != router.HAPROXY_USER_ID
