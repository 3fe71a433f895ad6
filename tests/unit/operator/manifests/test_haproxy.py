"""The rendered config: whole texts to be reviewed, and rules that a reader can't see in them."""

import os
import re
from pathlib import Path

import deployments
import pytest

from rwkv_operator.api import spec
from rwkv_operator.manifests import haproxy, haproxy_errors, haproxy_request, router_sizing

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "router"
CASES = {
    "default": deployments.parsed(),
    "open-small": deployments.parsed(
        {
            "auth": {"mode": "Open"},
            "state": {"store": {"ephemeral": {}}},
            "engine": {"maxNumSeqs": 4},
            "routing": {
                "maxEngineReplicas": 2,
                "maxBodyBytes": "16Ki",
                "maxRequestBytes": "1Mi",
                "maxStateBytes": "2Mi",
                "timeouts": {"request": "3s", "response": "1m", "queue": "5s"},
            },
        },
        name="small",
    ),
}


def render(dep: spec.Deployment, domain: str = "cluster.local") -> str:
    return haproxy.render(dep, deployments.context(cluster_domain=domain))


@pytest.mark.parametrize("case", CASES)
def test_the_config_is_as_reviewed(case: str) -> None:
    text, path = render(CASES[case]), GOLDEN / f"{case}.cfg"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; if that is right, UPDATE_GOLDEN=1 writes it"


def test_the_hash_is_of_everything_else_in_the_config() -> None:
    text = render(deployments.parsed())
    digest = haproxy.config_hash(text)
    assert digest is not None and digest in text
    assert digest == haproxy.config_hash(render(deployments.parsed()))
    more = deployments.parsed({"routing": {"maxEngineReplicas": 17}})
    assert haproxy.config_hash(render(more)) != digest
    assert haproxy.config_hash("global\n    maxconn 1\n") is None


def test_replicas_are_no_reason_for_another_config() -> None:
    assert render(deployments.parsed({"replicas": 1})) == render(
        deployments.parsed({"replicas": 5})
    )


def test_each_ordinal_has_one_identity_and_one_name_in_every_backend() -> None:
    text = render(deployments.parsed({"routing": {"maxEngineReplicas": 3}}), "corp.example")
    servers = re.findall(r"^ *server (\S+) (\S+) id (\d+)$", text, re.MULTILINE)
    wanted = [
        (f"chat-engine-{n}", f"chat-engine-{n}.chat-engine.talk.svc.corp.example:8000", str(n + 1))
        for n in range(3)
    ]
    assert servers == [*wanted, *wanted]


def test_clients_never_take_the_last_connections_of_the_ops_port() -> None:
    sections = {s.split("\n")[0]: s for s in render(deployments.parsed()).split("\n\n")}
    limits = {
        name: int(limit[1])
        for name, section in sections.items()
        if (limit := re.search(r"^ *maxconn (\d+)$", section, re.MULTILINE))
    }
    assert set(limits) == {"global", "frontend api"}
    assert limits["global"] - limits["frontend api"] >= 32


def test_the_longest_headers_and_body_fit_into_a_buffer_together() -> None:
    room = router_sizing.HEADERS - haproxy_request.MAX_HEADERS
    # HAProxy keeps some for itself, and the router adds headers.
    assert room >= 2 * 8192
    assert f"req.hdrs,length gt {haproxy_request.MAX_HEADERS}" in render(deployments.parsed())


def test_no_formatted_error_is_in_the_defaults() -> None:
    """HAProxy 3.2.26 crashes on one: a stream that ends in it takes the worker along."""
    defaults = render(deployments.parsed()).split("\n\n")[1]
    assert defaults.startswith("defaults\n")
    assert "http-error" in defaults and "lf-string" not in defaults


def test_a_text_that_would_end_its_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="single quote"):
        haproxy_errors.refuse(400, "code", "don't")
