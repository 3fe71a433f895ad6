"""HAProxy itself accepts every config that can be rendered, without a warning."""

import itertools
import os
import subprocess
from pathlib import Path

import haproxy_program
import pytest
from router_rig import CONTEXT, deployment

from rwkv_operator.api import spec, state
from rwkv_operator.manifests import haproxy

pytestmark = pytest.mark.haproxy

STORES = {
    "perPod": state.PerPodStore(),
    "ephemeral": state.EphemeralStore(),
    "claim": state.ClaimStore("states"),
}
ROUTINGS = {
    "default": spec.Routing(),
    "smallest": spec.Routing(
        replicas=1,
        max_engine_replicas=1,
        max_body_bytes=16 * 2**10,
        max_request_bytes=16 * 2**10,
        timeouts=spec.Timeouts(1, 1, 1),
    ),
    "largest": spec.Routing(
        max_engine_replicas=64,
        max_body_bytes=16 * 2**20,
        max_request_bytes=2**40,
        max_state_bytes=2**40,
        timeouts=spec.Timeouts(3600, 86400, 3600),
    ),
}


@pytest.mark.parametrize(
    ("mode", "store", "routing"), list(itertools.product(spec.AUTH_MODES, STORES, ROUTINGS))
)
def test_a_rendered_config_is_valid(tmp_path: Path, mode: str, store: str, routing: str) -> None:
    dep = deployment(
        replicas=1,
        auth=spec.Auth(mode),
        state=state.State(STORES[store]),
        routing=ROUTINGS[routing],
    )
    config = tmp_path / "haproxy.cfg"
    (tmp_path / "keys.map").touch()
    config.write_text(haproxy.render(dep, CONTEXT).replace(haproxy.RUN_PATH, str(tmp_path)))
    done = subprocess.run(
        [str(haproxy_program.find()), "-c", "-dW", "-f", str(config)],
        capture_output=True,
        text=True,
        env={**os.environ, "RWKV_INTERNAL_KEY": "internal"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr and "ALERT" not in done.stderr, done.stderr
