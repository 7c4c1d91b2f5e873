"""Which parts a selection becomes, and which selections become none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from zarr.core.buffer import Buffer, BufferPrototype, cpu
from zarr.core.indexing import (
    BasicIndexer,
    CoordinateIndexer,
    Indexer,
    MaskIndexer,
    OrthogonalIndexer,
)
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.planning import V2_RAW, basic, grid_of, grouped, items_of, read_plan_of, spec_of
from ucxstore.pipeline.batch import NOT_HOST, NOT_OURS, NOT_PLAIN
from ucxstore.pipeline.geometry import costs
from ucxstore.pipeline.geometry.runs import Runs


def part_of(indexer: Indexer) -> tuple[Runs, Runs]:
    """Return the parts of a selection of the only chunk."""
    items = items_of(indexer, spec_of(SHAPE))
    plan = read_plan_of(items, np.zeros(indexer.shape, "f4"), drop_axes=indexer.drop_axes)
    assert (plan.boxes, plan.groups, plan.left) == ([], [], [])
    (source,), (target,) = plan.runs.sources, plan.runs.targets
    return source, target


def exact(part: Runs) -> tuple[Any, ...]:
    *numbers, offsets = part
    return *numbers, None if offsets is None else offsets.tolist()


SHAPE = (60, 50)
GRID = grid_of(SHAPE, SHAPE)


def test_steps_are_strides() -> None:
    source, target = part_of(BasicIndexer((slice(3, 60, 10), slice(0, 50, 7)), SHAPE, GRID))
    assert exact(source) == (600, 4, [6, 8], [2000, 28], None)
    assert exact(target) == (0, 192, [], [], None)


def test_rows_by_index_are_runs() -> None:
    source, target = part_of(OrthogonalIndexer(([1, 5, 7], slice(None)), SHAPE, GRID))
    assert exact(source) == (0, 200, [], [], [200, 1000, 1400])
    assert exact(target) == (0, 600, [], [], None)


def test_evenly_spaced_indices_need_no_offsets() -> None:
    for rows in ([1, 5, 9], np.isin(np.arange(60), [1, 5, 9])):
        source, _ = part_of(OrthogonalIndexer((rows, slice(None)), SHAPE, GRID))
        assert exact(source) == (200, 200, [3], [800], None)


def test_offsets_are_as_few_as_can_be() -> None:
    """An axis of indices comes first, whichever it is."""
    source, target = part_of(OrthogonalIndexer((slice(None), [1, 5, 7]), SHAPE, GRID))
    assert exact(source) == (0, 4, [60], [200], [4, 20, 28])
    assert exact(target) == (0, 4, [3, 60], [4, 12], None)


def test_integers_beside_indices_are_dropped() -> None:
    source, target = part_of(OrthogonalIndexer((7, [1, 5, 7]), SHAPE, GRID))
    assert exact(source) == (1400, 4, [], [], [4, 20, 28])
    assert exact(target) == (0, 12, [], [], None)


def test_runs_that_follow_one_another_are_merged() -> None:
    """The runs are cut to the largest size that divides all of them."""
    columns = [*range(4, 8), *range(10, 16), *range(20, 22)]
    source, target = part_of(OrthogonalIndexer((7, columns), SHAPE, GRID))
    assert exact(source) == (1400, 8, [], [], [16, 24, 40, 48, 56, 80])
    assert exact(target) == (0, 48, [], [], None)
    rows, columns = np.mgrid[10:13, 20:30]
    points = CoordinateIndexer((rows.ravel(), columns.ravel()), SHAPE, GRID)
    source, target = part_of(points)
    assert exact(source) == (2080, 40, [3], [200], None)
    assert exact(target) == (0, 120, [], [], None)


def test_points_in_any_order() -> None:
    points = ([5, 5, 4, 4], [6, 7, 6, 7])  # two runs, the second one before the first
    source, target = part_of(CoordinateIndexer(points, SHAPE, GRID))
    assert exact(source) == (0, 8, [], [], [1024, 824])
    assert exact(target) == (0, 16, [], [], None)
    source, target = part_of(CoordinateIndexer(([9, 0, 9], [3, -1, 3]), SHAPE, GRID))
    assert exact(source) == (0, 4, [], [], [1812, 196, 1812])
    assert exact(target) == (0, 12, [], [], None)


def test_chunks_and_arrays_in_fortran_order() -> None:
    indexer = OrthogonalIndexer((slice(None), [1, 5, 7]), SHAPE, GRID)
    items = items_of(indexer, spec_of(SHAPE, order="F"))
    out = np.zeros(indexer.shape, "f4", "F")
    plan = read_plan_of(items, out, V2_RAW)
    assert exact(plan.runs.sources[0]) == (0, 240, [], [], [240, 1200, 1680])
    assert exact(plan.runs.targets[0]) == (0, 720, [], [], None)


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
        plan = read_plan_of(items, np.zeros(indexer.shape, "f4", order))
        assert (len(grouped(plan)), len(plan.runs.keys)) == (whole, not whole)


def test_a_request_takes_so_many_offsets() -> None:
    shape = (100_000, 1000)
    grid = grid_of(shape, shape)
    for count, whole in (costs.MOST_OFFSETS, []), (costs.MOST_OFFSETS + 1, [0]):
        rows = np.arange(count) ** 2 % 100_000
        items = items_of(CoordinateIndexer((rows, rows % 1000), shape, grid), spec_of(shape, "u1"))
        plan = read_plan_of(items, np.zeros(count, "u1"))
        assert grouped(plan) == whole


def test_another_dtype_is_numpys_to_convert() -> None:
    items, shape = basic((slice(None), 3), (60, 50), (20, 50))
    plan = read_plan_of(items, np.zeros(shape, ">f4"))
    assert (grouped(plan), plan.left) == ([0, 1, 2], [])


@pytest.mark.parametrize(
    "out",
    [np.ma.zeros(30, "f4"), np.broadcast_to(np.zeros(1, "f4"), 30)],
    ids=["masked", "repeated"],
)
def test_what_is_left_to_the_other_pipeline(out: Any) -> None:
    items, _ = basic((slice(0, 60, 2), 3), (60, 50), (20, 50))
    plan = read_plan_of(items, out)
    assert (plan.left, plan.reason, plan.runs.keys, plan.groups) == ([0, 1, 2], NOT_PLAIN, [], [])


def test_chunks_of_another_store_are_left_to_the_other_pipeline() -> None:
    items, shape = basic((slice(0, 60, 2), 3), (60, 50), (20, 50))
    path, *rest = items[1]
    items[1] = (StorePath(MemoryStore(), path.path), *rest)
    plan = read_plan_of(items, np.zeros(shape, "f4"))
    assert (plan.runs.positions, plan.left, plan.reason) == ([0, 2], [1], NOT_OURS)


def test_buffers_elsewhere_are_left_to_the_other_pipeline() -> None:
    """Only chunks that would be fetched whole are left: boxes and runs need no buffer."""
    items, shape = basic((slice(None), slice(None)), (4000, 50), (2000, 50))
    elsewhere = BufferPrototype(buffer=Buffer, nd_buffer=cpu.NDBuffer)  # type: ignore[type-abstract]
    items = [(path, replace(spec, prototype=elsewhere), *rest) for path, spec, *rest in items]
    plan = read_plan_of(items, np.zeros(shape, "f4", order="F"))
    assert (grouped(plan), plan.left, plan.reason) == ([], [0, 1], NOT_HOST)
    plan = read_plan_of(items, np.zeros(shape, "f4"))
    assert plan.boxes[0].positions == [0, 1]
