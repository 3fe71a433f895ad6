"""The life of an engine pod, from preflight to the last drained answer.

`Parent.run` returns when the pod was asked to end, and raises the error that ends it otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from rwkv_server.errors import ConfigInvalid, EngineFailed
from rwkv_server.metrics import Metrics
from rwkv_server.model import packed_manifest
from rwkv_server.parent import args, quota, states
from rwkv_server.parent.background import in_thread
from rwkv_server.parent.child import Child
from rwkv_server.parent.child_log import ChildLog, parse_progress
from rwkv_server.parent.drain import Drainer
from rwkv_server.parent.engine_http import EngineHttp, Health
from rwkv_server.parent.ops import OpsApp, build_server, open_socket
from rwkv_server.parent.status import Progress, Status
from rwkv_server.parent.store_watch import StoreWatch
from rwkv_server.preflight.conversion import converted_folder
from rwkv_server.preflight.location import Location, find_model
from rwkv_server.preflight.machine import LocalMachine
from rwkv_server.preflight.model import ModelInfo, check_model, read_config
from rwkv_server.preflight.stack_check import check_stack
from rwkv_server.settings import Settings

HEALTH_INTERVAL_S = 0.5
# A busy API process may miss a check or two; only a row of them means trouble.
SILENT_CHECKS = 3
CHILD_GRACE_S = 15.0

log = logging.getLogger(__name__)


class Parent:
    """Everything that one `rwkv-server serve` owns."""

    def __init__(self, settings: Settings, key: str, status: Status, metrics: Metrics) -> None:
        """Put the parts together; nothing runs yet."""
        self._settings = settings
        self._key = key
        self._status = status
        self._metrics = metrics
        self._engine = EngineHttp(settings.http.port)
        self._drainer = Drainer(settings.drain, status, self._engine.load, self._engine.flush)
        self._store = StoreWatch(settings.state, status, metrics)
        self._child: Child | None = None
        self._log = ChildLog(key)

    async def run(self) -> None:
        """Live until a signal asks to end, or an error does.

        Raises:
            ServerError: why the pod can't go on.
        """
        stop = _stop_event()
        app = OpsApp(self._status, self._engine, self._drainer, self._metrics).build()
        listener = open_socket(self._settings.ops.port)
        async with _serving(app, listener):
            life = asyncio.create_task(self._live())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({life, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if life.done():
                    await life
                # The life goes on during the drain: it watches the child.
                draining = asyncio.create_task(self._drainer.finish())
                await asyncio.wait({life, draining}, return_when=asyncio.FIRST_COMPLETED)
                if life.done() or self._status.child_died:
                    await life
            finally:
                await _cancel(life, stopping)
                if self._child is not None:
                    await self._child.stop(CHILD_GRACE_S)
                    states.remove_files(self._settings.http.port)
                await self._engine.close()

    async def _live(self) -> None:
        """Preflight, start, watch; never returns, raises when the pod can't go on."""
        stack, devices = self._settings.stack, self._settings.engine.tensor_parallel_size
        await in_thread(lambda: check_stack(stack, LocalMachine(), devices))
        model = await self._check_model(await self._find_model())
        self._status.enter("ProbingStore", "writing to the state directory")
        await self._store.probe()
        await self._start_child(model)
        watches = [self._watch_child(), self._watch_health(), self._store.run()]
        tasks = [asyncio.create_task(watch) for watch in watches]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _cancel(*tasks)

    async def _find_model(self) -> Location:
        wanted = self._settings.model
        files = wanted.download.files if wanted.download else None
        location = await in_thread(lambda: find_model(Path(wanted.path), wanted.format, files))
        log.info("found the format %s at %s", location.format, wanted.path)
        if location.pth is None:
            return location
        message = f"converting {location.pth.name} to safetensors"
        self._status.enter("Converting", message)

        def converted(percent: int) -> None:
            self._status.progress = Progress(message, percent)

        folder = await in_thread(lambda: converted_folder(location, converted))
        return replace(location, folder=folder)

    async def _check_model(self, location: Location) -> ModelInfo:
        self._status.enter("CheckingModel", "checking the model's files")

        def hashed(percent: int) -> None:
            self._status.progress = Progress("hashing the weights", percent)

        dtype, vendor = self._settings.model.dtype, self._settings.stack.vendor
        model = await in_thread(lambda: check_model(location, dtype, vendor, hashed))
        await in_thread(lambda: self._check_fit(model))
        self._status.model = model
        return model

    def _check_fit(self, model: ModelInfo) -> None:
        """Devices and packed weights against the model: vLLM would only say that it failed."""
        engine, config = self._settings.engine, read_config(model.path)
        args.check_ranks(engine.tensor_parallel_size, config)
        scheme = engine.quantization
        if scheme in packed_manifest.ROWS and scheme in self._settings.stack.supports.quantization:
            packed_manifest.read(model.path, scheme, model.digest, config)

    async def _start_child(self, model: ModelInfo) -> None:
        self._status.enter("LoadingModel", "starting vLLM")
        ranks = self._settings.engine.tensor_parallel_size
        threads = args.compute_threads(quota.read_cores(), model.parameters, ranks)
        vendor = self._settings.stack.vendor
        command = args.child_args(self._settings, model)
        env = args.child_env(os.environ, self._key, threads, vendor, model.vocab_size)
        if states.are_offered(self._settings.stack):
            told = states.build_environment(self._settings, model, socket.gethostname())
            env |= states.child_variables(told)
        log.info("starting %s with %d thread(s)", " ".join(command), threads)
        self._child = await Child.start(command, env, self._hear)

    def _hear(self, line: str) -> str:
        shown = self._log.add(line)
        if self._status.phase == "LoadingModel":
            self._status.progress = parse_progress(line) or self._status.progress
        return shown

    async def _watch_child(self) -> None:
        assert self._child is not None
        code = await self._child.wait()
        self._status.child_died = True
        self._status.enter("Failed", "the engine process died")
        raise EngineFailed(f"the engine process ended ({_ending(code)}): {self._log.cause}")

    async def _watch_health(self) -> None:
        silent = 0
        while True:
            health = await self._engine.health()
            silent = silent + 1 if health is Health.SILENT else 0
            if health is Health.OK and not self._status.healthy:
                self._become_healthy()
            elif self._status.healthy and (health is Health.BROKEN or silent >= SILENT_CHECKS):
                self._status.healthy = False
                self._status.progress = Progress("the engine fails its health check")
                log.warning("the engine fails its health check: %s", health.value)
            await asyncio.sleep(HEALTH_INTERVAL_S)

    def _become_healthy(self) -> None:
        first = self._status.phase == "LoadingModel"
        self._status.healthy = self._status.served = True
        if not self._status.draining:
            self._status.enter("Ready", "serving")
        if first:
            self._metrics.start_seconds.set(self._status.elapsed_s)
            log.info("ready after %.1f s", self._status.elapsed_s)


def read_key(path: Path) -> str:
    """The key that the router sends; ConfigInvalid if the file holds none."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"http.internalKeyFile: {path} can't be read: {error}") from None
    if not key or not key.isprintable() or " " in key:
        raise ConfigInvalid(
            f"http.internalKeyFile: {path} holds no key", wanted="one line without spaces"
        )
    return key


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.asynccontextmanager
async def _serving(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    server = build_server(app)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
