"""The ops port: probes, progress, report and metrics for the cluster, and the drain's trigger.

Answers never wait for the engine except where they show its numbers, and then only briefly: a busy
child must not fail a probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rwkv_server.errors import EngineFailed
from rwkv_server.metrics import Metrics
from rwkv_server.parent.drain import Drainer
from rwkv_server.parent.engine_http import EngineHttp, Load
from rwkv_server.parent.status import Status
from rwkv_server.web.routes import is_loopback

# How long a report waits for the child's numbers.
REPORT_S = 1.0


class OpsApp:
    """The routes of the ops port, over the parent's status."""

    def __init__(
        self, status: Status, engine: EngineHttp, drainer: Drainer, metrics: Metrics
    ) -> None:
        """Keep what the answers are made of."""
        self._status = status
        self._engine = engine
        self._drainer = drainer
        self._metrics = metrics
        self._load = Load(running=0, waiting=0, in_flight=0)

    def build(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/livez", self.livez),
                Route("/readyz", self.readyz),
                Route("/progress", self.progress),
                Route("/report", self.report),
                Route("/metrics", self.metrics),
                Route("/drain", self.drain, methods=["POST"]),
            ]
        )

    async def livez(self, request: Request) -> Response:
        """200 while the parent and its child live; says nothing about load."""
        if self._status.child_died:
            return JSONResponse({"status": "the engine process died"}, 503)
        return JSONResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """200 while the router may send requests."""
        return JSONResponse(self._status.render_ready(), 200 if self._status.ready else 503)

    async def progress(self, request: Request) -> Response:
        """Phase and how far it is."""
        return JSONResponse(self._status.render_progress())

    async def report(self, request: Request) -> Response:
        """Model, store and load; a busy child's load is the last one known."""
        if self._status.healthy:
            with contextlib.suppress(asyncio.TimeoutError):
                load = await asyncio.wait_for(self._engine.load(), REPORT_S)
                self._load = load or self._load
        return JSONResponse(self._status.render_report(self._load))

    async def metrics(self, request: Request) -> Response:
        """Our metrics, then the child's."""
        self._metrics.ready.set(self._status.ready)
        self._metrics.draining.set(self._status.draining)
        child = await self._engine.metrics() if self._status.healthy else None
        return PlainTextResponse(self._metrics.render(child), media_type=CONTENT_TYPE_LATEST)

    async def drain(self, request: Request) -> Response:
        """Start the drain, for callers inside the pod; says whether it is over."""
        client = request.client
        if not is_loopback(None if client is None else (client.host, client.port)):
            return JSONResponse({"error": "the drain starts only from inside the pod"}, 403)
        self._drainer.start()
        return JSONResponse(
            {"draining": self._status.draining, "drained": self._status.drained}, 202
        )


class OpsServer(uvicorn.Server):
    """uvicorn without signal handlers of its own: the parent decides when to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def open_socket(port: int) -> socket.socket:
    """A listening socket on all addresses; EngineFailed if the port is taken."""
    try:
        return socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise EngineFailed(f"ops port {port} can't be opened: {error.strerror}") from None


def build_server(app: Starlette) -> OpsServer:
    """A server for `app` that logs nothing per request."""
    return OpsServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
