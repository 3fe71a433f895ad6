"""What every backend of saved states must do; one suite, each backend runs it."""

from __future__ import annotations

import asyncio

import pytest

from rwkv_server.states.store.blobs import BlobExists, BlobMissing, Blobs


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
