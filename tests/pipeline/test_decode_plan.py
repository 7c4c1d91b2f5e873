from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.storage import MemoryStore, StorePath

from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.decode_plan import Group, plan_decode
from ucxstore.pipeline.plan import NOT_OURS, NOT_PLAIN

STORE = MemoryStore()


def spec_of(*shape: int, dtype: str = "f4") -> ArraySpec:
    return ArraySpec(
        shape,
        get_data_type_from_native_dtype(np.dtype(dtype)),
        0,
        ArrayConfig.from_dict({}),
        default_buffer_prototype(),
    )


def chain_of(spec: ArraySpec, *codecs: Any) -> Chain:
    chain = Chain.of((BytesCodec(), *(codecs or (ZstdCodec(),))), spec)
    assert chain is not None
    return chain


def planned(spec: ArraySpec, count: int, **changes: Any) -> tuple[Any, list[Group]]:
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
    out = changes.get("out", np.empty(count * length, "f4"))
    return plan_decode(items, out, chain_of(spec), STORE)


def test_large_chunks_go_alone_and_small_ones_together() -> None:
    for items, count, groups in ((1 << 22, 3, 3), (1 << 14, 1000, 32), (16, 1000, 1), (16, 1, 1)):
        plan, found = planned(spec_of(items), count)
        assert not plan.fallback
        assert abs(len(found) - groups) <= 1
        assert [p for group in found for p in group.positions] == list(range(count))
        assert [key for group in found for key in group.keys] == [f"c/{i}" for i in range(count)]


def test_a_group_asks_for_no_more_than_its_limit() -> None:
    _, (group,) = planned(spec_of(1000), 10)
    assert group.limit == sum(wanted[0][2] for wanted in group.ranges)
    assert all(4000 < wanted[0][2] < 10_000 for wanted in group.ranges)
    assert group.whole == [True] * 10


def test_parts_are_not_whole() -> None:
    for selection in ((slice(0, 99, 1),), (slice(0, 100, 2),), (np.arange(100),), np.arange(100)):
        _, (group,) = planned(spec_of(100), 2, chunk_selection=selection)
        assert group.whole == [False, False]


def test_what_is_left_to_the_other_pipeline() -> None:
    plan, groups = planned(spec_of(100), 2, store=MemoryStore())
    assert (plan.fallback, plan.reason, groups) == ([0, 1], NOT_OURS, [])
    fixed = np.empty(200, "f4")
    fixed.flags.writeable = False
    overlapping = np.broadcast_to(np.empty(1, "f4"), 200).view()
    for out in fixed, overlapping, [0.0] * 200, np.ma.zeros(200):
        plan, groups = planned(spec_of(100), 2, out=out)
        assert (plan.fallback, plan.reason, groups) == ([0, 1], NOT_PLAIN, [])


def test_which_chains_are_known() -> None:
    spec = spec_of(100)
    assert Chain.of((BytesCodec(),), spec) is None  # raw
    assert Chain.of((BytesCodec(endian="big"),), spec) is not None
    assert Chain.of((zarr.codecs.ShardingCodec(chunk_shape=(10,)),), spec) is None

    class Mine(ZstdCodec):
        pass

    assert Chain.of((BytesCodec(), Mine()), spec) is None


@pytest.mark.parametrize(
    ("codecs", "straight", "outer"),
    [
        ((ZstdCodec(),), True, 0),
        ((ZstdCodec(), Crc32cCodec()), True, 1),
        ((Crc32cCodec(), ZstdCodec()), False, 2),
    ],
)
def test_what_writes_into_given_memory(codecs: Any, straight: bool, outer: int) -> None:
    chain = chain_of(spec_of(100), *codecs)
    assert (chain.compressor is not None) == straight
    assert len(chain.outer) == outer
    assert chain.values_nbytes(spec_of(7)) == 28
