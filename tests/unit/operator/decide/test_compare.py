import pytest

from rwkv_operator.decide.compare import differences


def template(**container: object) -> dict:
    return {"spec": {"containers": [{"name": "engine", **container}]}}


def peer(**labels: str) -> dict:
    return {"podSelector": {"matchLabels": labels}}


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        pytest.param({"a": 1}, {"a": 1, "b": 2}, id="what we don't set doesn't count"),
        pytest.param({"a": {}}, {}, id="an empty object is dropped by the API server"),
        pytest.param({"a": []}, {}, id="an empty list is, too"),
        pytest.param(
            {"s": {"matchLabels": {}}}, {"s": {}}, id="an empty object within an object is, too"
        ),
        pytest.param(
            template(resources={"limits": {"memory": "1024Mi", "cpu": "0.25"}}),
            template(resources={"limits": {"memory": "1Gi", "cpu": "250m"}}),
            id="a quantity may be written in another way",
        ),
        pytest.param(
            {"volumes": [{"name": "t", "emptyDir": {"sizeLimit": "2048Mi"}}]},
            {"volumes": [{"name": "t", "emptyDir": {"sizeLimit": "2Gi"}}]},
            id="so may a size limit",
        ),
        pytest.param(
            template(image="a"),
            {
                "spec": {
                    "containers": [{"name": "sidecar"}, {"name": "engine", "image": "a", "tty": 1}]
                }
            },
            id="a container that somebody adds is left alone",
        ),
        pytest.param(
            template(env=[{"name": "A", "value": "1"}]),
            template(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
            id="so is a variable",
        ),
        pytest.param(
            {"ports": [{"port": 80, "targetPort": "http"}]},
            {"ports": [{"port": 80, "targetPort": "http", "protocol": "TCP", "nodePort": 30000}]},
            id="a default protocol is the same port",
        ),
        pytest.param(
            {"ingress": [{"from": [peer(app="a")], "ports": [{"port": 1}, {"port": 2}]}]},
            {
                "ingress": [
                    {
                        "from": [peer(app="a")],
                        "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}],
                    }
                ]
            },
            id="a default protocol in a rule",
        ),
        pytest.param(
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}], "ports": []}]},
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            id="empty lists in a rule",
        ),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {}}}]}]},
            {"ingress": [{"from": [{"namespaceSelector": {}}]}]},
            id="a selector without labels in a rule",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"uid": "u", "controller": True}]}},
            {"metadata": {"ownerReferences": [{"uid": "v"}, {"uid": "u", "controller": True}]}},
            id="another owner beside us",
        ),
    ],
)
def test_the_same(desired: dict, live: dict) -> None:
    assert differences(desired, live) == ()


@pytest.mark.parametrize(
    ("desired", "live", "paths"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ("a.b",), id="a value"),
        pytest.param({"a": {"b": 1}}, {}, ("a",), id="a field that is missing"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, ("a[0]", "a[1]"), id="a list's order"),
        pytest.param(
            {"ingress": [{"x": 1}]},
            {"ingress": [{"x": 1}, {"x": 2}]},
            ("ingress",),
            id="an item more in a list that is set as a whole",
        ),
        pytest.param(
            {"ingress": [{"from": [peer(app="a")], "ports": [{"port": 1}]}]},
            {"ingress": [{"from": [peer(app="a")], "ports": [{"port": 1}, {"port": 2}]}]},
            ("ingress",),
            id="a port more in a rule",
        ),
        pytest.param(
            {"ingress": [{"from": [peer(app="a")]}]},
            {"ingress": [{"from": [{**peer(app="a"), "namespaceSelector": {}}]}]},
            ("ingress",),
            id="a peer that is now in every namespace",
        ),
        pytest.param(
            {"ingress": [{"from": [{**peer(app="a"), "namespaceSelector": {}}]}]},
            {"ingress": [{"from": [peer(app="a")]}]},
            ("ingress",),
            id="a peer that no longer is",
        ),
        pytest.param(
            {"ingress": [{"from": [peer(app="a")], "ports": [{"port": 1}]}]},
            {"ingress": [{"ports": [{"port": 1}]}]},
            ("ingress",),
            id="a rule for everybody",
        ),
        pytest.param(
            {"spec": peer(app="a")},
            {"spec": peer(app="a", off="1")},
            ("spec.podSelector",),
            id="a label more that a policy's pods must have",
        ),
        pytest.param(
            {"spec": {"selector": {"app": "a"}}},
            {"spec": {"selector": {"app": "a", "off": "1"}}},
            ("spec.selector",),
            id="a label more that a Service's pods must have",
        ),
        pytest.param(
            {"spec": {"selector": {"matchLabels": {"app": "a"}}}},
            {"spec": {"selector": {"matchLabels": {"app": "a"}, "matchExpressions": [{}]}}},
            ("spec.selector",),
            id="an expression more in a budget's selector",
        ),
        pytest.param(
            template(image="a"),
            template(image="b"),
            ("spec.containers[engine].image",),
            id="a field of a container",
        ),
        pytest.param(
            template(env=[{"name": "A", "value": "1"}]),
            template(env=[]),
            ("spec.containers[engine].env[A]",),
            id="a variable that somebody has removed",
        ),
        pytest.param(
            template(resources={"limits": {"memory": "1Gi"}}),
            template(resources={"limits": {"memory": "1G"}}),
            ("spec.containers[engine].resources.limits.memory",),
            id="1Gi isn't 1G",
        ),
        pytest.param(
            {"data": {"x": "1024Mi"}},
            {"data": {"x": "1Gi"}},
            ("data.x",),
            id="a text that looks like a quantity is a text",
        ),
        pytest.param({"a": False}, {"a": True}, ("a",), id="a switch"),
        pytest.param(
            {"spec": {"replicas": 0}}, {"spec": {"replicas": 2}}, ("spec.replicas",), id="zero"
        ),
    ],
)
def test_the_difference_is_named(desired: dict, live: dict, paths: tuple[str, ...]) -> None:
    assert differences(desired, live) == paths
