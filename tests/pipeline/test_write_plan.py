from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.planning import RAW, STORE, write_plan_of
from ucxstore.pipeline.batch import NOT_OURS, NOT_PLAIN, Group, Plan
from ucxstore.pipeline.write_plan import GROUP_BYTES

ZSTD = (BytesCodec(), ZstdCodec())


def spec_of(*shape: int, order: str = "C") -> ArraySpec:
    return ArraySpec(
        shape,
        get_data_type_from_native_dtype(np.dtype("f4")),
        0,
        ArrayConfig.from_dict({"order": order}),  # type: ignore[typeddict-item]
        default_buffer_prototype(),
    )


def box(*sides: tuple[int, int]) -> tuple[slice, ...]:
    return tuple(slice(start, stop, 1) for start, stop in sides)


def item(number: int, spec: ArraySpec, selection: Any, complete: bool, store: Any = STORE) -> Any:
    counts = [part.stop - part.start for part in selection]
    return (
        StorePath(store, f"c/{number}"),
        spec,
        selection,
        box(*((0, n) for n in counts)),
        complete,
    )


def planned(
    items: list[Any], codecs: tuple[Codec, ...], value: object = None
) -> tuple[Plan[Group], list[Group]]:
    # A scalar, so that raw chunks are not written straight from it.
    plan = write_plan_of(items, np.zeros((), "f4") if value is None else value, codecs)
    return plan, plan.groups


def test_large_chunks_go_alone_and_small_ones_together() -> None:
    for length, count, groups in (
        (GROUP_BYTES // 4 + 1, 3, 3),
        (GROUP_BYTES // 4, 3, 3),
        (16, 1000, 1),
        (16, 1, 1),
    ):
        spec = spec_of(length)
        items = [item(i, spec, box((0, length)), True) for i in range(count)]
        for codecs in RAW, ZSTD:
            plan, found = planned(items, codecs)
            assert not plan.left
            assert len(found) == groups
            assert [p for group in found for p in group.positions] == list(range(count))
            assert [key for group in found for key in group.keys] == [
                f"c/{i}" for i in range(count)
            ]
            assert all(group.nbytes == sum(group.sizes) <= group.limit for group in found)
            assert not any(group.is_part for group in found)


def test_groups_get_smaller_so_that_all_threads_end_at_the_same_time() -> None:
    spec = spec_of(1 << 14)
    items = [item(i, spec, box((0, 1 << 14)), True) for i in range(1000)]
    with zarr.config.set({"threading.max_workers": 2}):
        _, found = planned(items, ZSTD)
    sizes = [group.nbytes for group in found]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (GROUP_BYTES, 1 << 16)
    left = sum(sizes)
    for size in sizes[:-1]:
        assert size <= max(left // 8, 1 << 16)
        left -= size


def test_parts_are_read_together_and_apart_from_the_rest() -> None:
    spec = spec_of(100)
    items = [item(i, spec, box((0, 50 + 50 * (i % 2))), i % 2 == 1) for i in range(10)]
    _, (part, whole) = planned(items, ZSTD)
    assert (part.is_part, part.positions) == (True, [0, 2, 4, 6, 8])
    assert (whole.is_part, whole.positions) == (False, [1, 3, 5, 7, 9])
    assert not whole.ranges
    assert part.limit == 2 * whole.limit  # what is there, and what comes of it
    assert 2 * sum(wanted[0][2] for wanted in part.ranges) == part.limit


@pytest.mark.parametrize(
    ("selection", "parts"),
    [
        (box((0, 3), (0, 100)), [(1200, 38_800, [], [], None)]),
        (box((50, 60), (0, 100)), [(0, 20_000, [], [], None), (24_000, 16_000, [], [], None)]),
        (box((0, 100), (0, 10)), [(40, 360, [99], [400], None), (39_640, 360, [], [], None)]),
        (box((0, 100), (10, 95)), [(0, 40_000, [], [], None)]),  # 99 gaps of 60 bytes
    ],
)
def test_what_is_read_of_raw_chunks(selection: Any, parts: Any) -> None:
    _, (group,) = planned([item(0, spec_of(100, 100), selection, False)], RAW)
    assert group.runs == [parts]


def test_fortran_order() -> None:
    spec = spec_of(100, 50, order="F")
    _, (group,) = planned(
        [item(0, spec, box((0, 100), (0, 3)), False)], (V2Codec(filters=None, compressor=None),)
    )
    assert group.runs == [[(1200, 18_800, [], [], None)]]


def test_steps_and_arrays_read_all() -> None:
    spec = spec_of(100)
    for selection in (slice(0, 100, 2),), (np.arange(7),):
        given = (StorePath(STORE, "c/0"), spec, selection, (slice(0, 50, 1),), False)
        _, (group,) = planned([given], RAW)
        assert group.runs == [[(0, 400, [], [], None)]]


def test_one_of_a_group_alone() -> None:
    spec = spec_of(100)
    _, (group,) = planned([item(i, spec, box((0, 50)), False) for i in range(3)], RAW)
    alone = group.alone(1, 7)
    assert (alone.positions, alone.keys, alone.limit) == ([1], ["c/1"], 7)
    assert (alone.runs, alone.ranges) == ([[(0, 400, [], [], None)]], [[]])
    assert alone.is_part


def test_what_is_left_to_the_other_pipeline() -> None:
    spec = spec_of(100)
    both = [item(0, spec, box((0, 100)), True), item(1, spec, box((0, 100)), True, MemoryStore())]
    plan, (group,) = planned(both, ZSTD)
    assert (group.positions, plan.left, plan.reason) == ([0], [1], NOT_OURS)
    plan, groups = planned(both, ZSTD, np.ma.zeros(200))
    assert (plan.left, plan.reason, groups) == ([0, 1], NOT_PLAIN, [])
