"""The ModelScope hub, through modelscope_hub, the vendor's client of it.

Its listing and its streams are used; its cache and its lock aren't, for the same reasons as with
the other hub: pods on one volume need a lock that holds there, and one way to resume.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from rwkv_server.fetch import hub_errors
from rwkv_server.fetch.hub import HubUnavailable, RemoteFile, Sink, Snapshot

# What an answer that breaks can cost: the client passes whole pieces on.
CHUNK = 64 << 10
# Set before the library is imported. Trying again is our business, for both hubs alike.
ENVIRONMENT = {"MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1"}
NEVER_INHERITED = ("MODELSCOPE_API_TOKEN",)


class ModelScope:
    """One repository at one revision; the endpoint is the environment's MODELSCOPE_ENDPOINT."""

    def __init__(self, repo: str, revision: str, token: str | None) -> None:
        """Remember what to ask for; no request yet."""
        self._repo, self._revision, self._token = repo, revision, token
        os.environ.update(ENVIRONMENT)
        for name in NEVER_INHERITED:
            os.environ.pop(name, None)

    @property
    def label(self) -> str:
        """How errors and logs name it."""
        return f"modelScope {self._repo}@{self._revision}"

    def list_files(self) -> Snapshot:
        """The revision's newest commit and its files, with their digests."""
        try:
            raw = self._client().list_repo_files(self._repo, "model", revision=self._revision)
        except Exception as error:
            raise self._translated(error) from None
        entries = [entry for entry in raw if entry.get("Type") != "tree" and entry.get("Path")]
        if not entries:
            raise hub_errors.no_revision(self.label, self._revision)
        return Snapshot(_newest_commit(entries), tuple(map(_remote_file, entries)))

    def copy(self, file: RemoteFile, commit: str, sink: Sink) -> None:
        """Append the rest of `file` to `sink`."""
        headers = {"Accept-Encoding": "identity"}
        if sink.offset:
            headers["Range"] = f"bytes={sink.offset}-"
        try:
            answer = self._client().download_stream(
                self._repo, "model", file.name, revision=commit, headers=headers
            )
            with answer:
                if sink.offset and answer.status_code != 206:
                    sink.seek(0)
                    sink.truncate()
                for chunk in answer.iter_content(CHUNK):
                    sink.write(chunk)
        except Exception as error:
            raise self._translated(error, file.name) from None
        if sink.offset < file.size:
            raise HubUnavailable(f"{self.label}: {file.name}: the answer ended too early")

    def _client(self) -> Any:
        from modelscope_hub import HubApi
        from modelscope_hub.config import HubConfig

        # Nothing of a login that lies in a home folder, and none is written there.
        empty = Path(tempfile.gettempdir()) / "rwkv-modelscope"
        return HubApi(HubConfig(token=self._token or "", config_dir=empty, cache_dir=empty)).legacy

    def _translated(self, error: Exception, name: str = "") -> Exception:
        from modelscope_hub import errors

        has_token = self._token is not None
        told = f"{self.label}: {name}" if name else self.label
        if isinstance(error, errors.NotExistError):
            if name:
                return hub_errors.no_file(self.label, name)
            if self._repository_exists():
                return hub_errors.no_revision(self.label, self._revision)
            return hub_errors.no_repository(self.label)
        if isinstance(error, errors.AuthenticationError):
            return hub_errors.denied(self.label, 401, has_token)
        if isinstance(error, errors.PermissionDeniedError):
            return hub_errors.gated(self.label, has_token)
        if isinstance(error, errors.APIError):
            return HubUnavailable(f"{told}: the hub answers {error.status_code}")
        library = type(error).__module__.split(".")[0]
        if isinstance(error, errors.HubError) or library in ("requests", "urllib3"):
            return HubUnavailable(f"{told}: {hub_errors.cause(error)}")
        return error

    def _repository_exists(self) -> bool:
        try:
            self._client().get_repo_info(self._repo, "model")
        except Exception:
            return False
        return True


def _newest_commit(entries: list[dict[str, Any]]) -> str:
    """The newest of the files' last commits: the hub doesn't say what a branch points at."""
    newest = max(entries, key=lambda entry: int(entry.get("CommittedDate") or 0))
    return str(newest.get("Revision") or "")


def _remote_file(entry: dict[str, Any]) -> RemoteFile:
    digest = entry.get("Sha256")
    return RemoteFile(
        str(entry["Path"]), int(entry.get("Size") or 0), f"sha256:{digest}" if digest else ""
    )
