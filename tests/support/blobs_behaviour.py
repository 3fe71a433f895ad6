"""What every backend of saved states must do; one suite, each backend runs it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from rwkv_server.states.held import Piece
from rwkv_server.states.store.blobs import BlobExists, BlobMissing, Blobs, Commit


@dataclass(frozen=True)
class Pieces:
    """Content that lies in several places."""

    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        return len(self.joined)

    @property
    def joined(self) -> bytes:
        return b"".join(self.pieces)

    @contextmanager
    def hold(self) -> Iterator[Sequence[Piece]]:
        yield self.pieces


DATA = Pieces((b"one", memoryview(bytearray(300_000)), b"", b"three"))


def described(digest: bytes) -> Commit:
    return Commit(f"t/s/{digest.hex()}", "t/s/record", b"record of " + digest)


TOLD = described(hashlib.sha256(DATA.joined).digest())


async def all_of(blobs: Blobs) -> dict[str, bytes]:
    return {blob.key: await blobs.get(blob.key) for blob in await blobs.list("")}


class BlobsBehaviour:
    """Of a backend; a subclass has the fixture `blobs`."""

    async def test_a_blob_is_created_read_listed_and_deleted(self, blobs: Blobs) -> None:
        await blobs.create("a/b/one", b"1")
        await blobs.create("a/b/two", b"")
        await blobs.create("a/c", b"333")
        assert await blobs.get("a/b/one") == b"1"
        assert await blobs.get("a/b/two") == b""
        assert [(b.key, b.size) for b in await blobs.list("a")] == [
            ("a/b/one", 1),
            ("a/b/two", 0),
            ("a/c", 3),
        ]
        assert [b.key for b in await blobs.list("")] == ["a/b/one", "a/b/two", "a/c"]
        await blobs.delete("a/b/one")
        with pytest.raises(BlobMissing):
            await blobs.get("a/b/one")
        assert [b.key for b in await blobs.list("a/b")] == ["a/b/two"]

    async def test_a_key_is_created_once(self, blobs: Blobs) -> None:
        await blobs.create("k", b"first")
        with pytest.raises(BlobExists):
            await blobs.create("k", b"second")
        assert await blobs.get("k") == b"first"
        await blobs.delete("k")
        await blobs.create("k", b"third")
        assert await blobs.get("k") == b"third"

    async def test_of_many_writers_one_wins(self, blobs: Blobs) -> None:
        async def write(number: int) -> bool:
            try:
                await blobs.create("race/one", str(number).encode())
            except BlobExists:
                return False
            return True

        won = await asyncio.gather(*map(write, range(16)))
        assert sum(won) == 1
        assert await blobs.get("race/one") == str(won.index(True)).encode()

    async def test_what_is_missing(self, blobs: Blobs) -> None:
        assert list(await blobs.list("nothing/here")) == []
        await blobs.delete("nothing/here")
        with pytest.raises(BlobMissing):
            await blobs.get("nothing/here")

    async def test_a_folder_isnt_a_beginning_of_a_name(self, blobs: Blobs) -> None:
        await blobs.create("ab/c", b"")
        await blobs.create("abc", b"")
        assert [b.key for b in await blobs.list("ab")] == ["ab/c"]
        assert list(await blobs.list("a")) == []

    async def test_megabytes_come_back(self, blobs: Blobs) -> None:
        content = bytes(range(256)) * 12_000
        await blobs.create("big", content)
        assert await blobs.get("big") == content

    async def test_nothing_is_left_to_clean(self, blobs: Blobs) -> None:
        await blobs.create("k", b"1")
        with pytest.raises(BlobExists):
            await blobs.create("k", b"1")
        assert await blobs.clean(before=1e11) == 0
        assert await blobs.get("k") == b"1"

    async def test_a_commit_writes_both(self, blobs: Blobs) -> None:
        await blobs.commit("t/s", DATA, described)
        assert await all_of(blobs) == {TOLD.data: DATA.joined, TOLD.record: TOLD.content}
        assert await blobs.clean(before=1e11) == 0

    async def test_a_commit_goes_on_where_an_earlier_one_ended(self, blobs: Blobs) -> None:
        await blobs.create(TOLD.data, DATA.joined)
        await blobs.commit("t/s", DATA, described)
        assert await all_of(blobs) == {TOLD.data: DATA.joined, TOLD.record: TOLD.content}
        assert await blobs.clean(before=1e11) == 0

    async def test_of_a_commit_whose_second_is_taken_the_first_is_there(self, blobs: Blobs) -> None:
        await blobs.create(TOLD.record, b"another's")
        with pytest.raises(BlobExists):
            await blobs.commit("t/s", DATA, described)
        assert await all_of(blobs) == {TOLD.data: DATA.joined, TOLD.record: b"another's"}
        assert await blobs.clean(before=1e11) == 0
