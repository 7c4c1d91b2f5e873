import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.dtype import UInt8

from ucxstore.codecs.classify import Sharded, classify
from ucxstore.pipeline.indexes.index import ShardIndex, Sharding
from ucxstore.pipeline.shards.make import lay_out


def sharding_of(grid: tuple[int, ...], **options: Any) -> Sharding:
    codec = ShardingCodec(
        chunk_shape=(1,) * len(grid), codecs=[BytesCodec(), ZstdCodec()], **options
    )
    spec = ArraySpec(grid, UInt8(), 0, ArrayConfig.from_dict({}), default_buffer_prototype())
    kind = classify((codec,), spec)
    assert isinstance(kind, Sharded)
    sharding = Sharding.of(kind, spec)
    assert sharding is not None
    return sharding


@given(data=st.data())
def test_a_shard_is_as_zarr_assembles_it(data: st.DataObject) -> None:
    grid = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    checked = {} if data.draw(st.booleans()) else {"index_codecs": [BytesCodec()]}
    sharding = sharding_of(
        grid,
        index_location=data.draw(st.sampled_from(["start", "end"])),
        subchunk_write_order=data.draw(
            st.sampled_from(["morton", "lexicographic", "colexicographic", "unordered"])
        ),
        **checked,
    )
    values = data.draw(
        st.lists(st.binary(max_size=5), min_size=sharding.count, max_size=sharding.count)
    )
    lengths = np.array([len(value) for value in values])
    held, index = lay_out(sharding, lengths)
    data_section = b"".join(values[number] for number in held)
    parts = [data_section, index.tobytes()]
    ours = b"".join(parts if sharding.codec.index_location == "end" else parts[::-1])

    named = dict(
        zip(
            itertools.product(*map(range, grid)),
            (cpu.Buffer.from_bytes(value) for value in values),
            strict=True,
        )
    )
    expected = sharding.codec._encode_shard_dict_sync(named, grid, default_buffer_prototype())
    assert (expected is None) == (held.size == 0)
    if expected is None:
        return
    assert ours == expected.to_bytes()
    stored = np.frombuffer(ours, "u1")
    ((kind, first, last),) = sharding.index_ranges
    found = stored[first:last] if kind == 1 else stored[-first:]
    decoded = ShardIndex.decode(found, stored.size, 1, sharding)
    for number in held:
        offset, length = decoded.offsets[number], decoded.lengths[number]
        assert stored[offset : offset + length].tobytes() == values[number]
