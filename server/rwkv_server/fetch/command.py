"""The command `rwkv-server fetch`: environment in, exit code out, and no token anywhere."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

from rwkv_server import settings
from rwkv_server.errors import ConfigInvalid, DownloadFailed, ServerError
from rwkv_server.fetch import progress, redact, run

TOKEN = "RWKV_MODEL_TOKEN"
# They log addresses, and those of a hub's store carry a signature.
CHATTY = ("httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "modelscope_hub")

log = logging.getLogger(__name__)


def run_fetch(config: Path, port: int) -> int:
    """Fetch what engine.yaml at `config` names.

    Raises:
        ServerError: without a secret in it.
    """
    # Out of the environment at once: no child and no library can find it there.
    token = (os.environ.pop(TOKEN, "") or "").strip() or None
    redactor = redact.Redactor([token])
    redact.guard_logs(redactor)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Process 1 of a container has no default for it; ending this way releases the lock.
    signal.signal(signal.SIGTERM, _end)
    try:
        wanted = settings.read_settings(config).model
        if wanted.download is None:
            raise ConfigInvalid(
                f"model.source {wanted.source} is nothing to fetch", found=wanted.source
            )
        told = progress.Progress()
        server = progress.serve(told, port)
        hub = run.build_hub(wanted.source, wanted.download, token)
        run.fetch(wanted, hub, told, run.Surroundings(run.default_owner()))
        server.shutdown()
        return 0
    except ServerError as error:
        raise redactor.error(error) from None
    except Exception as error:
        # What we don't know may hold anything: its type and redacted text, never its trace.
        text = redactor.text(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise DownloadFailed(f"fetch failed unexpectedly: {text[:500]}") from None


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
