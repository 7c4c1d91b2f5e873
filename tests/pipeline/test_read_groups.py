"""How encoded chunks are put together in groups that are fetched and decoded."""

from typing import Any

import numpy as np
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.array_spec import ArraySpec
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.planning import STORE, read_plan_of, spec_of
from ucxstore.pipeline.batch import NOT_OURS, NOT_PLAIN, Group, Plan

ZSTD = (BytesCodec(), ZstdCodec())


def planned(spec: ArraySpec, count: int, **changes: Any) -> tuple[Plan[Group], list[Group]]:
    (length,) = spec.shape
    items = [
        (
            StorePath(changes.get("store", STORE), f"c/{i}"),
            spec,
            changes.get("chunk_selection", (slice(0, length, 1),)),
            (slice(i * length, (i + 1) * length, 1),),
            True,
        )
        for i in range(count)
    ]
    plan = read_plan_of(items, changes.get("out", np.empty(count * length, "f4")), ZSTD)
    return plan, plan.groups


def test_large_chunks_go_alone_and_small_ones_together() -> None:
    for items, count, groups in ((1 << 22, 3, 3), (1 << 14, 1000, 32), (16, 1000, 1), (16, 1, 1)):
        plan, found = planned(spec_of((items,)), count)
        assert not plan.left
        assert abs(len(found) - groups) <= 1
        assert [p for group in found for p in group.positions] == list(range(count))
        assert [key for group in found for key in group.keys] == [f"c/{i}" for i in range(count)]


def test_a_group_asks_for_no_more_than_its_limit() -> None:
    _, (group,) = planned(spec_of((1000,)), 10)
    assert group.limit == sum(wanted[0][2] for wanted in group.ranges)
    assert all(4000 < wanted[0][2] < 10_000 for wanted in group.ranges)
    assert group.whole == [True] * 10


def test_parts_are_not_whole() -> None:
    for selection in ((slice(0, 99, 1),), (slice(0, 100, 2),), (np.arange(100),), np.arange(100)):
        _, (group,) = planned(spec_of((100,)), 2, chunk_selection=selection)
        assert group.whole == [False, False]


def test_what_is_left_to_the_other_pipeline() -> None:
    plan, groups = planned(spec_of((100,)), 2, store=MemoryStore())
    assert (plan.left, plan.reason, groups) == ([0, 1], NOT_OURS, [])
    fixed = np.empty(200, "f4")
    fixed.flags.writeable = False
    overlapping = np.broadcast_to(np.empty(1, "f4"), 200).view()
    for out in fixed, overlapping, [0.0] * 200, np.ma.zeros(200):
        plan, groups = planned(spec_of((100,)), 2, out=out)
        assert (plan.left, plan.reason, groups) == ([0, 1], NOT_PLAIN, [])
