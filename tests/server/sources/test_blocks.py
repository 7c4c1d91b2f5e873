"""Large objects, read by parts, through a server."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from obstore.store import LocalStore, MemoryStore, ObjectStore
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.test_cache import get, put
from tests.values import noise
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()
BLOCK = 64 << 10


def get_part(store: UcxStore, key: str, begin: int, end: int) -> bytes:
    value = asyncio.run(store.get(key, PROTOTYPE, RangeByteRequest(begin, end)))
    assert value is not None
    return value.to_bytes()


def test_only_blocks_that_are_wanted_are_fetched_and_once(objects: HttpObjects) -> None:
    value = noise(20 * BLOCK)
    objects.objects["k"] = value
    with Server(objects.store(), block_size=BLOCK) as server, UcxStore(server.address) as store:
        for _ in range(2):
            begin, end = 5 * BLOCK - 1, 5 * BLOCK + 1
            assert get_part(store, "k", begin, end) == value[begin:end]
            suffix = asyncio.run(store.get("k", PROTOTYPE, SuffixByteRequest(100)))
            assert suffix is not None
            assert suffix.to_bytes() == value[-100:]
    assert objects.ranges == [
        ("k", f"bytes={4 * BLOCK}-{6 * BLOCK - 1}"),
        ("k", f"bytes={19 * BLOCK}-{20 * BLOCK - 1}"),
    ]
    assert objects.sent == 3 * BLOCK
    assert objects.asked("HEAD") == 1


def test_a_reply_is_of_one_value(objects: HttpObjects) -> None:
    old, new = noise(20 * BLOCK, 1), noise(20 * BLOCK, 2)
    objects.objects["k"] = old
    with Server(objects.store(), block_size=BLOCK) as server, UcxStore(server.address) as store:
        assert get_part(store, "k", 0, 10) == old[:10]
        objects.objects["k"] = new
        begin, end = 2 * BLOCK - 5, 2 * BLOCK + 5  # of which the first half is in the cache
        assert get_part(store, "k", begin, end) == new[begin:end]
        assert get_part(store, "k", 0, 10) == new[:10]


def test_one_request_brings_what_is_not_large(objects: HttpObjects) -> None:
    """A client asks so for a chunk of which it knows only the largest possible size."""
    sizes = {"small": 10, "edge": 2 * BLOCK, "large": 2 * BLOCK + 1, "empty": 0}
    objects.objects.update({key: noise(size) for key, size in sizes.items()})
    with Server(objects.store(), block_size=BLOCK) as server, UcxStore(server.address) as store:
        for _ in range(2):
            for key, value in objects.objects.items():
                assert get_part(store, key, 0, 2 * BLOCK) == value[: 2 * BLOCK]
    first = f"bytes=0-{2 * BLOCK - 1}"
    assert objects.ranges == [(key, first) for key in sizes]
    assert objects.requests == {
        **{("GET", key): 1 for key in sizes if key != "empty"},
        ("GET", "empty"): 2,  # a part of nothing is refused
    }


def test_whoever_wants_all_joins_who_brings_it(objects: HttpObjects) -> None:
    objects.objects["k"] = value = noise(BLOCK)
    with (
        Server(objects.store(), block_size=BLOCK) as server,
        UcxStore(server.address) as store,
        ThreadPoolExecutor(2) as threads,
    ):
        objects.gate.clear()
        part = threads.submit(get_part, store, "k", 0, 2 * BLOCK)
        eventually(lambda: objects.requests["GET", "k"] == 1)
        whole = threads.submit(get, store, "k")
        eventually(lambda: server.stats()["requests_saved"] == 1)
        objects.gate.set()
        assert part.result(20) == whole.result(20) == value
    assert objects.requests == {("GET", "k"): 1}


def test_what_is_written_takes_the_place_of_blocks(objects: HttpObjects) -> None:
    old, new = noise(20 * BLOCK, 1), noise(20 * BLOCK, 2)
    objects.objects["k"] = old
    with Server(objects.store(), block_size=BLOCK) as server, UcxStore(server.address) as store:
        assert get_part(store, "k", 0, 10) == old[:10]
        put(store, "k", new)
        assert get_part(store, "k", 0, 10) == new[:10]


def test_all_of_an_object_is_not_taken_for_a_part(objects: HttpObjects) -> None:
    """An HTTP server that knows no ranges answers so."""
    objects.objects["k"] = noise(20 * BLOCK)
    objects.has_ranges = False
    with Server(objects.store(), block_size=BLOCK) as server, UcxStore(server.address) as store:
        with pytest.raises(StorageError, match="'k' "):
            get_part(store, "k", 5 * BLOCK, 5 * BLOCK + 10)
        assert get(store, "k") == objects.objects["k"]


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("compressed", [False, True])
def test_shards_are_read_by_blocks(
    kind: str, compressed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("objects")
    objects: ObjectStore = MemoryStore() if kind == "memory" else LocalStore(folder)
    values = np.random.default_rng(0).random((1000, 1000))
    with Server(objects) as server, UcxStore(server.address) as store:
        array = zarr.create_array(
            store,
            shape=values.shape,
            shards=(500, 500),
            chunks=(50, 50),
            dtype="f8",
            compressors="auto" if compressed else None,
        )
        array[:] = values
    with Server(objects, block_size=BLOCK) as server, ThreadPoolExecutor(4) as pool:

        def read(number: int) -> None:
            rng = np.random.default_rng(number)
            with UcxStore(server.address) as store:
                array = zarr.open_array(store, mode="r")
                for _ in range(20):
                    i, j = rng.integers(0, 900, 2)
                    part = np.s_[i : i + 60, j : j + 60]
                    np.testing.assert_array_equal(array[part], values[part])
                np.testing.assert_array_equal(array[::7, ::9], values[::7, ::9])

        list(pool.map(read, range(4)))
        assert server.stats()["cache_hits"] > 0
        with UcxStore(server.address) as store:
            np.testing.assert_array_equal(zarr.open_array(store, mode="r")[:], values)


@pytest.mark.parametrize("size", [1, 1000, "63KiB"])
def test_blocks_have_a_least_size(size: int | str) -> None:
    with pytest.raises(ValueError, match=r"^block_size: .*65536"):
        Server(MemoryStore(), block_size=size)
