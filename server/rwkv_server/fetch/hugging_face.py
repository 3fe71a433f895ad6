"""The Hugging Face hub, through huggingface_hub.

Of that library the listing and the HTTP session are used. Its own cache isn't: a killed download
starts from zero there, as its partial files have random names, each broken answer costs up to 10 MB
that it hasn't written yet, and its lock is flock, which some network volumes grant to everyone. Xet
transfers can't be continued either.
"""

from __future__ import annotations

import os
from typing import Any

from rwkv_server.fetch import hub_errors
from rwkv_server.fetch.hub import HubUnavailable, RemoteFile, Sink, Snapshot

LISTING_SECONDS = 30
# Without a byte, not in all.
STREAM_SECONDS = 30
# Set before the library is imported, which is when it reads them.
ENVIRONMENT = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
}
NEVER_INHERITED = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRANSPORTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"}


class HuggingFace:
    """One repository at one revision; the endpoint is the environment's HF_ENDPOINT."""

    def __init__(self, repo: str, revision: str, token: str | None) -> None:
        """Remember what to ask for; no request yet."""
        self._repo, self._revision, self._token = repo, revision, token
        os.environ.update(ENVIRONMENT)
        for name in NEVER_INHERITED:
            os.environ.pop(name, None)

    @property
    def label(self) -> str:
        """How errors and logs name it."""
        return f"huggingFace {self._repo}@{self._revision}"

    def list_files(self) -> Snapshot:
        """The revision's commit and files, with their digests."""
        import huggingface_hub

        api = huggingface_hub.HfApi(token=self._token or False, library_name="rwkv-server")
        try:
            info = api.model_info(
                self._repo, revision=self._revision, files_metadata=True, timeout=LISTING_SECONDS
            )
        except Exception as error:
            raise self._translated(error) from None
        if not info.sha:
            raise HubUnavailable(f"{self.label}: the hub's answer names no commit")
        return Snapshot(info.sha, tuple(map(_remote_file, info.siblings or ())))

    def copy(self, file: RemoteFile, commit: str, sink: Sink) -> None:
        """Append the rest of `file` to `sink`."""
        import huggingface_hub
        from huggingface_hub import utils

        url = huggingface_hub.hf_hub_url(self._repo, file.name, revision=commit)
        headers = utils.build_hf_headers(token=self._token or False, library_name="rwkv-server")
        # Otherwise small text may come compressed, and an offset would count other bytes.
        headers["Accept-Encoding"] = "identity"
        if sink.offset:
            headers["Range"] = f"bytes={sink.offset}-"
        request = {"headers": headers, "timeout": STREAM_SECONDS, "follow_redirects": True}
        try:
            with huggingface_hub.get_session().stream("GET", url, **request) as answer:
                utils.hf_raise_for_status(answer)
                if sink.offset and answer.status_code != 206:
                    sink.seek(0)
                    sink.truncate()
                for chunk in answer.iter_bytes():
                    sink.write(chunk)
        except Exception as error:
            raise self._translated(error, file.name) from None
        if sink.offset < file.size:
            raise HubUnavailable(_told(self.label, file.name, "the answer ended too early"))

    def _translated(self, error: Exception, name: str = "") -> Exception:
        from huggingface_hub import errors

        has_token = self._token is not None
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.GatedRepoError):
            return hub_errors.gated(self.label, has_token)
        if isinstance(error, errors.RevisionNotFoundError):
            return hub_errors.no_revision(self.label, self._revision)
        if isinstance(error, errors.EntryNotFoundError):
            return hub_errors.no_file(self.label, name)
        if status in (401, 403):
            return hub_errors.denied(self.label, status, has_token)
        if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
            return hub_errors.no_repository(self.label)
        if isinstance(error, errors.HfHubHTTPError):
            return HubUnavailable(_told(self.label, name, f"the hub answers {status}"))
        if type(error).__module__.split(".")[0] in _TRANSPORTS:
            return HubUnavailable(_told(self.label, name, hub_errors.cause(error)))
        return error


def _remote_file(sibling: Any) -> RemoteFile:
    lfs = sibling.lfs
    digest = f"sha256:{lfs.sha256}" if lfs else f"git:{sibling.blob_id}" if sibling.blob_id else ""
    return RemoteFile(sibling.rfilename, int(sibling.size or 0), digest)


def _told(label: str, name: str, what: str) -> str:
    return f"{label}: {name}: {what}" if name else f"{label}: {what}"
