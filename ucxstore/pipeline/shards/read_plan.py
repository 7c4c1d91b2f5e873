"""Plan the read of shards: which inner chunks are needed, and which way each goes: pure, no I/O.

An inner chunk is DIRECT if its stored bytes are its values, and moving the wanted part is less work
than fetching all of it. All others are DECODE.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ucxstore.base.zarr_compat import (
    ArraySpec,
    ChunkGrid,
    Indexer,
    NDBuffer,
    OrthogonalIndexer,
    get_indexer,
)
from ucxstore.client.memory import may_receive
from ucxstore.codecs.classify import Sharded
from ucxstore.pipeline.batch import NOT_HOST, NOT_PLAIN, Batch, Plan
from ucxstore.pipeline.geometry.axes import Grid, grid_of
from ucxstore.pipeline.geometry.runs import Move
from ucxstore.pipeline.indexes.index import IndexForm, Ints, Sharding
from ucxstore.pipeline.shards.boxes import Boxes, BoxMoves, PointMoves, Points, find_inner_chunks
from ucxstore.pipeline.shards.shard import Shard, basic_key, is_view, shards_of, view_of

# How many selections an array keeps, and of how many inner chunks each, at the most: 2 MB in all.
_KNOWN = 256
_KNOWN_CHUNKS = 64

NO_FIT = "the selection has another shape in the shard than in the array"


class OnlyMove(NamedTuple):
    """The move of a box of one inner chunk, where nothing else is wanted of a shard.

    Parameters
    ----------
    number : int
        The inner chunk's number in the shard.
    move : Move
        From the inner chunk's start to the first item that is wanted.
    form : IndexForm
        The form of the shard's index.
    """

    number: int
    move: Move
    form: IndexForm


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of a shard. Shards of which the same is wanted share it.

    Parameters
    ----------
    shape : tuple of int
        The shape that zarr's indexer gives it.
    stored_shape : tuple of int
        The shape that it has in the array, before axes are dropped.
    aside : bool
        Whether it is read into an array of its own, and copied to the user's array in the end. It
        is if its part of the user's array is no view without steps.
    direct : list
        Inner chunks that move straight.
    decode : list
        All other inner chunks.
    only : OnlyMove or None
        What is wanted, if that is no more than a box of one inner chunk, which moves straight.
    """

    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    aside: bool
    direct: list[BoxMoves | PointMoves]
    decode: list[Boxes | Points]
    only: OnlyMove | None

    @property
    def count(self) -> int:
        """Inner chunks that are wanted."""
        return sum(len(moving.chunks.chunks) for moving in self.direct) + sum(
            len(inner.chunks) for inner in self.decode
        )


class KnownSelections:
    """Small selections of an array's shards that were planned before, kept between reads.

    Where a loop reads one inner chunk after another, the same few selections come again and again,
    and to plan one takes half of all that we do for a call. Methods may be called by any thread.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, Selection] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: object) -> Selection | None:
        """Return what was planned under a key, if it is still known."""
        return self._known.get(key)

    def add(self, key: object, selection: Selection) -> None:
        """Keep a selection if it is small, and forget all others if they have become many."""
        if selection.count <= _KNOWN_CHUNKS:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = selection


@dataclass(frozen=True, slots=True)
class ShardRead(Shard):
    """A shard that is read.

    Parameters
    ----------
    position : int
        Its position in zarr's batch.
    wanted : Selection
    """

    position: int
    wanted: Selection

    @property
    def nbytes(self) -> int:
        """Bytes of memory that reading it needs beside the array, apart from encoded chunks."""
        aside = prod(self.wanted.shape) * self.sharding.itemsize if self.wanted.aside else 0
        return self.sharding.index_nbytes + aside

    def read_chunks(self) -> Iterable[Ints]:
        """Yield the numbers of all inner chunks that are wanted."""
        yield from (moving.chunks.chunks for moving in self.wanted.direct)
        yield from (inner.chunks for inner in self.wanted.decode)

    def target(self, out: NDBuffer) -> NDBuffer:
        """Return the array that `wanted` is read into."""
        _, spec, _, out_selection, _ = self.chunk
        nd_buffer = spec.prototype.nd_buffer
        if self.wanted.aside:
            dtype = spec.dtype.to_native_dtype()
            return nd_buffer.empty(self.wanted.shape, dtype, spec.order)
        return nd_buffer.from_ndarray_like(view_of(out.as_ndarray_like(), out_selection))

    def finish(self, target: NDBuffer, batch: Batch) -> None:
        """Copy what was read aside to the user's array."""
        if self.wanted.aside:
            found, axes = target.reshape(self.wanted.stored_shape), batch.drop_axes
            batch.values[self.chunk[3]] = found.squeeze(axis=axes) if axes else found


def plan_shard_read(
    batch: Batch, kind: Sharded, known: KnownSelections | None = None
) -> Plan[ShardRead]:
    """Plan the read of shards.

    Parameters
    ----------
    batch : Batch
    kind : Sharded
    known : KnownSelections, optional
        Those of the array that the shards are of.
    """
    plan: Plan[ShardRead] = Plan()
    everything = range(len(batch.chunks))
    array = batch.array
    if not may_receive(array):
        return plan.leave(everything, NOT_PLAIN)
    if not batch.is_host:
        return plan.leave(everything, NOT_HOST)
    selections: dict[object, Selection] = {}
    ours = plan.leave_foreign(batch, everything)
    for position, chunk, sharding in shards_of(batch, kind, ours):
        _, spec, chunk_selection, out_selection, _ = chunk
        key = selection_key(batch, spec, chunk_selection, out_selection)
        wanted = selections.get(key)
        if wanted is None and known is not None:
            wanted = known.get(key)
        if wanted is None:
            aside = _is_aside(batch, out_selection)
            wanted = _select(chunk_selection, sharding, array, aside)
            if key is not None and known is not None:
                known.add(key, wanted)
        if key is not None:
            selections[key] = wanted
        if not wanted.aside and view_of(array, out_selection).shape != wanted.shape:
            plan.leave([position], NO_FIT)
            continue
        plan.groups.append(ShardRead(chunk, sharding, position, wanted))
    return plan


def selection_key(
    batch: Batch, spec: ArraySpec, chunk_selection: Any, out_selection: Any
) -> object:
    """Return a key that shards of an array share if the same is wanted of them: see `basic_key`."""
    array, aside = batch.array, _is_aside(batch, out_selection)
    # A selection depends on how the array lies in memory, too.
    return basic_key(chunk_selection, spec, (aside, spec.order, array.strides, array.dtype))


def rounds(shards: Iterable[ShardRead], limit: int) -> Iterator[list[ShardRead]]:
    """Yield lists of shards that need no more memory than the limit, or have only one shard."""
    found: list[ShardRead] = []
    nbytes = 0
    for shard in shards:
        if found and nbytes + shard.nbytes > limit:
            yield found
            found, nbytes = [], 0
        found.append(shard)
        nbytes += shard.nbytes
    if found:
        yield found


def _select(
    chunk_selection: Any, sharding: Sharding, array: npt.NDArray[Any], aside: bool
) -> Selection:
    """Find the inner chunks of a selection in a shard, as zarr's codec does."""
    spec, shape, chain = sharding.spec, sharding.shape, sharding.chain
    indexer = _indexer(chunk_selection, shape, ChunkGrid.from_sizes(shape, spec.shape))
    stored_shape = getattr(indexer, "sel_shape", indexer.shape)
    aside = aside or indexer.shape != stored_shape
    direct: list[BoxMoves | PointMoves] = []
    decode: list[Boxes | Points] = []
    # All views have the strides that the array has.
    target = Grid(indexer.shape, array.strides)
    if aside:
        target = grid_of(indexer.shape, sharding.itemsize, spec.order)
    dtype = spec.dtype.to_native_dtype() if aside else array.dtype
    for inner in find_inner_chunks(indexer, sharding):
        if not chain.raw or chain.dtype != dtype:
            decode.append(inner)
            continue
        moving, rest = inner.split_moves(sharding, target)
        if moving is not None:
            direct.append(moving)
        if rest is not None:
            decode.append(rest)
    only = None if aside or decode else _only_move(direct, sharding)
    return Selection(indexer.shape, stored_shape, aside, direct, decode, only)


def _only_move(direct: list[BoxMoves | PointMoves], sharding: Sharding) -> OnlyMove | None:
    if len(direct) != 1 or not isinstance(direct[0], BoxMoves):
        return None
    (number, *others), (source, target, nbytes) = direct[0].chunks.chunks.tolist(), direct[0].each
    if others:
        return None
    offset, *_, offsets = target
    assert offsets is not None
    target = (offset + int(offsets[0]), *target[1:4], None)
    return OnlyMove(number, Move(source, target, nbytes), sharding.index_form)


def _is_aside(batch: Batch, out_selection: Any) -> bool:
    return bool(batch.drop_axes) or not is_view(out_selection)


def _indexer(chunk_selection: Any, shape: tuple[int, ...], grid: ChunkGrid) -> Indexer:
    """Return the indexer that zarr's codec makes of a selection, or a faster one.

    The codec takes index arrays by `numpy.ix_`, which are of one axis each, for coordinates of
    points, and looks at each item.
    """
    if type(chunk_selection) is tuple and all(
        type(part) is np.ndarray and part.ndim == len(shape) and part.size == part.shape[axis]
        for axis, part in enumerate(chunk_selection)
    ):
        return OrthogonalIndexer(tuple(part.reshape(-1) for part in chunk_selection), shape, grid)
    return get_indexer(chunk_selection, shape, grid)
