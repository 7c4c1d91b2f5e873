"""Reads and writes of parts of an array by zarr's indexers, also into memory of the caller's."""

from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.indexing import BasicIndexer


def indexer_of(array: zarr.Array, selection: Any = ...) -> BasicIndexer:
    return BasicIndexer(selection, array.shape, array.async_array._chunk_grid)


async def read_into(array: zarr.Array, out: np.ndarray, selection: Any = ...) -> None:
    await array.async_array._get_selection(
        indexer_of(array, selection),
        prototype=default_buffer_prototype(),
        out=cpu.NDBuffer.from_ndarray_like(out),
    )


async def write_all(array: zarr.Array, value: np.ndarray) -> None:
    await array.async_array._set_selection(
        indexer_of(array), value, prototype=default_buffer_prototype()
    )
