"""The rules that each request of a client passes, in order; the heart of the router's config.

Every function returns lines for the frontend. Variables that later rules rely on:

    txn.tenant  who calls                      txn.ref    a saved state's name, with its home in it
    txn.route   the path, free of ids          txn.home   server of the engine that holds the state
    txn.sid     what the request sticks by     txn.by     where that was found, for the log
"""

from __future__ import annotations

from typing import Final

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests.haproxy_errors import quoted, refuse

MAX_ID: Final = 256
MAX_HEADERS: Final = 64 * 2**10
MESSAGES_LOOK: Final = 64 * 2**10
"""Of a chat without any id, how much of its messages is looked at for its beginning."""

ROUTES: Final = (
    ("models", "path /v1/models", None),
    ("model", "path_reg ^/v1/models/.+$", "/v1/models/:id"),
    ("chat", "path /v1/chat/completions", None),
    ("completions", "path /v1/completions", None),
    ("responses", "path /v1/responses", None),
    ("response", "path_reg ^/v1/responses/[^/]+(/[a-z_]+)?$", "/v1/responses/:id"),
    ("states", "path /v1/states", None),
    ("state", "path_reg ^/v1/states/[^/]+(/(fork|content|touch))?$", "/v1/states/:ref"),
    ("session", "path_reg ^/v1/sessions/[^/]+$", "/v1/sessions/:id"),
    ("rwkv_fixed", "path /v1/rwkv/state/capabilities /v1/rwkv/state/upload", None),
    ("openapi", "path /openapi.json", None),
    ("rwkv_state", "path_reg ^/v1/rwkv/state/[^/]+(/clone)?$", "/v1/rwkv/state/:ref"),
)
"""What a router lets through: name, condition, and what the log says for a path with an id."""

FLATTEN: Final = r'regsub("\\\\[^\"]","_",g)'
"""Makes every escape but that of a quote a plain character.

`json_query` finds nothing in a string with an escape that it doesn't know, such as the \\uXXXX of
clients that send ASCII only. Strings stay apart by what is left of them, and end where they did.
About 0.3 µs for each escape, so only for texts of bounded length.
"""

ESCAPED_ID: Final = r'"session_id"[ \t\r\n]*:[ \t\r\n]*"[^"\\]*\\'
"""A session with an escape, as it is written: no text inside a message has its quotes bare."""

ESCAPED_ID_VALUE: Final = (
    r'regsub("(?s)^.*?\"session_id\"\s*:\s*\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+).*$","\1")'
)
MAX_ESCAPED_ID: Final = 6 * MAX_ID


def request_id() -> list[str]:
    """A request keeps the id that it came with, if that is a plain one."""
    return [
        "http-request set-var(txn.rid) req.hdr(x-request-id)"
        " if { req.hdr(x-request-id) -m reg ^[A-Za-z0-9._:-]{1,128}$ }",
        "http-request set-var(txn.rid) uuid() unless { var(txn.rid) -m found }",
        "http-request set-header x-request-id %[var(txn.rid)]",
        "http-after-response set-header x-request-id %[var(txn.rid)]",
    ]


def authentication(auth: spec.Auth, key_map: str) -> list[str]:
    """From the API key to the tenant; only the key's SHA-256 is known here."""
    if auth.mode == "Open":
        return [f"http-request set-var(txn.tenant) str({names.DEFAULT_TENANT})"]
    return [
        f"http-request set-var(txn.tenant) http_auth_bearer,sha2(256),hex,lower,map_str({key_map})",
        refuse(
            401,
            "invalid_api_key",
            "invalid API key: send a valid one as Authorization: Bearer <key>",
            {"www-authenticate": "Bearer"},
        )
        + " unless { var(txn.tenant) -m found }",
    ]


def own_headers() -> list[str]:
    """What engines believe comes from here and from nowhere else."""
    return [
        "http-request del-header x-rwkv- -m beg",
        'http-request set-header authorization "Bearer ${RWKV_INTERNAL_KEY}"',
        "http-request set-header x-rwkv-tenant %[var(txn.tenant)]",
    ]


def allow_list() -> list[str]:
    """Known paths, and 404 for every other."""
    acls = [f"acl {name} {condition}" for name, condition, _ in ROUTES]
    routes = [
        f"http-request set-var(txn.route) {f'str({text})' if text else 'path'}"
        # The cheap condition first: a path is matched until its route is known, no further.
        f" if !{{ var(txn.route) -m found }} {name}"
        for name, _, text in ROUTES
    ]
    unknown = refuse(404, "not_found", "unknown path; see /v1/models, /v1/chat/completions")
    return [*acls, *routes, unknown + " unless { var(txn.route) -m found }"]


def header_limit() -> list[str]:
    """Headers leave a buffer the room for a whole `maxBodyBytes`, so that lengths can be told."""
    text = f"a request may have {MAX_HEADERS} bytes of headers"
    return [refuse(431, "headers_too_large", text) + f" if {{ req.hdrs,length gt {MAX_HEADERS} }}"]


def header_session() -> list[str]:
    """The header comes first. A request with a bad one must not go on as if it had none."""
    bad = refuse(
        400,
        "invalid_session_id",
        f"x-session-id must be sent once and be 1 to {MAX_ID} characters",
    )
    return [
        f"{bad} if {{ req.fhdr_cnt(x-session-id) gt 1 }}",
        "http-request set-var(txn.sid) req.fhdr(x-session-id)"
        " if { req.fhdr(x-session-id) -m found }",
        f"{bad} if {{ var(txn.sid) -m found }} !{{ var(txn.sid) -m len 1:{MAX_ID} }}",
        "http-request set-var(txn.by) str(header) if { var(txn.sid) -m found }",
        "http-request set-var(txn.sid) path,field(4,/),url_dec"
        " if !{ var(txn.sid) -m found } { var(txn.route) -m str /v1/sessions/:id }",
        "http-request set-var(txn.sid) url_param(session),url_dec"
        " if !{ var(txn.sid) -m found } states { url_param(session) -m found }",
        "http-request set-var(txn.by) str(path)"
        " if { var(txn.sid) -m found } !{ var(txn.by) -m found }",
    ]


def path_ref() -> list[str]:
    """A state or a response that the path names."""
    return [
        "acl names_ref var(txn.route) -m str /v1/states/:ref /v1/responses/:id",
        "acl names_rwkv_ref var(txn.route) -m str /v1/rwkv/state/:ref",
        "http-request set-var(txn.ref) path,field(4,/) if names_ref !{ var(txn.sid) -m found }",
        "http-request set-var(txn.ref) path,field(5,/)"
        " if names_rwkv_ref !{ var(txn.sid) -m found }",
    ]


def size_limits(routing: spec.Routing) -> list[str]:
    """Bounds on bodies, before any of it is read.

    An upload passes through without being looked at. A request that nothing but its body can
    place must fit into a buffer, which only a declared length tells.
    """
    body, request = routing.max_body_bytes, routing.max_request_bytes
    state = routing.max_state_bytes
    over = "{ req.hdr_val(content-length) gt %d }"
    send_id = f"send x-session-id with requests over {body} bytes"
    return [
        "http-request set-var(txn.upload) bool(true) if METH_PUT names_ref { path_end /content }",
        "http-request set-var(txn.upload) bool(true) if METH_POST { path /v1/rwkv/state/upload }",
        "http-request set-var(txn.upload) bool(true)"
        " if METH_POST states !{ req.hdr(content-type) -m beg -i application/json }",
        "acl upload var(txn.upload) -m found",
        "acl placed var(txn.sid) -m found",
        "acl placed var(txn.ref) -m found",
        "acl sized req.hdr(content-length) -m found",
        refuse(413, "request_too_large", f"an uploaded state may have {state} bytes")
        + f" if upload {over % state}",
        refuse(413, "request_too_large", f"a request may have {request} bytes")
        + f" if !upload {over % request}",
        refuse(411, "length_required", "send Content-Length, or x-session-id")
        + " if METH_POST !upload !placed !sized",
        refuse(413, "request_too_large", send_id) + f" if METH_POST !upload !placed {over % body}",
    ]


def undeclared_bodies(routing: spec.Routing) -> list[str]:
    """A placed request may be chunked, as far as its length can be checked all the same."""
    limit = routing.max_body_bytes
    chunked = "!upload !sized { req.hdr(transfer-encoding) -m found }"
    return [
        f"http-request wait-for-body time {routing.timeouts.request_seconds}s if {chunked}",
        refuse(411, "length_required", f"send Content-Length with requests over {limit} bytes")
        + f" if {chunked} {{ req.body_len gt {limit} }}",
    ]


def body_session(routing: spec.Routing) -> list[str]:
    """The session that a body names; only now is the body read."""
    bad = refuse(
        400, "invalid_session_id", f"session_id must be a text of 1 to {MAX_ID} characters"
    )
    return [
        "http-request set-var(txn.look) bool(true) if METH_POST !upload !placed",
        "acl look var(txn.look) -m found",
        f"http-request wait-for-body time {routing.timeouts.request_seconds}s if look",
        _from_body("sid", "$.session_id", "look"),
        f"{bad} if look placed !{{ var(txn.sid) -m len 1:{MAX_ID} }}",
        f"http-request set-var(txn.sid) {quoted(f'req.body,{ESCAPED_ID_VALUE}')}"
        f" if look !placed {{ req.body -m reg {quoted(ESCAPED_ID)} }}",
        f"{bad} if look placed !{{ var(txn.sid) -m len 1:{MAX_ESCAPED_ID} }}",
        _found_by("body", "look placed"),
    ]


def body_ref() -> list[str]:
    """The saved state that a body continues."""
    return [
        _from_body("ref", "$.state.ref", "look !placed"),
        _from_body("ref", "$.vllm_xargs.rwkv_state_read_ref", "look !placed"),
        _from_body("ref", "$.previous_response_id", "look responses !placed"),
        _found_by("ref", "placed"),
    ]


def body_client_keys() -> list[str]:
    """What OpenAI's clients send to be told apart, of any length."""
    return [
        _from_body("sid", "$.prompt_cache_key", "look !placed", after="sha2(256),hex,lower"),
        _found_by("prompt_cache_key", "placed"),
        _from_body("sid", "$.user", "look !placed", after="sha2(256),hex,lower"),
        _found_by("user", "placed"),
    ]


def first_message() -> list[str]:
    """The beginning of a chat, for clients that send no id: the same on each of its turns.

    A first message longer than what is looked at counts by that much of it.
    """
    chat = "look chat !placed"
    second = f"{chat} preamble"
    lines = [
        f"http-request set-var(txn.msgs) req.body,json_query($.messages),bytes(0,{MESSAGES_LOOK})"
        f" if {chat}",
        f"http-request set-var(txn.role) var(txn.msgs),json_query($[0].role) if {chat}",
        "acl preamble var(txn.role) -m str system developer",
        *_message("m0", 0, "msgs", chat),
        *_message("m1", 1, "msgs", second),
        f"http-request set-var(txn.flat) {quoted(f'var(txn.msgs),{FLATTEN}')}"
        f" if {chat} !{{ var(txn.m0) -m found }}",
        f"http-request set-var(txn.flat) {quoted(f'var(txn.msgs),{FLATTEN}')}"
        f" if {second} !{{ var(txn.m1) -m found }} !{{ var(txn.flat) -m found }}",
        *_message("m0", 0, "flat", chat),
        *_message("m1", 1, "flat", second),
    ]
    for name, when in (("m0", chat), ("m1", second)):
        lines.append(
            f"http-request set-var(txn.{name}) var(txn.msgs),sha2(256),hex,lower"
            f" if {when} !{{ var(txn.{name}) -m found }}"
            f" {{ var(txn.msgs) -m len {MESSAGES_LOOK} }}"
        )
    return [
        *lines,
        "http-request unset-var(txn.msgs)",
        "http-request unset-var(txn.flat)",
        f"http-request set-var(txn.sid) var(txn.m0),concat(,txn.m1) if {second}"
        " { var(txn.m0) -m found } { var(txn.m1) -m found }",
        f"http-request set-var(txn.sid) var(txn.m0) if {chat} {{ var(txn.m0) -m found }}",
        _found_by("messages", "placed"),
    ]


def key_and_home(pod_prefix: str) -> list[str]:
    """The key that the ring is asked with, and the server of the engine that a ref names."""
    home = rf'var(txn.ref),regsub("^(rwkv-|resp_)?p([0-9]+)-.*$","{pod_prefix}\2")'
    return [
        "http-request set-var(txn.key) var(txn.tenant),concat(:,txn.sid)"
        " if { var(txn.sid) -m found }",
        "http-request set-var(txn.key) var(txn.tenant),concat(:,txn.ref)"
        " if { var(txn.ref) -m found } !{ var(txn.key) -m found }",
        f"http-request set-var(txn.home) {quoted(home)}"
        " if { var(txn.ref) -m reg ^(rwkv-|resp_)?p[0-9]+- } !{ var(txn.sid) -m found }",
        # What is logged: enough to follow a session, too little to learn its id.
        "http-request set-var(txn.kh) var(txn.key),sha2(256),bytes(0,8),hex,lower"
        " if { var(txn.key) -m found }",
    ]


def _message(name: str, index: int, source: str, when: str) -> list[str]:
    return [
        f"http-request set-var(txn.{name}) var(txn.{source}),"
        f"json_query($[{index}].content),sha2(256),hex,lower"
        f" if {when} !{{ var(txn.{name}) -m found }}"
    ]


def _from_body(name: str, path: str, when: str, after: str = "") -> str:
    converters = [part for part in (f"json_query({path})", after) if part]
    expression = quoted(",".join(["req.body", *converters]))
    return f"http-request set-var(txn.{name}) {expression} if {when}"


def _found_by(source: str, when: str) -> str:
    return f"http-request set-var(txn.by) str({source}) if {when} !{{ var(txn.by) -m found }}"
