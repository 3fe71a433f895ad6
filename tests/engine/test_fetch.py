"""Downloads through the vendors' real clients from a hub on this machine, one suite for both."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from itertools import pairwise
from types import SimpleNamespace

import hub_server
import pth_file
import pytest
from fetch_process import TOKEN, model_section
from hub_server import Fault

from rwkv_server import settings
from rwkv_server.errors import (
    CredentialsMissing,
    DiskFull,
    DownloadFailed,
    ModelInvalid,
    ModelNotFound,
    ServerError,
)
from rwkv_server.fetch import lock, progress, run, transfer
from rwkv_server.preflight import location, model

WEIGHTS = "model.safetensors"
# Bytes that a broken answer may cost: what one client holds before it passes it on.
LOST = 64 << 10


def offsets(hub, name):
    """Where each request for the file started."""
    return [int((r or "bytes=0-").removeprefix("bytes=")[:-1]) for r in hub.ranges(name)]


@pytest.fixture
def repository(tiny_model, tmp_path):
    """The bundled model, with what else lies in repositories."""
    folder = shutil.copytree(tiny_model, tmp_path / "repository")
    (folder / "modeling_rwkv7.py").write_text("raise SystemExit('remote code ran')")
    (folder / "README.md").write_text("# A model")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")
    return folder


@pytest.fixture
def hub(repository, monkeypatch):
    with hub_server.running(tiny=repository) as server:
        # Both clients read their endpoint from the environment, one of them at its import.
        import huggingface_hub.constants

        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,127.0.0.2")
        yield server


@pytest.fixture(params=["huggingFace", "modelScope"])
def fetch(request, hub, tmp_path):
    """Calls a fetch; its waits take no time."""
    waits = []

    def call(
        repo="org/tiny", *, token=None, pod="chat-engine-0", model_format="Auto", stale=60.0,
        **download,
    ):  # fmt: skip
        fields = model_section(tmp_path / "cache", request.param, repo, **download)
        section = {name.removeprefix("model__"): value for name, value in fields.items()}
        wanted = settings.Model(
            servedName="x", format=model_format, dtype="Auto", maxModelLen=8, **section
        )
        source = run.build_hub(wanted.source, wanted.download, token)
        patience = transfer.Patience(tries=4, sleep=waits.append, spread=lambda: 0.5)
        here = run.Surroundings(pod, patience, lock.Timing(beat=0.05, stale=stale, poll=0.02))
        call.progress = progress.Progress()
        run.fetch(wanted, source, call.progress, here)
        return call.path

    call.waits, call.source = waits, request.param
    call.cache = tmp_path / "cache"
    call.path = tmp_path / "cache" / "hub" / "model"
    return call


def names(folder):
    return {path.name for path in folder.iterdir()}


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_only_what_is_needed_arrives_whole_and_pinned(fetch, hub, repository):
    path = fetch()
    assert names(path) == names(repository) - {
        "modeling_rwkv7.py", "README.md", ".gitattributes",
    } | {"manifest.json"}  # fmt: skip
    assert (path / WEIGHTS).read_bytes() == (repository / WEIGHTS).read_bytes()
    facts = manifest(path)
    assert facts["commit"] == hub_server.commit_of(repository)
    assert (facts["source"], facts["repo"], facts["revision"]) == (fetch.source, "org/tiny", "main")
    assert facts["files"][WEIGHTS]["digest"].startswith("sha256:")
    assert names(path.parent) == {"model"}
    assert fetch.progress.done == fetch.progress.total > 2_000_000
    assert model.check_model(location.find_model(path, "Auto"), "Auto", "cpu", lambda p: None)


def test_a_finished_model_needs_no_network_and_stays_at_its_commit(fetch, hub, repository):
    fetch()
    asked = len(hub.requests)
    (repository / "README.md").write_text("# moved on")
    first = manifest(fetch())["commit"]
    assert len(hub.requests) == asked
    assert first != hub_server.commit_of(repository)
    fetch(offline=True)


def test_a_tag_and_a_commit_are_revisions(fetch, hub, repository, tmp_path):
    old = shutil.copytree(repository, tmp_path / "old")
    (old / "generation_config.json").write_text("{}")
    hub.add("org/tiny", old, "v1")
    assert (fetch(revision="v1") / "generation_config.json").read_text() == "{}"
    shutil.rmtree(fetch.path)
    fetch(revision=hub_server.commit_of(repository))
    assert manifest(fetch.path)["commit"] == hub_server.commit_of(repository)


def test_an_answer_that_is_cut_is_gone_on_with(fetch, hub, repository):
    size = (repository / WEIGHTS).stat().st_size
    hub.faults = [Fault("cut", WEIGHTS, times=3, value=700_000)]
    fetch()
    assert size <= hub.sent(WEIGHTS) <= size + 3 * LOST
    starts = offsets(hub, WEIGHTS)
    assert all(700_000 - LOST <= b - a <= 700_000 for a, b in pairwise(starts))
    assert len(starts) == 4


def test_a_server_without_ranges_starts_anew(fetch, hub, repository):
    hub.faults = [Fault("cut", WEIGHTS, times=1, value=700_000), Fault("ignore_range", WEIGHTS)]
    path = fetch()
    assert (path / WEIGHTS).read_bytes() == (repository / WEIGHTS).read_bytes()
    assert fetch.progress.done == fetch.progress.total


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_that_is_ill_for_a_while(fetch, hub, status):
    hub.faults = [Fault("status", times=3, value=status)]
    fetch()
    assert sum(fetch.waits) >= 3.0 or fetch.source == "huggingFace"


def test_a_changed_byte_is_fetched_again(fetch, hub, repository):
    hub.faults = [Fault("corrupt", WEIGHTS, times=1)]
    path = fetch()
    assert (path / WEIGHTS).read_bytes() == (repository / WEIGHTS).read_bytes()
    assert hub.sent(WEIGHTS) == 2 * (repository / WEIGHTS).stat().st_size
    assert fetch.progress.done == fetch.progress.total


def drop(name):
    return lambda folder, hub: (folder / name).unlink()


def write(name, text):
    return lambda folder, hub: (folder / name).write_text(text)


def llama(folder, hub):
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))


def faults(*which):
    return lambda folder, hub: hub.faults.extend(which)


def wrong_digest(folder, hub):
    hub.wrong_digests[WEIGHTS] = "0" * 64


def wants_token(folder, hub):
    hub.token = "right"


@pytest.mark.parametrize(
    ("prepare", "arguments", "kind", "words"),
    [
        (None, {"repo": "org/gone"}, ModelNotFound, "org/gone@main: there is no such repository"),
        (None, {"revision": "v9"}, ModelNotFound, "the repository has no revision v9"),
        (None, {"offline": True}, ModelNotFound, "is not in the cache and spec.model.offline"),
        (wants_token, {}, CredentialsMissing, "answers 401: .* no token was given"),
        (wants_token, {"token": TOKEN}, CredentialsMissing, "this token is not valid there"),
        (faults(Fault("gated")), {}, CredentialsMissing, "is gated: accept its terms"),
        (faults(Fault("status", value=500)), {}, DownloadFailed, "answers 500 .4 tries in a row"),
        (wrong_digest, {}, DownloadFailed, f"{WEIGHTS} arrived twice with another digest"),
        (faults(Fault("corrupt", WEIGHTS)), {}, DownloadFailed, "a proxy or mirror on the way"),
        (faults(Fault("cut", WEIGHTS, value=0)), {}, DownloadFailed, "tries in a row"),
        (drop(WEIGHTS), {}, ModelInvalid, "org/tiny@main holds no weights"),
        (drop("tokenizer.json"), {}, ModelInvalid, "a vocabulary of 320 is not the World"),
        (drop("config.json"), {}, ModelInvalid, "org/tiny@main has no config.json"),
        (write("a.pth", "x"), {}, ModelInvalid, "holds both model.safetensors and a.pth"),
        (llama, {}, ModelInvalid, "org/tiny@main: config.json: architectures doesn't hold RWKV7"),
        (None, {"files": ["b.pth"]}, ModelInvalid, "org/tiny@main has no file b.pth"),
    ],
)
def test_what_goes_wrong_is_told_exactly(fetch, hub, repository, prepare, arguments, kind, words):
    if prepare is not None:
        prepare(repository, hub)
    with pytest.raises(kind, match=words) as caught:
        fetch(**arguments)
    assert fetch.source in caught.value.message
    assert not fetch.path.exists()
    if kind is not DownloadFailed:
        assert hub.sent(WEIGHTS) == 0


def test_no_hub_at_all(fetch, hub):
    hub.stop()
    with pytest.raises(DownloadFailed, match=r"Connection refused \(4 tries in a row\)\. What has"):
        fetch()


def test_the_token_goes_to_the_hub_and_nowhere_else(fetch, hub, caplog):
    hub.token = TOKEN
    with caplog.at_level(logging.DEBUG):
        path = fetch(token=TOKEN)
    assert any(TOKEN in request.secret for request in hub.requests)
    assert hub.secrets() == set()
    assert not [file for file in path.rglob("*") if TOKEN.encode() in file.read_bytes()]


def test_no_room_is_told_before_the_weights_come(fetch, hub, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=20_000_000))
    hub.faults = [Fault("cut", WEIGHTS, value=0)]
    with pytest.raises(DownloadFailed):
        fetch()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=17_000_000))
    with pytest.raises(DiskFull, match="17000000 are free") as caught:
        fetch()
    assert caught.value.exit_code == 73


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFull, "is full: use a larger one"),
        (errno.EDQUOT, DiskFull, "is full"),
        (errno.EROFS, DownloadFailed, "has to be writable for the pod's user"),
    ],
)
def test_a_volume_that_fails_on_the_way(fetch, hub, monkeypatch, number, kind, words):
    def write(self, data):
        if self.offset > 1_000_000:
            raise OSError(number, "the volume's words")
        return real(self, data)

    real = transfer.PartFile.write
    with monkeypatch.context() as patched:
        patched.setattr(transfer.PartFile, "write", write)
        with pytest.raises(kind, match=words):
            fetch()
    fetch()
    assert offsets(hub, WEIGHTS)[-1] > 1_000_000


def test_a_cache_that_cant_be_written(fetch):
    fetch.cache.write_text("a file")
    with pytest.raises(DownloadFailed, match="can't be written"):
        fetch()


def test_half_a_download_is_gone_on_with_at_another_commit(fetch, hub, repository):
    hub.faults = [Fault("cut", WEIGHTS, times=4, value=400_000)]
    hub.faults += [Fault("cut", WEIGHTS, value=0)]
    with pytest.raises(DownloadFailed):
        fetch()
    (repository / "generation_config.json").write_text('{"eos_token_id": 0}')
    hub.faults, before = [], hub.sent(WEIGHTS)
    path = fetch()
    assert before == 1_600_000
    size = (repository / WEIGHTS).stat().st_size
    assert size <= hub.sent(WEIGHTS) <= size + 4 * LOST
    assert (path / "generation_config.json").read_text() == '{"eos_token_id": 0}'


def test_a_copy_that_lost_a_file_is_made_anew(fetch, hub):
    (fetch() / "tokenizer.json").write_text("{}")
    fetch()
    assert (fetch.path / "tokenizer.json").stat().st_size > 1000
    assert names(fetch.path.parent) == {"model"}


@pytest.fixture
def checkpoints(tiny_model, hub, tmp_path):
    """A repository of official checkpoints: two sizes, no config."""
    folder = tmp_path / "official"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tiny_model / name, folder)
    pth_file.write_from_model(tiny_model, folder / "small.pth")
    (folder / "large.pth").write_bytes(b"x" * 9999)
    hub.add("org/official", folder)
    return folder


def test_one_of_several_checkpoints_is_fetched_and_converted(fetch, hub, checkpoints, tiny_model):
    with pytest.raises(ModelInvalid, match=r"2 \.pth files, wanted one"):
        fetch("org/official")
    # What a pod leaves that is killed while it converts.
    files = fetch.path.with_name("model.partial") / "files"
    (files / ".rwkv-converted" / ".0123.4567").mkdir(parents=True)
    path = fetch("org/official", files=["small.pth"])
    assert hub.sent("large.pth") == 0
    assert fetch.progress.phase == "Converting"
    found = location.find_model(path, "Auto")
    assert (found.format, found.pth) == ("PTH", path / "small.pth")
    (converted,) = (path / ".rwkv-converted").iterdir()
    info = model.check_model(location.find_model(converted, "Auto"), "Auto", "cpu", lambda p: None)
    bundled = location.find_model(tiny_model, "Auto")
    assert info.parameters == model.check_model(bundled, "Auto", "cpu", lambda p: None).parameters


def test_a_checkpoint_that_calls_is_refused(fetch, checkpoints, tmp_path):
    trap = tmp_path / "trap"
    pth_file.write_raw(checkpoints / "small.pth", f"cos\nsystem\n(Vtouch {trap}\ntR.".encode())
    with pytest.raises(ModelInvalid, match=r"its pickle calls os\.system"):
        fetch("org/official", files=["small.pth"])
    assert not trap.exists()
    assert not fetch.path.exists()


def test_a_dead_pods_lock_is_taken_over(fetch, hub):
    held = fetch.path.with_name("model.lock")
    held.mkdir(parents=True)
    (held / "1.json").write_text(json.dumps({"owner": "chat-engine-7", "note": {"bytes": 5}}))
    seen = []
    watcher = SimpleNamespace(enter=progress.Progress.enter)
    real = progress.Progress.enter

    def enter(self, phase, message, percent=None):
        seen.append((phase, message))
        real(self, phase, message, percent)

    progress.Progress.enter = enter
    try:
        fetch(stale=2.0)
    finally:
        progress.Progress.enter = watcher.enter
    assert ("Waiting", f"chat-engine-7 downloads {fetch.source} org/tiny@main") in seen
    assert names(fetch.path.parent) == {"model"}


def test_every_error_has_its_exit_code():
    codes = {ModelNotFound: 66, ModelInvalid: 65, CredentialsMissing: 77, DownloadFailed: 75}
    codes |= {DiskFull: 73}
    assert {kind: kind.exit_code for kind in codes} == codes
    assert all(issubclass(kind, ServerError) for kind in codes)
