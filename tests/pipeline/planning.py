"""What tests of the planners give them: specs, grids, and batches as zarr makes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from zarr.codecs import BytesCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.chunk_grids import ChunkGrid, FixedDimension
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.core.indexing import BasicIndexer, Indexer
from zarr.storage import MemoryStore, StorePath

from ucxstore.pipeline.plan import Item

STORE = MemoryStore()
RAW = (BytesCodec(),)
V2_RAW = (V2Codec(filters=None, compressor=None),)


def spec_of(shape: tuple[int, ...], dtype: Any = "f4", **config: Any) -> ArraySpec:
    zdtype = get_data_type_from_native_dtype(np.dtype(dtype))
    return ArraySpec(
        shape=shape,
        dtype=zdtype,
        fill_value=zdtype.default_scalar(),
        config=ArrayConfig.from_dict(config),
        prototype=default_buffer_prototype(),
    )


def grid_of(shape: Sequence[int], chunks: Sequence[int]) -> ChunkGrid:
    dimensions = [FixedDimension(c, n) for n, c in zip(shape, chunks, strict=True)]
    return ChunkGrid(dimensions=tuple(dimensions))


def items_of(indexer: Indexer, spec: ArraySpec) -> list[Item]:
    root = StorePath(STORE, "a")
    return [
        (root / "c" / "/".join(map(str, coords)), spec, chunk, out, complete)
        for coords, chunk, out, complete in indexer
    ]


def basic(
    selection: Any, shape: tuple[int, ...], chunks: tuple[int, ...], **spec: Any
) -> tuple[list[Item], tuple[int, ...]]:
    indexer = BasicIndexer(selection, shape, grid_of(shape, chunks))
    return items_of(indexer, spec_of(chunks, **spec)), indexer.shape
