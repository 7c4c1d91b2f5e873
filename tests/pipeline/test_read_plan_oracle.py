"""Whatever is selected, what the planner says to move is what numpy would assign, byte by byte."""

from dataclasses import dataclass
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings
from zarr.codecs import BytesCodec
from zarr.core.buffer import cpu
from zarr.core.chunk_grids import ChunkGrid, FixedDimension, VaryingDimension
from zarr.core.indexing import (
    BasicIndexer,
    BlockIndexer,
    CoordinateIndexer,
    MaskIndexer,
    OrthogonalIndexer,
)
from zarr.storage import StorePath

from tests.drawing import examples
from tests.pipeline.planning import RAW, STORE, V2_RAW, grouped, read_plan_of, spec_of
from tests.pipeline.strategies import selections
from ucxstore.pipeline.batch import Chunk, Group, Plan
from ucxstore.pipeline.geometry import costs
from ucxstore.pipeline.geometry.runs import Runs

INDEXERS: dict[str, Any] = {
    "basic": BasicIndexer,
    "orthogonal": OrthogonalIndexer,
    "coordinate": CoordinateIndexer,
    "mask": MaskIndexer,
    "block": BlockIndexer,
}


@dataclass
class Memory:
    """An array, and the bytes that it is a view of."""

    array: np.ndarray
    block: np.ndarray

    @property
    def base(self) -> int:
        """Where the array's first item is in the block."""
        start: int = self.block.__array_interface__["data"][0]
        return self.array.__array_interface__["data"][0] - start


def places(part: Runs) -> np.ndarray:
    """Return where all bytes of a part are."""
    offset, run, counts, strides, offsets = part
    assert run > 0
    assert all(count > 0 for count in counts)
    if offsets is not None:
        assert offsets.dtype == np.int64
        assert offsets.flags.c_contiguous
    found = np.zeros(1, "i8") if offsets is None else offsets
    for count, stride in zip(counts, strides, strict=True):
        found = np.add.outer(found, np.arange(count) * stride).ravel()
    return np.add.outer(found, np.arange(run)).ravel() + offset


def chunk_of(item: Chunk) -> np.ndarray:
    """Return the bytes of a chunk, all chunks' different."""
    path, spec, *_ = item
    nbytes = int(np.prod(spec.shape)) * spec.dtype.to_native_dtype().itemsize
    seed = [ord(letter) for letter in path.path]
    return np.random.default_rng(seed).integers(0, 256, nbytes, "u1")


def carry_out(
    plan: Plan[Group], items: list[Chunk], memory: Memory, order: Any, drop_axes: tuple[int, ...]
) -> None:
    """Do what the native core does."""
    for batch in plan.boxes:
        _, shape, strides, itemsize = batch.layout
        boxes = np.array(batch.boxes).reshape(len(batch.keys), 3, len(batch.chunk_shape))
        for position, (start, first, count) in zip(batch.positions, boxes, strict=True):
            chunk = chunk_of(items[position]).reshape(*batch.chunk_shape, itemsize)
            box = chunk[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))]
            assert np.all(first + count <= shape)
            lies = (memory.base + int(first @ strides), itemsize, count.tolist(), strides, None)
            memory.block[places(lies)] = box.ravel()
    runs = plan.runs
    for position, source, target, size, nbytes in zip(
        runs.positions, runs.sources, runs.targets, runs.sizes, runs.nbytes, strict=True
    ):
        chunk = chunk_of(items[position])
        assert size == chunk.size
        froms, tos = places(source), places(target) + memory.base
        assert froms.size == tos.size == nbytes
        assert froms.min() >= 0
        assert tos.min() >= 0
        assert all(stride >= 0 for stride in source[3])
        assert source[4] is None or source[4].size <= costs.MOST_OFFSETS
        memory.block[tos] = chunk[froms]
    for position in grouped(plan):
        assign(items[position], memory.array, order, drop_axes)


def assign(item: Chunk, out: np.ndarray, order: Any, drop_axes: tuple[int, ...]) -> None:
    """Do what zarr does."""
    _, spec, chunk_selection, out_selection, _ = item
    chunk = chunk_of(item).view(spec.dtype.to_native_dtype()).reshape(spec.shape, order=order)
    selected = cpu.NDBuffer.from_ndarray_like(chunk)[chunk_selection]
    out[out_selection] = (selected.squeeze(drop_axes) if drop_axes else selected).as_numpy_array()


def memory_of(shape: tuple[int, ...], dtype: np.dtype, layout: str) -> Memory:
    wide = tuple(2 * side + 1 for side in shape)
    block = np.zeros(int(np.prod(wide)) * dtype.itemsize, "u1")
    if layout in ("C", "F"):
        used = block[: int(np.prod(shape)) * dtype.itemsize]
        return Memory(used.view(dtype).reshape(shape, order=layout), block)
    array = block.view(dtype).reshape(wide)
    way = {"strided": slice(1, None, 2), "backwards": slice(None, None, -1)}[layout]
    view = array[(*(way for _ in shape), ...)][(*(slice(side) for side in shape), ...)]
    return Memory(view, block)


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, ...]) -> ChunkGrid:
    dimensions = []
    for side in shape:
        if draw(st.integers(0, 3)) or side < 2:
            dimensions.append(FixedDimension(draw(st.integers(1, side + 2)), side))
        else:
            cut = draw(st.integers(1, side - 1))
            dimensions.append(VaryingDimension((cut, side - cut), side))
    return ChunkGrid(dimensions=tuple(dimensions))


@given(data=st.data())
@settings(max_examples=examples(500), deadline=None)
def test_it_moves_what_numpy_assigns(data: st.DataObject) -> None:
    least = data.draw(st.sampled_from([1, 4]))
    shape = data.draw(
        npst.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=9), label="shape"
    )
    grid = data.draw(grids(shape), label="grid")
    kind, selection = data.draw(selections(shape), label="selection")
    dtype = np.dtype(data.draw(st.sampled_from(["u1", ">f4", "c16", "S3"])))
    order = data.draw(st.sampled_from("CF"))
    layout = data.draw(st.sampled_from(["C", "F", "strided", "backwards"]), label="out")
    run = data.draw(st.sampled_from([0.0, 0.0, costs.RUN, 1e9]), label="cost of a run")
    try:
        indexer = INDEXERS[kind](selection, shape, grid)
    except IndexError:
        return
    specs: dict[Any, Any] = {}
    items = []
    for coords, *rest in indexer:
        key = "/".join(map(str, coords))
        sides = tuple(d.chunk_size(i) for d, i in zip(grid._dimensions, coords, strict=True))
        spec = specs.setdefault(sides, spec_of(sides, dtype, order=order))
        items.append((StorePath(STORE, f"a/{key}"), spec, *rest))
    if 0 in indexer.shape or not items:
        return
    codecs = V2_RAW if order == "F" else (BytesCodec(endian="big"),) if dtype == ">f4" else RAW
    ours, model = (memory_of(indexer.shape, dtype, layout) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "RUN", run)
        plan = read_plan_of(items, ours.array, codecs, indexer.drop_axes)
    assert plan.left == []
    positions = [p for batch in (*plan.boxes, plan.runs) for p in batch.positions]  # type: ignore[attr-defined]
    positions += grouped(plan)
    assert sorted(positions) == list(range(len(items)))
    if run == 0:
        assert plan.groups == []
    elif run == 1e9:
        assert len(grouped(plan)) == len(items)
    event(f"parts: {bool(plan.runs.keys)}, boxes: {bool(plan.boxes)}, {kind}")
    carry_out(plan, items, ours, order, indexer.drop_axes)
    for item in items:
        assign(item, model.array, order, indexer.drop_axes)
    np.testing.assert_array_equal(ours.block, model.block)
