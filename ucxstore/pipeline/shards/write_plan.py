"""Plan the write of shards: which inner chunks are sent as they lie, and which are made: no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ucxstore.base.zarr_compat import ChunkGrid, get_indexer
from ucxstore.client.memory import is_plain
from ucxstore.codecs.classify import Sharded
from ucxstore.pipeline.batch import NOT_HOST, NOT_PLAIN, Batch, Plan
from ucxstore.pipeline.geometry.costs import are_short
from ucxstore.pipeline.indexes.index import Ints, Sharding
from ucxstore.pipeline.shards.boxes import Boxes, find_inner_chunks
from ucxstore.pipeline.shards.shard import Shard, basic_key, is_view, shards_of, view_of
from ucxstore.pipeline.write_plan import GROUP_BYTES


@dataclass(frozen=True, slots=True)
class Written:
    """What is written of a shard. Shards of which the same is written share it.

    Parameters
    ----------
    sent : list of Boxes
        Inner chunks that are sent from the user's array.
    made : list of Boxes or None
        Inner chunks that are encoded, or merged with what is stored; ``None`` if arrays select
        them, so that they are found later.
    kept : numpy.ndarray
        The numbers of inner chunks that are written in part or not at all.
    """

    sent: list[Boxes]
    made: list[Boxes] | None
    kept: Ints


@dataclass(frozen=True, slots=True)
class ShardWrite(Shard):
    """A shard that is written.

    Parameters
    ----------
    written : Written
    """

    written: Written

    @property
    def limit(self) -> int:
        """Bytes of buffers that it needs at the most: see `Chain.limit`."""
        sharding, written = self.sharding, self.written
        made = sharding.count if written.made is None else sum(len(p.chunks) for p in written.made)
        limit = sharding.chain.limit(sharding.spec, sharding.chunk_nbytes)
        return (made + len(written.kept)) * limit + 2 * sharding.index_nbytes

    def read_chunks(self) -> Iterable[Ints]:
        """Yield the numbers of inner chunks that are kept."""
        yield self.written.kept


@dataclass(slots=True)
class ShardGroup:
    """Shards that are made and sent together.

    Parameters
    ----------
    shards : list of ShardWrite
    limit : int
        Bytes of buffers that they need at the most.
    """

    shards: list[ShardWrite] = field(default_factory=list)
    limit: int = 0


def plan_shard_write(batch: Batch, kind: Sharded) -> Plan[ShardGroup]:
    """Plan a write of shards."""
    plan: Plan[ShardGroup] = Plan()
    everything = range(len(batch.chunks))
    value = batch.array
    if not is_plain(value):
        return plan.leave(everything, NOT_PLAIN)
    if not batch.is_host:
        return plan.leave(everything, NOT_HOST)
    shards: list[ShardWrite] = []
    known: dict[object, Written] = {}
    for _, chunk, sharding in shards_of(batch, kind, plan.leave_foreign(batch, everything)):
        _, spec, chunk_selection, out_selection, _ = chunk
        source = None
        if value.shape != () and is_view(out_selection):
            source = view_of(value, out_selection)
        key = basic_key(chunk_selection, spec, None if source is None else source.shape)
        written = known.get(key)
        if written is None:
            written = _written(chunk_selection, sharding, source)
            if key is not None:
                known[key] = written
        shards.append(ShardWrite(chunk, sharding, written))
    plan.groups = _groups(shards)
    return plan


def _written(chunk_selection: Any, sharding: Sharding, source: npt.NDArray[Any] | None) -> Written:
    """Find the inner chunks of a selection in a shard, and divide them up.

    `source` is the view of the user's array that is written to the shard, or ``None`` if that is no
    view without steps.
    """
    shape = sharding.shape
    indexer = get_indexer(chunk_selection, shape, ChunkGrid.from_sizes(shape, sharding.spec.shape))
    kept = np.ones(sharding.count, np.bool_)
    if source is not None and source.shape != indexer.shape:  # numpy broadcasts it, or raises
        source = None
    sent: list[Boxes] = []
    made: list[Boxes] = []
    for inner in find_inner_chunks(indexer, sharding):
        if not isinstance(inner, Boxes):  # arrays select them
            return Written([], None, np.flatnonzero(kept))
        if inner.whole:
            kept[inner.chunks] = False
        (sent if _is_sent(inner, sharding, source) else made).append(inner)
    return Written(sent, made, np.flatnonzero(kept))


def _is_sent(boxes: Boxes, sharding: Sharding, source: npt.NDArray[Any] | None) -> bool:
    chain = sharding.chain
    if not chain.raw or source is None or source.dtype != chain.dtype or not boxes.whole:
        return False
    nbytes = prod(boxes.counts) * source.itemsize
    rows = nbytes // boxes.target(source.strides, source.itemsize)[1]
    return not are_short(nbytes, rows)


def _groups(shards: Iterable[ShardWrite]) -> list[ShardGroup]:
    """Put small shards into groups."""
    groups: list[ShardGroup] = []
    nbytes = 0
    for shard in shards:
        size = shard.sharding.count * shard.sharding.chunk_nbytes
        if not groups or nbytes + size > GROUP_BYTES:
            groups.append(ShardGroup())
            nbytes = 0
        groups[-1].shards.append(shard)
        groups[-1].limit += shard.limit
        nbytes += size
    return groups
