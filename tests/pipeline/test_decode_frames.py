"""Blosc chunks that are read in frames: when, what if they are replaced meanwhile, and failures."""

from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec
from zarr.core.buffer import cpu

from tests.backdoor import Backdoor
from ucxstore import UcxStore
from ucxstore.codecs.blosc_frames import PREFIX_BYTES, split
from ucxstore.pipeline import decode_frames
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.decode_frames import FrameReader

DATA = np.round(np.random.default_rng(0).random((2000, 400)), 2).astype("f4")
OTHER = DATA[::-1].copy()
# As the codec encodes, but in blocks so small that even little data has many.
CODEC = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", blocksize=65536)


def encoded(values: np.ndarray) -> bytes:
    config = numcodecs.Blosc(cname="zstd", clevel=1, shuffle=1, blocksize=65536)
    return bytes(config.encode(values))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_frames, "LARGE_BYTES", 1 << 20)
    monkeypatch.setattr(decode_frames, "GROUP_BYTES", 1 << 18)


def made(store: UcxStore, **options: Any) -> zarr.Array:
    options = {"chunks": DATA.shape, "compressors": CODEC} | options
    array = zarr.create_array(store, name="a", shape=DATA.shape, dtype="f4", **options)
    array[:] = DATA
    return array


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames the chunks of each read were split into."""
    counts: list[int] = []

    find = FrameReader.split

    async def counting(*args: Any) -> Any:
        chunks = await find(*args)
        counts.extend(len(chunk.frames) for chunk in chunks)
        return chunks

    monkeypatch.setattr(FrameReader, "split", counting)
    return counts


def decoded(store: UcxStore, before: dict[str, Any]) -> tuple[int, ...]:
    after = store.stats()
    return tuple(after[name] - before[name] for name in ("decode", "decode_in_place", "fallback"))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, [12]),
        ({"chunks": (1000, 400)}, [6, 6]),
        ({"zarr_format": 2, "compressors": numcodecs.Blosc(blocksize=65536)}, [12]),
        # Those that are not: too small, wrapped, not in place.
        ({"chunks": (500, 400)}, []),
        ({"compressors": [CODEC, Crc32cCodec()]}, []),
        ({"serializer": BytesCodec(endian="big")}, []),
        ({"config": {"order": "F"}}, []),
    ],
)
def test_which_chunks_are_split(
    ucx_store: UcxStore, frames: list[int], options: dict[str, Any], count: list[int]
) -> None:
    array = made(ucx_store, **options)
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert frames == count
    chunks = array.nchunks
    assert decoded(ucx_store, before)[::2] == (chunks, 0)
    if count:
        assert decoded(ucx_store, before) == (chunks, chunks, 0)
    assert access_to(ucx_store).budget.in_use == 0


def test_what_is_read(ucx_store: UcxStore, frames: list[int]) -> None:
    array = made(ucx_store)
    before = ucx_store.stats()["bytes_read"]
    array[:]
    stored = array.nbytes_stored() - len(ucx_store.get_sync("a/zarr.json") or b"")
    assert ucx_store.stats()["bytes_read"] - before < stored + PREFIX_BYTES + 4096
    assert len(frames) == 1


def test_the_beginning_of_a_chunk_that_is_not_split_is_counted(
    ucx_store: UcxStore, frames: list[int]
) -> None:
    array = made(ucx_store, compressors=BloscCodec(cname="zstd", blocksize=DATA.nbytes))
    stored = len(ucx_store.get_sync("a/c/0/0") or b"")
    before = ucx_store.stats()["bytes_read"]
    np.testing.assert_array_equal(array[:], DATA)
    assert frames == []
    assert ucx_store.stats()["bytes_read"] - before == stored + PREFIX_BYTES


def test_an_out_that_is_strided_is_not_read_in_frames(
    ucx_store: UcxStore, frames: list[int]
) -> None:
    array = made(ucx_store)
    out = np.zeros((2000, 800), "f4")[:, ::2]
    array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(out))
    np.testing.assert_array_equal(out, DATA)
    assert frames == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_chunk_that_is_written_in_the_middle_is_read_anew(
    ucx_store: UcxStore,
    backdoor: Backdoor,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    deleted: bool,
) -> None:
    array = made(ucx_store, fill_value=3.0)

    find = FrameReader.split

    async def then_written(*args: Any) -> Any:
        chunks = await find(*args)
        if deleted:
            await ucx_store.delete("a/c/0/0")
        else:
            backdoor.set(f"{prefix}/a/c/0/0", encoded(OTHER))
        return chunks

    monkeypatch.setattr(FrameReader, "split", then_written)
    before = ucx_store.stats()
    found = array[:]
    np.testing.assert_array_equal(found, np.full_like(DATA, 3.0) if deleted else OTHER)
    assert decoded(ucx_store, before) == (1, 0 if deleted else 1, 0)
    assert access_to(ucx_store).budget.in_use == 0


def test_a_broken_block_raises(ucx_store: UcxStore, backdoor: Backdoor, prefix: str) -> None:
    array = made(ucx_store)
    value = bytearray(encoded(DATA))
    frame = split(np.frombuffer(value, "u1"), len(value), DATA.nbytes, 1 << 18)[5]
    value[frame.start : frame.start + 64] = bytes(range(64))
    backdoor.set(f"{prefix}/a/c/0/0", bytes(value))
    with pytest.raises(RuntimeError, match="blosc") as caught:
        array[:]
    assert "a/c/0/0" in caught.value.__notes__[0]
    assert access_to(ucx_store).budget.in_use == 0
    backdoor.set(f"{prefix}/a/c/0/0", encoded(OTHER))
    np.testing.assert_array_equal(array[:], OTHER)


@pytest.mark.parametrize("budget", [1, 100_000, 1 << 28])
def test_the_budget_holds(ucx_store: UcxStore, budget: int, frames: list[int]) -> None:
    made(ucx_store)
    store = UcxStore(ucx_store.address, buffer_budget=budget, strict=True)
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], DATA)
    assert frames == [12]
    assert access_to(store).budget.in_use == 0
