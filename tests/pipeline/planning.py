"""What tests of the planners give them: specs, grids, and batches as zarr makes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.chunk_grids import ChunkGrid, FixedDimension
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.core.indexing import BasicIndexer, Indexer
from zarr.storage import MemoryStore, StorePath

from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import classify
from ucxstore.pipeline.batch import Batch, Chunk, Group, Plan
from ucxstore.pipeline.read_plan import plan_read
from ucxstore.pipeline.write_plan import plan_write

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


def items_of(indexer: Indexer, spec: ArraySpec) -> list[Chunk]:
    root = StorePath(STORE, "a")
    return [
        (root / "c" / "/".join(map(str, coords)), spec, chunk, out, complete)
        for coords, chunk, out, complete in indexer
    ]


def basic(
    selection: Any, shape: tuple[int, ...], chunks: tuple[int, ...], **spec: Any
) -> tuple[list[Chunk], tuple[int, ...]]:
    indexer = BasicIndexer(selection, shape, grid_of(shape, chunks))
    return items_of(indexer, spec_of(chunks, **spec)), indexer.shape


class Values:
    """Stands for an `NDBuffer` on anything."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def as_ndarray_like(self) -> Any:
        return self._array


def batch_of(chunks: Sequence[Chunk], array: Any, drop_axes: tuple[int, ...] = ()) -> Batch:
    return Batch(chunks, Values(array), drop_axes, STORE)


def chain_of(codecs: Sequence[Codec], spec: ArraySpec) -> Chain:
    kind = classify(codecs, spec)
    assert isinstance(kind, Chain)
    return kind


def read_plan_of(
    chunks: Sequence[Chunk],
    out: Any,
    codecs: Sequence[Codec] = RAW,
    drop_axes: tuple[int, ...] = (),
) -> Plan[Group]:
    batch = batch_of(chunks, out, drop_axes)
    return plan_read(batch, chain_of(codecs, chunks[0][1]), range(len(chunks)))


def write_plan_of(
    chunks: Sequence[Chunk], value: Any, codecs: Sequence[Codec] = RAW
) -> Plan[Group]:
    return plan_write(batch_of(chunks, value), chain_of(codecs, chunks[0][1]))


def grouped(plan: Plan[Group]) -> list[int]:
    """Return where the chunks stand that are decoded or encoded."""
    return [position for group in plan.groups for position in group.positions]
