import hashlib
import io
import json
import tarfile

import pytest

from rwkv_cluster import images


@pytest.mark.parametrize(
    ("local", "wanted"),
    [
        ("localhost/rwkv-operator/server:abc", "localhost/rwkv-operator/server:abc"),
        ("rwkv-operator/server:abc", "localhost/rwkv-operator/server:abc"),
        ("busybox", "localhost/busybox:latest"),
        ("a/b@sha256:1234", "localhost/a/b@sha256:1234"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("registry:5000/a/b", "registry:5000/a/b:latest"),
        ("localhost:5000/a:1", "localhost:5000/a:1"),
    ],
)
def test_a_local_name_becomes_the_kubelets_name(local: str, wanted: str) -> None:
    assert images.normalize(local) == wanted


def read(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]


def test_an_archive_of_a_program_describes_itself() -> None:
    files = read(images.build_archive("docker.io/x/pause:1", "pause", b"ELF"))
    manifest = json.loads(files["manifest.json"])[0]
    config = json.loads(files[manifest["Config"]])
    layer = files[manifest["Layers"][0]]
    assert manifest["RepoTags"] == ["docker.io/x/pause:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    assert read(layer) == {"pause": b"ELF"}
