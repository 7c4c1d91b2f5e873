"""Shards through sources that give no entity tags, or that the cache has no room for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore as ObjectMemoryStore
from zarr.abc.store import Store
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore, MemoryStore, ObjectStore

from tests.server.sources.http_objects import HttpObjects
from ucxstore import UcxStore
from ucxstore.server import Server

SHAPE = (400, 400)
SHARD = (200, 400)  # of 640 kB
CHUNK = (20, 40)


def values_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(SHAPE)


def write(store: Store, values: np.ndarray) -> None:
    array = zarr.create_array(
        store, shape=SHAPE, shards=SHARD, chunks=CHUNK, dtype="f8", overwrite=True
    )
    array[:] = values


@pytest.mark.parametrize("kind", ["zarr memory", "zarr local", "http", "http with tags", "obstore"])
@pytest.mark.parametrize("options", [{"cache": 0}, {"cache": 200_000}, {"freshness": "always"}])
def test_a_shard_that_nobody_replaces(
    kind: str, options: dict[str, Any], objects: HttpObjects, tmp_path: Path
) -> None:
    """Each request may fetch it anew: it is the same value all the same."""
    values = values_of(0)
    source: Any
    if kind == "zarr memory":
        write(source := MemoryStore(), values)
    elif kind == "zarr local":
        write(source := LocalStore(tmp_path), values)
    elif kind == "obstore":
        source = ObjectMemoryStore()
        write(ObjectStore(source), values)
    else:
        stored: dict[str, Buffer] = {}
        write(MemoryStore(stored), values)
        objects.objects.update({key: one.to_bytes() for key, one in stored.items()})
        objects.has_etags = kind == "http with tags"
        source = objects.store()
    with (
        Server(source, block_size="64KiB", **options) as server,
        UcxStore(server.address) as store,
    ):
        array = zarr.open_array(store, mode="r")
        for _ in range(2):
            np.testing.assert_array_equal(array[30:50, 100:180], values[30:50, 100:180])
            np.testing.assert_array_equal(array[::7, 3:9], values[::7, 3:9])
            np.testing.assert_array_equal(array[:], values)


@pytest.mark.parametrize("cache", [0, "1GiB"])
def test_a_shard_that_is_replaced_behind_the_server(cache: int | str) -> None:
    """Its index is fetched anew, and the values are those of one shard."""
    behind = MemoryStore()
    write(behind, values_of(0))
    with (
        Server(behind, cache=cache, freshness="always") as server,
        UcxStore(server.address) as store,
    ):
        array = zarr.open_array(store, mode="r")
        for seed in range(4):
            write(behind, values_of(seed))
            np.testing.assert_array_equal(array[30:250, 100:180], values_of(seed)[30:250, 100:180])


def test_a_shard_written_through_the_server() -> None:
    with Server(MemoryStore(), cache=100_000) as server, UcxStore(server.address) as store:
        for seed in range(2):
            write(store, values_of(seed))
            array = zarr.open_array(store)
            array[10:30, 20:60] = 7.0
            expected = values_of(seed)
            expected[10:30, 20:60] = 7.0
            np.testing.assert_array_equal(array[:], expected)
