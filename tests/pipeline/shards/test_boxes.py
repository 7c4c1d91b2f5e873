"""Boxes of inner chunks are what zarr's own indexers say, and lie where numpy says."""

from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from zarr.codecs import ShardingCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.core.indexing import Indexer, get_indexer

from ucxstore.codecs.classify import Sharded, classify
from ucxstore.pipeline.geometry.runs import Runs
from ucxstore.pipeline.indexes.index import Sharding
from ucxstore.pipeline.shards.boxes import Boxes, Points, find_inner_chunks

DTYPE = np.dtype("i8")


def sharding_of(grid: tuple[int, ...], chunk: tuple[int, ...]) -> Sharding:
    shape = tuple(g * c for g, c in zip(grid, chunk, strict=True))
    zdtype = get_data_type_from_native_dtype(DTYPE)
    spec = ArraySpec(shape, zdtype, 0, ArrayConfig.from_dict({}), default_buffer_prototype())
    kind = classify((ShardingCodec(chunk_shape=chunk).evolve_from_array_spec(spec),), spec)
    assert isinstance(kind, Sharded)
    return Sharding.of(kind, spec)


def indexer_of(selection: Any, sharding: Sharding) -> Indexer:
    grid = ChunkGrid.from_sizes(sharding.shape, sharding.spec.shape)
    return get_indexer(selection, sharding.shape, grid)


def numbers(sharding: Sharding, coords: Any) -> int:
    return int(np.ravel_multi_index(tuple(int(c) for c in coords), sharding.grid))


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    axes = draw(st.integers(1, 3))
    grid = draw(st.tuples(*[st.integers(1, 4)] * axes))
    return sharding_of(grid, draw(st.tuples(*[st.integers(1, 4)] * axes)))


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """Draw what zarr selects of a shard by slices and integers: never nothing."""
    selection: list[slice | int] = []
    for side in shape:
        start = draw(st.integers(0, side - 1))
        stop = draw(st.integers(start + 1, side))
        part = slice(start, stop, draw(st.sampled_from([1, 1, 1, 2, 3, 7])))
        selection.append(draw(st.sampled_from([part, part, slice(0, side, 1), start])))
    return tuple(selection)


def places(part: Runs) -> np.ndarray:
    """Return where each byte of a part lies."""
    offset, run, counts, strides, offsets = part
    starts = offset + offsets
    for count, stride in zip(counts, strides, strict=True):
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return (starts[:, None] + np.arange(run)).ravel()


@given(data=st.data())
def test_as_zarr_and_numpy_have_it(data: st.DataObject) -> None:
    sharding = data.draw(shardings())
    selection = data.draw(selections(sharding.shape))
    indexer = indexer_of(selection, sharding)
    parts = find_inner_chunks(indexer, sharding)
    chunk = np.empty(sharding.spec.shape)
    found = [(number, *each, part.whole) for part in parts for number, *each in part]
    expected = [
        (numbers(sharding, coords), wanted, place, chunk[wanted].size == chunk.size)
        for coords, wanted, place, _ in indexer
    ]
    plain = lambda one: (one[0], repr(one[1:]))  # noqa: E731
    assert sorted(found, key=plain) == sorted(expected, key=plain)

    # A shard whose chunks lie in any order, into an array of any strides.
    rng = np.random.default_rng(0)
    shard = rng.integers(0, 1 << 60, sharding.shape)
    size = sharding.chunk_nbytes
    order = rng.permutation(sharding.count)
    value = np.zeros(sharding.count * size, "u1")
    for number, at in enumerate(order):
        where = sharding.coordinates(number)
        box = tuple(
            slice(i * n, i * n + n) for i, n in zip(where, sharding.spec.shape, strict=True)
        )
        value[at * size : (at + 1) * size] = np.ascontiguousarray(shard[box]).view("u1").ravel()
    memory = np.zeros(tuple(3 * n for n in indexer.shape), "i8", data.draw(st.sampled_from("CF")))
    view = memory[(*(slice(1, 1 + 2 * n, 2) for n in indexer.shape), ...)]
    raw = memory.reshape(-1, order="A").view("u1")
    assert np.shares_memory(raw, memory)
    base = view.__array_interface__["data"][0] - raw.__array_interface__["data"][0]
    for part in parts:
        assert isinstance(part, Boxes)
        *source, _ = part.source(sharding.spec.shape, 8)
        target = part.target(view.strides, 8)
        raw[base + places(target)] = value[places((*source, order[part.chunks] * size))]
    np.testing.assert_array_equal(view, shard[selection])


def test_interior_chunks_are_one_part() -> None:
    sharding = sharding_of((100, 100), (5, 5))
    parts = find_inner_chunks(indexer_of((slice(0, 500, 1),) * 2, sharding), sharding)
    assert [len(part.chunks) for part in parts] == [10_000]
    assert parts[0].whole
    parts = find_inner_chunks(indexer_of((slice(3, 498, 1),) * 2, sharding), sharding)
    assert sorted(len(part.chunks) for part in parts) == [1] * 4 + [98] * 4 + [98 * 98]
    assert not any(part.whole for part in parts if len(part.chunks) == 1)


@pytest.mark.parametrize(
    ("selection", "bytes_in_source", "bytes_in_target"),
    [
        ((slice(0, 8, 1), slice(0, 8, 1)), 128, 32),
        ((slice(0, 8, 1), slice(0, 4, 1)), 128, 128),  # the rows of the view lie end to end
        ((slice(0, 8, 1), slice(0, 8, 2)), 8, 16),
        ((slice(0, 8, 2), slice(0, 8, 1)), 32, 32),
        ((2, slice(0, 8, 1)), 32, 32),
        ((slice(0, 8, 1), 2), 8, 32),
    ],
)
def test_runs_are_as_long_as_can_be(
    selection: Any, bytes_in_source: int, bytes_in_target: int
) -> None:
    sharding = sharding_of((2, 2), (4, 4))
    indexer = indexer_of(selection, sharding)
    view = np.empty(indexer.shape, "i8")
    part, *_ = find_inner_chunks(indexer, sharding)
    assert isinstance(part, Boxes)
    assert part.source(sharding.spec.shape, 8)[1] == bytes_in_source
    assert part.target(view.strides, 8)[1] == bytes_in_target


@given(data=st.data())
def test_what_arrays_select_is_left_as_zarr_has_it(data: st.DataObject) -> None:
    sharding = data.draw(shardings())
    rows = data.draw(npst.arrays("i8", st.integers(1, 5), elements=st.integers(0, 15)))
    orthogonal = (rows % sharding.shape[0], *map(slice, sharding.shape[1:]))
    points = data.draw(npst.integer_array_indices(sharding.shape))
    indexer = indexer_of(data.draw(st.sampled_from([orthogonal, points])), sharding)
    (part,) = find_inner_chunks(indexer, sharding)
    assert isinstance(part, Points)
    assert not part.whole
    expected = [(numbers(sharding, coords), repr(rest[:2])) for coords, *rest in indexer]
    assert [(number, repr(rest)) for number, *rest in part] == expected
    some = part.only(part.chunks % 2 == 0)
    assert [(number, repr(rest)) for number, *rest in some] == [
        one for one in expected if one[0] % 2 == 0
    ]
    assert len(some.projections) == len(some.chunks)
