"""A child that starts in milliseconds: vLLM's routes and command line, without an engine.

Lives in a folder of its own that only the child's PYTHONPATH holds. What it does is chosen by the
served model's name: `crash` ends while loading, `deaf` ignores SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal

import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route


async def health(request):
    return PlainTextResponse("")


async def metrics(request):
    return PlainTextResponse(prometheus_client.generate_latest())


async def flush(request):
    return JSONResponse({"flushed": 3, "failed": 0, "onlyHere": 5})


async def complete(request):
    """One word every 50 ms, as many as `max_tokens` says."""
    count = (await request.json())["max_tokens"]

    async def words():
        for number in range(count):
            await asyncio.sleep(0.05)
            yield f"data: {number}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(words(), media_type="text/event-stream")


async def end(request):
    os._exit(9)


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    for flag in ("--port", "--middleware", "--served-model-name"):
        parser.add_argument(flag, required=True)
    options, _ = parser.parse_known_args()
    print("using key", os.environ["VLLM_API_KEY"], flush=True)
    if options.served_model_name == "crash":
        raise ValueError("the stub was told to crash")
    routes = [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/internal/flush", flush, methods=["POST"]),
        Route("/v1/completions", complete, methods=["POST"]),
        Route("/v1/models", end),
    ]
    app = Starlette(routes=routes)
    module, _, name = options.middleware.rpartition(".")
    app.add_middleware(getattr(importlib.import_module(module), name))
    config = uvicorn.Config(app, host="127.0.0.1", port=int(options.port), log_level="warning")
    server = uvicorn.Server(config)
    if options.served_model_name == "deaf":
        server.handle_exit = lambda sig, frame: None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server.run()


if __name__ == "__main__":
    main()
