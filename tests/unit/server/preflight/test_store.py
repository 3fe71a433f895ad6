from __future__ import annotations

import errno
import os

import engine_config
import pytest

from rwkv_server.errors import StoreDenied, StoreUnreachable
from rwkv_server.preflight import store
from rwkv_server.settings import State


def state(kind, path):
    return State(**engine_config.changed(state__store=kind, state__path=str(path))["state"])


def test_a_good_directory_is_left_empty(tmp_path):
    report = store.report_store(state("perPod", tmp_path), "chat-engine-0")
    assert (report.ok, report.reason) == (True, "PerPod")
    assert list(tmp_path.iterdir()) == []


def test_an_ephemeral_store_says_when_states_end(tmp_path):
    report = store.report_store(state("ephemeral", tmp_path), "x")
    assert (report.ok, report.reason) == (True, "Ephemeral")
    assert "end with the pod" in report.message


def test_leftovers_of_a_killed_probe_do_not_matter(tmp_path):
    (tmp_path / ".rwkv-probe.x").write_bytes(b"old and much longer than a probe" * 9)
    assert store.report_store(state("perPod", tmp_path), "x").ok
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_unreachable_with_the_systems_words(tmp_path):
    report = store.report_store(state("perPod", tmp_path / "gone"), "x")
    assert (report.ok, report.reason) == (False, "StoreUnreachable")
    assert "No such file or directory (ENOENT)" in report.message


def test_a_planted_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / ".rwkv-probe.x").symlink_to(target)
    assert not store.report_store(state("perPod", tmp_path), "x").ok
    assert target.read_text() == "precious"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, StoreDenied),
        (errno.EROFS, StoreDenied),
        (errno.EPERM, StoreDenied),
        (errno.ENOSPC, StoreUnreachable),
        (errno.EIO, StoreUnreachable),
        (errno.ESTALE, StoreUnreachable),
    ],
)
def test_errors_of_the_volume_are_told_apart(number, kind, tmp_path, monkeypatch):
    def fail(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match=errno.errorcode[number]):
        store.probe_directory(tmp_path, "x")


def test_other_bytes_than_written_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(type(tmp_path), "read_bytes", lambda path: b"other")
    with pytest.raises(StoreUnreachable, match="other bytes"):
        store.probe_directory(tmp_path, "x")


def test_a_volume_without_hard_links_is_told(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreUnreachable, match="no hard links"):
        store.probe_directory(tmp_path, "x")
