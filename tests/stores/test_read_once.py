"""Scratch spaces that free what has been read once."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync

from tests.eventually import eventually
from tests.values import keys_of
from ucxstore import EvictedError, UcxStore
from ucxstore.server import Server
from ucxstore.stores.scratch import Scratch

VALUE = bytes(range(256)) * 400

WAYS = ("auto", "off", "ucx")

# Reads the value of the store that it is given, and dies before it has it all.
DIE = """
import os, pickle, sys, threading
from ucxstore import UcxStore
store = pickle.loads(bytes.fromhex(sys.argv[1]))
store.get_sync("small")
print("read", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("memory://", memory="64MiB", ucx_shared_memory=True) as server:
        yield server


@pytest.fixture(params=WAYS)
def scratch(server: Server, request: pytest.FixtureRequest) -> Iterator[Scratch[UcxStore]]:
    with (
        UcxStore(server.address, local=request.param) as store,
        store.scratch_sync("10MB", read_once=True) as scratch,
    ):
        yield scratch


def set_value(store: UcxStore, key: str, value: bytes = VALUE) -> None:
    store.set_sync(key, cpu.Buffer.from_bytes(value))


def bytes_of(store: UcxStore, key: str) -> bytes | None:
    found = store.get_sync(key)
    return None if found is None else found.to_bytes()


def held(server: Server) -> int:
    return server.stats().scratch_bytes


def test_a_value_is_freed_once_it_was_read(server: Server, scratch: Scratch[UcxStore]) -> None:
    assert scratch.read_once
    store = scratch.store("pieces")
    set_value(store, "c/0")
    set_value(store, "c/1")
    assert held(server) >= 2 * len(VALUE)
    assert bytes_of(store, "c/0") == VALUE
    eventually(lambda: held(server) < 2 * len(VALUE))
    with pytest.raises(EvictedError, match=r"pieces/c/0' was evicted: it has been read"):
        store.get_sync("c/0")
    # The key is not missing: zarr would read it as a fill value.
    assert sync(store.exists("c/0"))
    assert sorted(sync(keys_of(store))) == ["c/0", "c/1"]
    assert bytes_of(store, "c/1") == VALUE
    # A value that is set again is another one.
    set_value(store, "c/0", VALUE[::-1])
    assert bytes_of(store, "c/0") == VALUE[::-1]
    store.delete_sync("c/0")
    assert store.get_sync("c/0") is None


def test_parts_free_nothing(server: Server, scratch: Scratch[UcxStore]) -> None:
    store = scratch.store()
    set_value(store, "a")
    prototype = default_buffer_prototype()
    for start in (0, len(VALUE) // 2):
        part = sync(store.get("a", prototype, RangeByteRequest(start, start + len(VALUE) // 2)))
        assert part is not None
        assert part.to_bytes() == VALUE[start : start + len(VALUE) // 2]
    assert held(server) >= len(VALUE)
    assert bytes_of(store, "a") == VALUE


def test_arrays(server: Server, scratch: Scratch[UcxStore]) -> None:
    x = np.arange(90_000, dtype="f4").reshape(300, 300)
    z = zarr.create_array(
        scratch.store("x"), shape=x.shape, chunks=(100, 100), dtype="f4", compressors=None
    )
    z[:] = x
    before = held(server)
    again = zarr.open_array(scratch.store("x"), mode="r")  # metadata is read as often as one likes
    # In another order than the values are stored in; a part of a chunk is not all of it.
    np.testing.assert_array_equal(again[:100, :100].T, x[:100, :100].T)
    np.testing.assert_array_equal(again[100:, 150:], x[100:, 150:])
    eventually(lambda: held(server) <= before - 3 * 40_000)
    with pytest.raises(EvictedError, match=r"x/c/0/0'"):
        again[:100, :100]
    # A batch with one that is gone fails as a whole, and frees nothing.
    with pytest.raises(EvictedError, match=r"x/c/\d/\d'"):
        again[:]
    np.testing.assert_array_equal(again[:100, 100:], x[:100, 100:])
    np.testing.assert_array_equal(again[100:, :200], x[100:, :200])


def test_encoded_chunks(server: Server, scratch: Scratch[UcxStore]) -> None:
    x = np.arange(40_000).reshape(200, 200)
    z = zarr.create_array(scratch.store(), data=x, chunks=(100, 100))
    np.testing.assert_array_equal(z[:], x)
    with pytest.raises(EvictedError, match="c/0/0"):
        z[0]


def test_a_value_that_is_being_read_stays_for_its_reader(
    server: Server, scratch: Scratch[UcxStore]
) -> None:
    """Of readers at the same time, each gets all of the value, or the error."""
    store = scratch.store()

    async def read_all() -> list[object]:
        reads = [store.get("a", default_buffer_prototype()) for _ in range(20)]
        return await asyncio.gather(*reads, return_exceptions=True)

    for number in range(20):
        value = bytes([number]) * 300_000
        set_value(store, "a", value)
        results = sync(read_all())
        whole = [one for one in results if isinstance(one, cpu.Buffer)]
        assert whole
        assert all(one.to_bytes() == value for one in whole)
        assert all(isinstance(one, cpu.Buffer | EvictedError) for one in results)


def is_evicted(store: UcxStore, key: str) -> bool:
    try:
        store.view_sync(key)
    except EvictedError:
        return True
    return False


def test_a_view_frees_nothing_and_stays(server: Server) -> None:
    with UcxStore(server.address, local="auto").scratch_sync("10MB", read_once=True) as scratch:
        store = scratch.store()
        set_value(store, "a")
        view = store.view_sync("a")
        assert view is not None
        with view:
            assert view.mapped
            assert bytes_of(store, "a") == VALUE
            eventually(lambda: is_evicted(store, "a"))  # the server is told without an answer
            assert view.tobytes() == VALUE
            assert held(server) >= len(VALUE)
        eventually(lambda: held(server) < len(VALUE))


def test_a_mapped_result_stays() -> None:
    x = np.arange(4 << 20, dtype="u4")
    with (
        Server("memory://", memory="512MiB") as server,
        UcxStore(server.address, map=True, local="auto") as whole,
        whole.scratch_sync("40MB", read_once=True) as scratch,
    ):
        z = zarr.create_array(scratch.store(), data=x, chunks=x.shape, compressors=None)
        read = z[:]
        with pytest.raises(EvictedError):
            z[:]
        np.testing.assert_array_equal(read, x)
        assert held(server) >= x.nbytes
        del read
        eventually(lambda: held(server) < x.nbytes)
        z[:] = x[::-1]  # the same memory, or other
        np.testing.assert_array_equal(z[:], x[::-1])


def test_a_reader_that_dies_leaves_what_it_has_not_read(server: Server) -> None:
    with UcxStore(server.address).scratch_sync("10MB", read_once=True) as scratch:
        store = scratch.store()
        set_value(store, "small")
        set_value(store, "other")
        command = [sys.executable, "-c", DIE, pickle.dumps(store).hex()]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            process.kill()
        assert bytes_of(store, "other") == VALUE


def test_with_several_servers(server: Server) -> None:
    with Server("memory://") as second:
        address = f"{server.address},{second.address.removeprefix('ucx://')}"
        with UcxStore(address).scratch_sync("10MB", read_once=True) as scratch:
            x = np.arange(40_000).reshape(200, 200)
            z = zarr.create_array(scratch.store(), data=x, chunks=(20, 20), compressors=None)
            np.testing.assert_array_equal(z[:], x)
            eventually(lambda: held(server) + held(second) < 20 * 20 * 8)
            with pytest.raises(EvictedError):
                z[:]


def test_other_spaces_free_nothing(server: Server) -> None:
    with UcxStore(server.address).scratch_sync("10MB") as scratch:
        assert not scratch.read_once
        store = scratch.store()
        set_value(store, "a")
        assert bytes_of(store, "a") == bytes_of(store, "a") == VALUE
