"""Which old images are forgotten."""

from __future__ import annotations

import storage

HERE = "localhost/rwkv-operator/server"


def references(*tags: str, repository: str = HERE) -> list[str]:
    return [f"{repository}:{tag}" for tag in tags]


def test_the_oldest_of_a_repository_go() -> None:
    listed = references("000000000001", "000000000002", "000000000003")
    assert storage.choose_old(listed, HERE, kept=2) == references("000000000001")


def test_nothing_goes_while_there_are_few() -> None:
    assert storage.choose_old(references("000000000001"), HERE, kept=2) == []


def test_named_tags_and_other_repositories_stay() -> None:
    other = references("00000000000a", repository=f"{HERE}-x")
    listed = [*references("v1.0.0", "dev", "000000000001", "000000000002"), *other, "<none>:<none>"]
    assert storage.choose_old(listed, HERE, kept=1) == references("000000000001")
