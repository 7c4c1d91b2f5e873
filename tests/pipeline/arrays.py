"""Arrays that many tests read and write, and what their stores count meanwhile."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from ucxstore import UcxStore

NOISE = np.random.default_rng(0).random((1000, 400)).astype("f4")
RAW: dict[str, Any] = {
    "name": "a",
    "shape": NOISE.shape,
    "chunks": (300, 100),
    "dtype": "f4",
    "compressors": None,
}

DATA = np.round(np.random.default_rng(0).random((1000, 400)), 2).astype("f4")
ENCODED: dict[str, Any] = RAW | {"chunks": (250, 400), "compressors": ZstdCodec()}
SLAB = DATA.nbytes // 4  # a chunk of it

# Of 5 by 4 inner chunks each. No value is zero, which chunks are filled with.
SHARD_DATA = 1 + DATA
SHARDED: dict[str, Any] = RAW | {"shards": (500, 200), "chunks": (100, 50)}
INNER = 100 * 50 * 4
INDEX = 5 * 4 * 16 + 4


def store_of(array: zarr.Array) -> UcxStore:
    """Return the store of an array, which is one of ours."""
    return cast(UcxStore, array.store)


def made(store: UcxStore, **options: Any) -> zarr.Array:
    array = zarr.create_array(store, **(ENCODED | options))
    array[:] = DATA.astype(array.dtype)
    return array


def counting(
    *names: str, without: str = ""
) -> Callable[[zarr.Array, Mapping[str, Any]], tuple[int, ...]]:
    """Return a function that says what an array's store has counted since `before`."""

    def counted(array: zarr.Array, before: Mapping[str, Any]) -> tuple[int, ...]:
        after = store_of(array).stats()
        assert not without or after[without] == before[without]
        return tuple(after[name] - before[name] for name in names)

    return counted
