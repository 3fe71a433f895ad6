"""The routers' HAProxy config: one text per deployment, the same on every replica.

An engine is one `server` line, known by its ordinal and found by DNS, so that routers agree on a
session's engine without talking to each other, and pods come and go without a reload. Needs
HAProxy 3.2 (`hash-preserve-affinity`). What each request passes is in `haproxy_request.py`, what
the router says by itself in `haproxy_errors.py`, how much it may hold in `router_sizing.py`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from rwkv_operator import names
from rwkv_operator.api import spec, state
from rwkv_operator.manifests import haproxy_errors, haproxy_request, router_sizing
from rwkv_operator.manifests.context import Context

RUN_PATH: Final = "/run/rwkv"
STATS_SOCKET: Final = f"{RUN_PATH}/stats.sock"
MASTER_SOCKET: Final = f"{RUN_PATH}/master.sock"
KEY_MAP: Final = f"{RUN_PATH}/keys.map"

CONFIG_HASH_VARIABLE: Final = "RWKV_CONFIG_HASH"
"""Set by the config itself, so that a running HAProxy can be asked which config it runs."""

STREAM_END_SECONDS: Final = 900
"""How long streams may go on in a router that has been told to stop."""

THREADS: Final = 2
KEEP_ALIVE_SECONDS: Final = 75

LOG_FIELDS: Final = (
    "%(ts)[date(0,ms)] %(rid)[var(txn.rid)] %(tenant)[var(txn.tenant)] %(session)[var(txn.kh)]"
    " %(by)[var(txn.by)] %(client)ci %(method)HM %(path)[var(txn.route)] %(status)ST %(backend)b"
    " %(pod)s %(ms_req)TR %(ms_queue)Tw %(ms_conn)Tc %(ms_first_byte)Tr %(ms_total)Ta"
    " %(bytes_in)U %(bytes_out)B %(term)tsc %(retries)rc %(inflight_pod)sc"
)
"""No key, no session id, no path that could hold one."""


def render(dep: spec.Deployment, ctx: Context) -> str:
    """The whole config; its own hash is in it."""
    sections = (
        _global(dep),
        _defaults(dep.spec.routing.timeouts),
        _resolvers(),
        _api(dep),
        _sticky(dep, ctx),
        _least(dep, ctx),
        _ops(),
    )
    text = "\n\n".join("\n    ".join(section) for section in sections) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace("global\n", f"global\n    setenv {CONFIG_HASH_VARIABLE} {digest}\n", 1)


def config_hash(text: str) -> str | None:
    """The hash that a rendered config carries; None for a text that isn't one."""
    match = re.search(rf"^ *setenv {CONFIG_HASH_VARIABLE} ([0-9a-f]{{64}})$", text, re.MULTILINE)
    return match[1] if match else None


def _global(dep: spec.Deployment) -> list[str]:
    sizing = router_sizing.router_sizing(dep.spec.routing)
    return [
        "global",
        f"maxconn {sizing.connections}",
        f"nbthread {THREADS}",
        f"tune.bufsize {sizing.buffer_bytes}",
        f"tune.buffers.limit {sizing.buffers}",
        "tune.maxrewrite 8192",
        f"stats socket {STATS_SOCKET} mode 660 level admin",
        "log stdout len 4096 format raw local0",
        f"hard-stop-after {STREAM_END_SECONDS}s",
    ]


def _defaults(timeouts: spec.Timeouts) -> list[str]:
    return [
        "defaults",
        "mode http",
        "log global",
        # Each token of a stream goes out at once.
        "option http-no-delay",
        "option dontlognull",
        "timeout connect 1s",
        f"timeout http-request {timeouts.request_seconds}s",
        f"timeout http-keep-alive {KEEP_ALIVE_SECONDS}s",
        f"timeout client {timeouts.response_seconds}s",
        f"timeout server {timeouts.response_seconds}s",
        f"timeout queue {timeouts.queue_seconds}s",
        # Only while no byte has reached an engine: a request may have changed a state.
        "retries 2",
        "retry-on conn-failure",
        "option redispatch 1",
        *haproxy_errors.default_errors(),
    ]


def _resolvers() -> list[str]:
    """The cluster's DNS. While it is out, the last known addresses hold; checks still apply."""
    return [
        "resolvers kube",
        "parse-resolv-conf",
        "accepted_payload_size 8192",
        "resolve_retries 3",
        "timeout resolve 1s",
        "timeout retry 1s",
        "hold valid 1s",
        "hold obsolete 0s",
        "hold nx 5s",
        "hold timeout 24h",
        "hold refused 24h",
        "hold other 24h",
    ]


def _api(dep: spec.Deployment) -> list[str]:
    routing = dep.spec.routing
    return [
        "frontend api",
        f"bind :{names.PORT_ROUTER}",
        # Below the global one, so that clients never keep a probe from being answered.
        f"maxconn {router_sizing.router_sizing(routing).client_connections}",
        f"log-format '%{{+json}}o {LOG_FIELDS}'",
        haproxy_errors.unavailable(),
        *haproxy_request.request_id(),
        *haproxy_request.authentication(dep.spec.auth, KEY_MAP),
        *haproxy_request.allow_list(),
        *haproxy_request.header_limit(),
        *haproxy_request.own_headers(),
        *haproxy_request.header_session(),
        *haproxy_request.path_ref(),
        *haproxy_request.size_limits(routing),
        *haproxy_request.undeclared_bodies(routing),
        *haproxy_request.body_session(routing),
        *haproxy_request.body_ref(),
        *haproxy_request.body_client_keys(),
        *haproxy_request.first_message(),
        *haproxy_request.key_and_home(f"{names.engine(dep.name)}-"),
        "http-after-response set-header x-rwkv-pod %s if { srv_id gt 0 }",
        "use_backend sticky if { var(txn.key) -m found }",
        "default_backend least",
    ]


def _sticky(dep: spec.Deployment, ctx: Context) -> list[str]:
    """Requests with a key: the ring knows ordinals, and a ref goes to the ordinal in it."""
    return [
        "backend sticky",
        "balance hash var(txn.key)",
        "hash-type consistent sdbm avalanche",
        f"hash-preserve-affinity {_affinity(dep.spec.state.store)}",
        "use-server %[var(txn.home)] if { var(txn.home) -m found }",
        *_engines(dep, ctx),
    ]


def _affinity(store: state.Store) -> str:
    """What becomes of a session's requests while its engine has as many as it takes.

    They wait where only that engine reads the session's states; with a shared store they go to the
    next engine on the ring.
    """
    return "maxconn" if state.is_shared(store) else "always"


def _least(dep: spec.Deployment, ctx: Context) -> list[str]:
    """Requests without any key: to the engine with the fewest of them, as this router knows.

    The engines' `maxconn` counts anew here: one engine gets up to twice that from each router.
    """
    return ["backend least", "balance leastconn", *_engines(dep, ctx)]


def _engines(dep: spec.Deployment, ctx: Context) -> list[str]:
    # With kept-alive connections a request could meet one that the engine is just closing.
    # A first failed connection takes the engine out until its next good check, so that all of its
    # sessions move once, and to the same place.
    slots = 2 * dep.spec.engine.max_num_seqs
    return [
        "http-reuse never",
        "option httpchk",
        "http-check send meth GET uri /readyz ver HTTP/1.1 hdr host engine",
        "http-check expect status 200",
        _refused_router(),
        f"default-server check port {names.PORT_ENGINE_OPS} inter 1s fastinter 250ms"
        " downinter 500ms fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down"
        f" weight 100 hash-key id maxconn {slots} resolvers kube resolve-prefer ipv4"
        " init-addr none",
        *(_engine(dep, ctx, ordinal) for ordinal in range(dep.spec.routing.max_engine_replicas)),
    ]


def _refused_router() -> str:
    """An engine that refuses the router's key is broken; the client's key is not."""
    body = haproxy_errors.error_body(
        "the model server refused the key of its router", "server_error", "upstream_failed"
    )
    return (
        f"http-response return status 502 {haproxy_errors.JSON_TYPE}"
        f" string {haproxy_errors.quoted(body)} if {{ status 401 }}"
    )


def _engine(dep: spec.Deployment, ctx: Context, ordinal: int) -> str:
    name = names.engine_pod(dep.name, ordinal)
    host = names.engine_host(dep.name, dep.namespace, ordinal, ctx.cluster_domain)
    return f"server {name} {host}:{names.PORT_ENGINE} id {ordinal + 1}"


def _ops() -> list[str]:
    """For kubelet, operator and metrics: never for clients, and not in their log."""
    answer = f"http-request return status %d {haproxy_errors.JSON_TYPE}"
    return [
        "frontend ops",
        f"bind :{names.PORT_ROUTER_OPS}",
        "no log",
        f'{answer % 200} string \'{{"status":"ok"}}\' if {{ path /livez }}',
        f'{answer % 200} lf-string \'{{"ready":true,"engines":%[nbsrv(sticky)]}}\''
        " if { path /readyz } { nbsrv(sticky) gt 0 }",
        f'{answer % 503} string \'{{"ready":false,"engines":0}}\' if {{ path /readyz }}',
        # Servers that don't exist yet would be most of the page.
        "http-request set-query scope=global&scope=frontend&scope=backend&scope=server&no-maint"
        " if { path /metrics }",
        "http-request use-service prometheus-exporter if { path /metrics }",
        f'{answer % 404} string \'{{"status":"unknown path"}}\'',
    ]
