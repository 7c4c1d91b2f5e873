"""Whatever is selected, what the planner says to move is what numpy would assign, byte by byte."""

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, cpu
from zarr.core.chunk_grids import ChunkGrid, FixedDimension, VaryingDimension
from zarr.core.indexing import (
    BasicIndexer,
    BlockIndexer,
    CoordinateIndexer,
    Indexer,
    MaskIndexer,
    OrthogonalIndexer,
)
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.strategies import selections
from tests.unit.planning import RAW, STORE, V2_RAW, basic, grid_of, items_of, spec_of
from ucxstore import costs
from ucxstore.plan import NOT_OURS, NOT_PLAIN, NOT_RAW, Item
from ucxstore.read_plan import NOT_HOST, RawPlan, plan_raw
from ucxstore.runs import Part

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


def places(part: Part) -> np.ndarray:
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


def chunk_of(item: Item) -> np.ndarray:
    """Return the bytes of a chunk, all chunks' different."""
    path, spec, *_ = item
    nbytes = int(np.prod(spec.shape)) * spec.dtype.to_native_dtype().itemsize
    seed = [ord(letter) for letter in path.path]
    return np.random.default_rng(seed).integers(0, 256, nbytes, "u1")


def carry_out(plan: RawPlan, items: list[Item], memory: Memory, drop_axes: tuple[int, ...]) -> None:
    """Do what the native core does."""
    for batch in plan.direct:
        _, shape, strides, itemsize = batch.layout
        boxes = np.array(batch.boxes).reshape(len(batch.keys), 3, len(batch.chunk_shape))
        for position, (start, first, count) in zip(batch.positions, boxes, strict=True):
            chunk = chunk_of(items[position]).reshape(*batch.chunk_shape, itemsize)
            box = chunk[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))]
            assert np.all(first + count <= shape)
            target = (memory.base + int(first @ strides), itemsize, count.tolist(), strides, None)
            memory.block[places(target)] = box.ravel()
    batch = plan.parts
    for position, source, target, size, nbytes in zip(
        batch.positions, batch.sources, batch.targets, batch.sizes, batch.nbytes, strict=True
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
    for position in plan.whole:
        assign(items[position], memory.array, plan.chain.order(items[position][1]), drop_axes)


def assign(item: Item, out: np.ndarray, order: Any, drop_axes: tuple[int, ...]) -> None:
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
@settings(max_examples=500, deadline=None)
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
        plan = plan_raw(items, ours.array, codecs, STORE, indexer.drop_axes)
    assert plan.fallback == []
    positions = [p for batch in (*plan.direct, plan.parts) for p in batch.positions] + plan.whole
    assert sorted(positions) == list(range(len(items)))
    if run == 0:
        assert plan.whole == []
    elif run == 1e9:
        assert len(plan.whole) == len(items)
    event(f"parts: {bool(plan.parts.keys)}, boxes: {bool(plan.direct)}, {kind}")
    carry_out(plan, items, ours, indexer.drop_axes)
    for item in items:
        assign(item, model.array, order, indexer.drop_axes)
    np.testing.assert_array_equal(ours.block, model.block)


# ---- which parts ----


def part_of(
    indexer: Indexer, chunks: tuple[int, ...], dtype: Any = "f4", order: Any = "C"
) -> tuple[Part, Part]:
    """Return the parts of a selection of the only chunk."""
    items = items_of(indexer, spec_of(chunks, dtype))
    plan = plan_raw(items, np.zeros(indexer.shape, dtype, order), RAW, STORE, indexer.drop_axes)
    assert (plan.direct, plan.whole, plan.fallback) == ([], [], [])
    (source,), (target,) = plan.parts.sources, plan.parts.targets
    return source, target


def exact(part: Part) -> tuple[Any, ...]:
    *numbers, offsets = part
    return *numbers, None if offsets is None else offsets.tolist()


SHAPE = (60, 50)
GRID = grid_of(SHAPE, SHAPE)


def test_steps_are_strides() -> None:
    source, target = part_of(BasicIndexer((slice(3, 60, 10), slice(0, 50, 7)), SHAPE, GRID), SHAPE)
    assert exact(source) == (600, 4, [6, 8], [2000, 28], None)
    assert exact(target) == (0, 192, [], [], None)


def test_rows_by_index_are_runs() -> None:
    source, target = part_of(OrthogonalIndexer(([1, 5, 7], slice(None)), SHAPE, GRID), SHAPE)
    assert exact(source) == (0, 200, [], [], [200, 1000, 1400])
    assert exact(target) == (0, 600, [], [], None)


def test_evenly_spaced_indices_need_no_offsets() -> None:
    for rows in ([1, 5, 9], np.isin(np.arange(60), [1, 5, 9])):
        source, _ = part_of(OrthogonalIndexer((rows, slice(None)), SHAPE, GRID), SHAPE)
        assert exact(source) == (200, 200, [3], [800], None)


def test_offsets_are_as_few_as_can_be() -> None:
    """An axis of indices comes first, whichever it is."""
    source, target = part_of(OrthogonalIndexer((slice(None), [1, 5, 7]), SHAPE, GRID), SHAPE)
    assert exact(source) == (0, 4, [60], [200], [4, 20, 28])
    assert exact(target) == (0, 4, [3, 60], [4, 12], None)


def test_integers_beside_indices_are_dropped() -> None:
    source, target = part_of(OrthogonalIndexer((7, [1, 5, 7]), SHAPE, GRID), SHAPE)
    assert exact(source) == (1400, 4, [], [], [4, 20, 28])
    assert exact(target) == (0, 12, [], [], None)


def test_runs_that_follow_one_another_are_merged() -> None:
    """In pieces of the largest size that all of them can be cut to."""
    columns = [*range(4, 8), *range(10, 16), *range(20, 22)]
    source, target = part_of(OrthogonalIndexer((7, columns), SHAPE, GRID), SHAPE)
    assert exact(source) == (1400, 8, [], [], [16, 24, 40, 48, 56, 80])
    assert exact(target) == (0, 48, [], [], None)
    rows, columns = np.mgrid[10:13, 20:30]
    points = CoordinateIndexer((rows.ravel(), columns.ravel()), SHAPE, GRID)
    source, target = part_of(points, SHAPE)
    assert exact(source) == (2080, 40, [3], [200], None)
    assert exact(target) == (0, 120, [], [], None)


def test_points_in_any_order() -> None:
    points = ([5, 5, 4, 4], [6, 7, 6, 7])  # two runs, the second one before the first
    source, target = part_of(CoordinateIndexer(points, SHAPE, GRID), SHAPE)
    assert exact(source) == (0, 8, [], [], [1024, 824])
    assert exact(target) == (0, 16, [], [], None)
    source, target = part_of(CoordinateIndexer(([9, 0, 9], [3, -1, 3]), SHAPE, GRID), SHAPE)
    assert exact(source) == (0, 4, [], [], [1812, 196, 1812])
    assert exact(target) == (0, 12, [], [], None)


def test_chunks_and_arrays_in_fortran_order() -> None:
    indexer = OrthogonalIndexer((slice(None), [1, 5, 7]), SHAPE, GRID)
    items = items_of(indexer, spec_of(SHAPE, order="F"))
    out = np.zeros(indexer.shape, "f4", "F")
    plan = plan_raw(items, out, V2_RAW, STORE, ())
    assert exact(plan.parts.sources[0]) == (0, 240, [], [], [240, 1200, 1680])
    assert exact(plan.parts.targets[0]) == (0, 720, [], [], None)


# ---- what is fetched whole, or left to the other pipeline ----


def test_what_is_less_work_whole() -> None:
    shape = (2000, 1000)
    grid = grid_of(shape, shape)
    every_other = BasicIndexer((slice(0, None, 2), slice(0, None, 2)), shape, grid)
    full = BasicIndexer((slice(None), slice(None)), shape, grid)
    dense = MaskIndexer((np.random.default_rng(0).random(shape) > 0.9,), shape, grid)
    some = CoordinateIndexer((np.arange(1000) * 7 % 2000, np.arange(1000) * 3 % 1000), shape, grid)
    column = BasicIndexer((slice(0, None, 2), 5), shape, grid)
    for indexer, order, whole in (
        (every_other, "C", True),
        (full, "F", True),
        (dense, "C", True),
        (some, "C", False),
        (column, "C", False),
    ):
        items = items_of(indexer, spec_of(shape))
        plan = plan_raw(items, np.zeros(indexer.shape, "f4", order), RAW, STORE, ())
        assert (len(plan.whole), len(plan.parts.keys)) == (whole, not whole)
        assert (plan.chain is not None) == whole


def test_a_request_takes_so_many_offsets() -> None:
    shape = (100_000, 1000)
    grid = grid_of(shape, shape)
    for count, whole in (costs.MOST_OFFSETS, []), (costs.MOST_OFFSETS + 1, [0]):
        rows = np.arange(count) ** 2 % 100_000
        items = items_of(CoordinateIndexer((rows, rows % 1000), shape, grid), spec_of(shape, "u1"))
        plan = plan_raw(items, np.zeros(count, "u1"), RAW, STORE, ())
        assert plan.whole == whole


def test_another_dtype_is_numpys_to_convert() -> None:
    items, shape = basic((slice(None), 3), (60, 50), (20, 50))
    plan = plan_raw(items, np.zeros(shape, ">f4"), RAW, STORE, ())
    assert (plan.whole, plan.fallback) == ([0, 1, 2], [])


@pytest.mark.parametrize(
    ("codecs", "out", "reason"),
    [
        ((*RAW, ZstdCodec()), np.zeros(30, "f4"), NOT_RAW),
        (RAW, np.ma.zeros(30, "f4"), NOT_PLAIN),
        (RAW, np.broadcast_to(np.zeros(1, "f4"), 30), NOT_PLAIN),
    ],
)
def test_what_is_left_to_the_other_pipeline(codecs: Any, out: Any, reason: str) -> None:
    items, _ = basic((slice(0, 60, 2), 3), (60, 50), (20, 50))
    plan = plan_raw(items, out, codecs, STORE, ())
    assert (plan.fallback, plan.reason, plan.parts.keys, plan.whole) == ([0, 1, 2], reason, [], [])


def test_chunks_of_another_store_are_left_to_the_other_pipeline() -> None:
    items, shape = basic((slice(0, 60, 2), 3), (60, 50), (20, 50))
    path, *rest = items[1]
    items[1] = (StorePath(MemoryStore(), path.path), *rest)
    plan = plan_raw(items, np.zeros(shape, "f4"), RAW, STORE, ())
    assert (plan.parts.positions, plan.fallback, plan.reason) == ([0, 2], [1], NOT_OURS)


def test_buffers_elsewhere_are_left_to_the_other_pipeline() -> None:
    """Only those that would be fetched into one."""
    items, shape = basic((slice(None), slice(None)), (4000, 50), (2000, 50))
    elsewhere = BufferPrototype(buffer=Buffer, nd_buffer=cpu.NDBuffer)
    items = [(path, replace(spec, prototype=elsewhere), *rest) for path, spec, *rest in items]
    plan = plan_raw(items, np.zeros(shape, "f4", order="F"), RAW, STORE, ())
    assert (plan.whole, plan.fallback, plan.reason) == ([], [0, 1], NOT_HOST)
    plan = plan_raw(items, np.zeros(shape, "f4"), RAW, STORE, ())
    assert plan.direct[0].positions == [0, 1]
