"""Which shards of a write are made here, and which inner chunks are sent as they lie: no I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.storage import StorePath

from ucxstore.client.memory import is_plain
from ucxstore.pipeline.decode_plan import limit_of
from ucxstore.pipeline.encode_plan import GROUP_BYTES
from ucxstore.pipeline.plan import MANY_ROWS, NOT_PLAIN, SHORT_ROW_BYTES, Item, Plan
from ucxstore.pipeline.shards.boxes import Boxes, find_parts
from ucxstore.pipeline.shards.index import MISSING, Ints, ShardIndex, Sharding
from ucxstore.pipeline.shards.plan import basic_key, is_view, known_shards, view_of
from ucxstore.zarr_compat import ChunkGrid, get_indexer


@dataclass(frozen=True, slots=True)
class Written:
    """What is written of a shard, whichever it is.

    Parameters
    ----------
    sent : list of Boxes
        Inner chunks that are sent from the user's array.
    made : list of Boxes or None
        Those that have to be encoded, or merged with what is stored; ``None`` if arrays select
        them.
    kept : numpy.ndarray
        The numbers of those that are written in part or not at all.
    """

    sent: list[Boxes]
    made: list[Boxes] | None
    kept: Ints


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """A shard that is written.

    Parameters
    ----------
    item : tuple
        zarr's.
    sharding : Sharding
    written : Written
    """

    item: Item
    sharding: Sharding
    written: Written

    @property
    def path(self) -> StorePath:
        """Where it is."""
        path: StorePath = self.item[0]
        return path

    @property
    def key(self) -> str:
        """Its key, without the store's prefix."""
        return self.path.path

    @property
    def limit(self) -> int:
        """Bytes of buffers that it needs at the most, as far as its codecs are known."""
        sharding, written = self.sharding, self.written
        made = sharding.count if written.made is None else sum(len(p.chunks) for p in written.made)
        spec, nbytes = sharding.spec, sharding.chunk_nbytes
        chunks = (made + len(written.kept)) * limit_of(sharding.chain, spec, nbytes)
        return chunks + 2 * sharding.index_nbytes

    def any_held(self, index: ShardIndex) -> bool:
        """Tell whether the shard holds any of the inner chunks that are kept."""
        return bool((index.offsets[self.written.kept] != MISSING).any())


@dataclass(slots=True)
class Group:
    """Shards that are made and sent together.

    Parameters
    ----------
    shards : list of ShardWrite
    limit : int
        Bytes of buffers that they need at the most.
    """

    shards: list[ShardWrite] = field(default_factory=list)
    limit: int = 0


def plan_shard_writes(
    items: Sequence[Item], value: object, codecs: Sequence[Codec], store: object
) -> tuple[Plan, list[Group]]:
    """Plan a write of shards.

    Parameters
    ----------
    items : sequence
        zarr's batch.
    value : array_like
        What is written.
    codecs : sequence of Codec
        The array's, evolved.
    store : object
        The store that the shards must belong to.

    Returns
    -------
    Plan
        With nothing but what is left to the other pipeline.
    list of Group
    """
    if not is_plain(value):
        return Plan.of_none(items, NOT_PLAIN), []
    plan = Plan()
    shards: list[ShardWrite] = []
    known: dict[object, Written] = {}
    for _, item, sharding in known_shards(items, plan, codecs, store):
        _, spec, chunk_selection, out_selection, _ = item
        source = None
        if value.shape != () and is_view(out_selection):
            source = view_of(value, out_selection)
        key = basic_key(chunk_selection, spec, None if source is None else source.shape)
        written = known.get(key)
        if written is None:
            written = _written(chunk_selection, sharding, source)
            if key is not None:
                known[key] = written
        shards.append(ShardWrite(item, sharding, written))
    return plan, _groups(shards)


def _written(chunk_selection: Any, sharding: Sharding, source: npt.NDArray[Any] | None) -> Written:
    """Find the inner chunks of a selection in a shard, and what becomes of them.

    `source` is the part of the user's array that goes to the shard, if it is one.
    """
    shape = sharding.shape
    indexer = get_indexer(chunk_selection, shape, ChunkGrid.from_sizes(shape, sharding.spec.shape))
    kept = np.ones(sharding.count, np.bool_)
    if source is not None and source.shape != indexer.shape:  # to be spread over it, or refused
        source = None
    sent: list[Boxes] = []
    made: list[Boxes] | None = []
    for part in find_parts(indexer, sharding):
        if not isinstance(part, Boxes) or made is None:
            made = None
            continue
        if part.whole:
            kept[part.chunks] = False
        (sent if _is_sent(part, sharding, source) else made).append(part)
    return Written(sent, made, np.flatnonzero(kept))


def _is_sent(boxes: Boxes, sharding: Sharding, source: npt.NDArray[Any] | None) -> bool:
    raw = sharding.raw
    if raw is None or source is None or source.dtype != raw.dtype or not boxes.whole:
        return False
    nbytes = prod(boxes.counts) * source.itemsize
    rows = nbytes // boxes.target(source.strides, source.itemsize)[1]
    return nbytes >= SHORT_ROW_BYTES * rows or rows <= MANY_ROWS


def _groups(shards: Iterable[ShardWrite]) -> list[Group]:
    """Put small shards together."""
    groups: list[Group] = []
    nbytes = 0
    for shard in shards:
        size = shard.sharding.count * shard.sharding.chunk_nbytes
        if not groups or nbytes + size > GROUP_BYTES:
            groups.append(Group())
            nbytes = 0
        groups[-1].shards.append(shard)
        groups[-1].limit += shard.limit
        nbytes += size
    return groups
