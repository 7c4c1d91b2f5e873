from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from zarr.core.chunk_grids import ChunkGrid, VaryingDimension
from zarr.core.indexing import (
    BasicIndexer,
    CoordinateIndexer,
    Indexer,
    MaskIndexer,
    OrthogonalIndexer,
)
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.planning import (
    RAW,
    STORE,
    V2_RAW,
    basic,
    batch_of,
    chain_of,
    grid_of,
    grouped,
    items_of,
    read_plan_of,
    spec_of,
    write_plan_of,
)
from ucxstore.pipeline.batch import NOT_OURS, NOT_PLAIN, BoxBatch, Chunk
from ucxstore.pipeline.box_plan import BoxPlan, find_boxes
from ucxstore.pipeline.geometry import costs
from ucxstore.pipeline.geometry.costs import MANY_RUNS


def boxes_read(items: list[Chunk], out: np.ndarray, codecs: Any = RAW) -> BoxPlan:
    chain = chain_of(codecs, items[0][1])
    return find_boxes(batch_of(items, out), chain, range(len(items)), write=False)


def boxes_written(items: list[Chunk], value: np.ndarray) -> BoxPlan:
    chain = chain_of(RAW, items[0][1])
    return find_boxes(batch_of(items, value), chain, range(len(items)), write=True)


@pytest.fixture
def any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small test arrays go direct."""
    monkeypatch.setattr(costs, "SHORT_RUN_BYTES", 0)


def carry_out(batches: list[BoxBatch], out: np.ndarray, source: np.ndarray, chunks: Any) -> None:
    """Do what the native core does, on arrays."""
    for batch in batches:
        ndim = len(batch.chunk_shape)
        address, shape, strides, itemsize = batch.layout
        assert address == out.__array_interface__["data"][0]
        assert itemsize == out.itemsize
        target = np.lib.stride_tricks.as_strided(out, shape, strides)
        boxes = np.array(batch.boxes).reshape(len(batch.keys), 3, ndim)
        for key, (start, first, count) in zip(batch.keys, boxes, strict=True):
            coords = [int(part) for part in key.removeprefix("a/c").split("/") if part]
            chunk = np.zeros(chunks, out.dtype)
            region = source[
                tuple(slice(i * n, (i + 1) * n) for i, n in zip(coords, chunks, strict=True))
            ]
            chunk[tuple(slice(0, n) for n in region.shape)] = region
            chunk = chunk.reshape(batch.chunk_shape)
            box = chunk[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))]
            target[tuple(slice(a, a + n) for a, n in zip(first, count, strict=True))] = box


@pytest.mark.usefixtures("any_row")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "selection",
    [
        (slice(None), slice(None)),
        (slice(3, 17), slice(5, 6)),
        (slice(0, 1), slice(None)),
        (4, slice(None)),
        (slice(None), 10),
        (-1, -1),
        (slice(None, None, 40), slice(None)),
    ],
)
def test_what_is_read_directly(selection: Any, order: Any) -> None:
    source = np.arange(19 * 11, dtype="f4").reshape(19, 11)
    items, shape = basic(selection, source.shape, (4, 5))
    out = np.full(shape, -1, "f4", order=order)
    plan = boxes_read(items, out)
    assert plan.rest == []
    assert sorted(p for batch in plan.batches for p in batch.positions) == list(range(len(items)))
    assert sum(sum(batch.nbytes) for batch in plan.batches) == out.nbytes
    carry_out(plan.batches, out, source, (4, 5))
    np.testing.assert_array_equal(out, source[selection])


def test_a_scalar_array() -> None:
    items, shape = basic((), (), ())
    out = np.zeros(shape, "f4")
    (batch,) = boxes_read(items, out).batches
    assert (batch.chunk_shape, batch.boxes, batch.nbytes) == ((1,), [0, 0, 1], [4])
    assert batch.layout[1:] == ((1,), (0,), 4)
    assert batch.keys == ["a/c"]


def test_dropped_axes_are_put_back_with_stride_0() -> None:
    items, shape = basic((3, slice(None), 2), (8, 6, 4), (4, 3, 4), dtype="f8")
    out = np.zeros(shape)
    (batch,) = boxes_read(items, out).batches
    assert batch.layout[1:] == ((1, 6, 1), (0, 8, 0), 8)
    assert batch.boxes == [3, 0, 2, 0, 0, 0, 1, 3, 1, 3, 0, 2, 0, 3, 0, 1, 3, 1]


def test_edge_chunks_take_only_what_is_there() -> None:
    items, shape = basic((slice(None),), (250,), (100,))
    (batch,) = boxes_read(items, np.zeros(shape, "f4")).batches
    assert batch.boxes == [0, 0, 100, 0, 100, 100, 0, 200, 50]
    assert batch.nbytes == [400, 400, 200]


def test_chunks_of_several_shapes_are_grouped() -> None:
    grid = ChunkGrid(dimensions=(VaryingDimension((10, 20, 10), 40),))
    root, spec = StorePath(STORE, "a"), spec_of((1,))
    items = [
        (root / str(i), replace(spec, shape=(grid._dimensions[0].chunk_size(i),)), *rest)
        for (i,), *rest in BasicIndexer((slice(None),), (40,), grid)
    ]
    plan = boxes_read(items, np.zeros(40, "f4"))
    assert [(b.chunk_shape, b.positions) for b in plan.batches] == [((10,), [0, 2]), ((20,), [1])]


@pytest.mark.parametrize(
    "indexer",
    [
        OrthogonalIndexer((np.array([1, 5]), slice(None)), (20, 10), grid_of((20, 10), (4, 5))),
        OrthogonalIndexer((slice(None), [1, 2]), (20, 10), grid_of((20, 10), (4, 5))),
        OrthogonalIndexer((3, [1, 2]), (20, 10), grid_of((20, 10), (4, 5))),
        OrthogonalIndexer((np.arange(20) > 3, slice(None)), (20, 10), grid_of((20, 10), (4, 5))),
        CoordinateIndexer(([1, 5], [1, 2]), (20, 10), grid_of((20, 10), (4, 5))),
        CoordinateIndexer(([1, 2, 5],), (20,), grid_of((20,), (4,))),
        MaskIndexer((np.arange(20) > 3,), (20,), grid_of((20,), (4,))),
        BasicIndexer((slice(0, 20, 2), slice(None)), (20, 10), grid_of((20, 10), (4, 5))),
    ],
)
@pytest.mark.usefixtures("any_row")
def test_selections_that_are_no_boxes(indexer: Indexer) -> None:
    grid = (4, 5)
    items = items_of(indexer, spec_of(grid))
    if len(indexer.shape) == 1 and not isinstance(indexer, OrthogonalIndexer):
        items = [(path, spec_of((4,)), *rest) for path, _, *rest in items]
    assert boxes_read(items, np.zeros(indexer.shape, "f4")).rest == list(range(len(items)))
    value = np.ones(indexer.shape, "f4")
    assert boxes_written(items, value).rest == list(range(len(items)))


def test_format_2_in_fortran_order_is_turned_round() -> None:
    items, shape = basic((slice(None), 7), (30, 20), (30, 10), order="F")
    out = np.zeros(shape, "f4", order="F")
    (batch,) = boxes_read(items, out, V2_RAW).batches
    assert batch.chunk_shape == (10, 30)
    assert batch.layout[1:] == ((1, 30), (0, 4), 4)
    assert batch.boxes == [7, 0, 0, 0, 1, 30]


def test_format_3_stores_c_order_whatever_the_array_has() -> None:
    items, shape = basic((slice(None), slice(None)), (400, 300), (200, 300), order="F")
    plan = boxes_read(items, np.zeros(shape, "f4", order="F"))
    assert plan == ([], [], [0, 1], [])
    plan = boxes_read(items, np.zeros(shape, "f4", order="C"))
    assert plan.batches[0].chunk_shape == (200, 300)


def test_short_rows_go_direct_where_the_chunk_is_more() -> None:
    items, shape = basic((slice(None), 0), (4000, 300), (2000, 300))
    assert boxes_read(items, np.zeros(shape, "f4")).batches[0].positions == [0, 1]
    items, shape = basic((slice(None), slice(0, 2)), (4000, 3), (2000, 3))
    assert boxes_read(items, np.zeros(shape, "f4")).whole == [0, 1]


@pytest.mark.parametrize(
    "out",
    [
        np.broadcast_to(np.zeros(1, "f4"), 40),
        np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (40,), (0,)),
        np.ma.zeros(40, "f4"),
        memoryview(np.zeros(40, "f4")),
    ],
)
def test_outs_that_are_not_plain_are_left_to_zarr(out: object) -> None:
    items, _ = basic((slice(None),), (40,), (20,))
    plan = read_plan_of(items, out)
    assert (plan.left, plan.reason) == ([0, 1], NOT_PLAIN)


@pytest.mark.parametrize("dtype", [">f4", "f8", "i4"])
def test_outs_of_another_dtype(dtype: str) -> None:
    items, _ = basic((slice(None),), (40,), (20,))
    assert list(boxes_read(items, np.zeros(40, dtype)).rest) == [0, 1]
    assert list(boxes_read(items, np.zeros((40, 1), "f4")).rest) == [0, 1]


def test_chunks_of_another_store_are_left_to_zarr() -> None:
    items, shape = basic((slice(None),), (40,), (20,))
    path, *rest = items[1]
    items[1] = (StorePath(MemoryStore(), path.path), *rest)
    plan = read_plan_of(items, np.zeros(shape, "f4"))
    assert (plan.left, plan.reason) == ([1], NOT_OURS)
    assert plan.boxes[0].positions == [0]
    plan = write_plan_of(items, np.ones(shape, "f4"))
    assert (plan.left, plan.reason, grouped(plan)) == ([1], NOT_OURS, [])
    assert plan.boxes[0].positions == [0]


# ---- writes ----


def test_whole_chunks_are_written_directly() -> None:
    items, shape = basic((slice(None), slice(None)), (40, 40), (20, 20))
    value = np.ones(shape, "f4")
    (batch,) = boxes_written(items, value).batches
    assert batch.boxes == [0, 0, 0, 20, 20, 0, 20, 20]
    assert batch.layout == (value.ctypes.data, (40, 40), (160, 4), 4)


def test_chunks_of_length_1_under_an_integer_are_whole() -> None:
    items, shape = basic((5, slice(None)), (8, 40), (1, 20))
    (batch,) = boxes_written(items, np.ones(shape, "f4")).batches
    assert (batch.chunk_shape, batch.boxes) == ((1, 20), [0, 0, 0, 20])
    assert batch.layout[1:] == ((1, 40), (0, 4), 4)
    items, shape = basic((5, slice(None)), (8, 40), (2, 20))
    assert boxes_written(items, np.ones(shape, "f4")).rest == [0, 1]


def test_edge_chunks_are_not_whole_though_zarr_calls_them_complete() -> None:
    items, shape = basic((slice(None),), (50,), (20,))
    assert [complete for *_, complete in items] == [True, True, True]
    plan = boxes_written(items, np.ones(shape, "f4"))
    assert plan.rest == [2]
    assert plan.batches[0].positions == [0, 1]


def test_few_short_rows_are_written_directly() -> None:
    for rows, rest in (MANY_RUNS, []), (MANY_RUNS + 1, [0, 1]):
        items, shape = basic((slice(None), slice(None)), (rows, 20), (rows, 10))
        assert boxes_written(items, np.ones(shape, "f4")).rest == rest


@pytest.mark.parametrize(
    "value",
    [
        np.ones((), "f4"),
        np.ones(40, ">f4"),
        np.ones(40, "f8"),
        np.ones(1, "f4"),
        np.ones((40, 1), "f4"),
    ],
)
def test_values_that_do_not_fit_as_they_are(value: np.ndarray) -> None:
    items, _ = basic((slice(None),), (40,), (20,))
    assert list(boxes_written(items, value).rest) == [0, 1]


def test_chunks_of_nothing_but_fill_are_deleted() -> None:
    items, shape = basic((slice(None),), (60,), (20,))
    value = np.zeros(shape, "f4")
    value[25] = 1
    plan = boxes_written(items, value)
    assert plan.empty == ["a/c/0", "a/c/2"]
    assert plan.batches[0].keys == ["a/c/1"]
    value[0] = -0.0  # zarr tells it from 0.0
    assert boxes_written(items, value).empty == ["a/c/2"]


def test_chunks_of_nothing_but_fill_are_written_where_that_is_asked_for() -> None:
    items, shape = basic((slice(None),), (60,), (20,), write_empty_chunks=True)
    plan = boxes_written(items, np.zeros(shape, "f4"))
    assert (plan.empty, plan.batches[0].positions) == ([], [0, 1, 2])


def test_one_group_for_equal_specs() -> None:
    items, shape = basic((slice(None),), (60,), (20,))
    items = [(path, replace(spec), *rest) for path, spec, *rest in items]
    assert len(boxes_read(items, np.zeros(shape, "f4")).batches) == 1
