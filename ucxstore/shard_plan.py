"""Which inner chunks of which shards a read needs, and which way each goes: pure, no I/O.

An inner chunk goes DIRECT if its stored bytes are its values, and what is wanted of it is one box,
steps allowed, that is also one box of the array. All others go to DECODE: they are fetched whole,
and zarr's selections are applied to them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.chunk_grids import ChunkGrid
from zarr.core.indexing import get_indexer
from zarr.storage import StorePath

from ucxstore.memory import may_overlap
from ucxstore.plan import (
    MANY_ROWS,
    NOT_OURS,
    NOT_PLAIN,
    SHORT_ROW_BYTES,
    Item,
    Plan,
    is_plain,
)
from ucxstore.shard_boxes import Boxes, Points, find_parts
from ucxstore.shard_index import MISSING, ShardIndex, Sharding

UNKNOWN_SHARDS = "its shards have codecs that are not known here"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted of a shard, whichever it is.

    Parameters
    ----------
    shape : tuple of int
        As zarr's indexer has it.
    stored_shape : tuple of int
        As the array has it, before axes are dropped.
    parts : list
        Of its inner chunks.
    straight : list of bool
        Which of these go DIRECT, into a view of the array.
    """

    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    parts: Sequence[Boxes | Points]
    straight: list[bool]


@dataclass(slots=True)
class Shard:
    """A shard that is read.

    Parameters
    ----------
    item : tuple
        zarr's.
    position : int
        Where it stands in zarr's batch.
    sharding : Sharding
    wanted : Selection
    view : numpy.ndarray or None
        The part of the array that `wanted` goes to, if it is one without gaps. Else it is gathered
        aside, and put where it belongs in the end.
    """

    item: Item
    position: int
    sharding: Sharding
    wanted: Selection
    view: npt.NDArray[Any] | None

    @property
    def key(self) -> str:
        """The shard's key, without the store's prefix."""
        key: str = self.item[0].path
        return key

    @property
    def nbytes(self) -> int:
        """Bytes of memory that reading it needs beside the array, apart from encoded chunks."""
        aside = prod(self.wanted.shape) * self.sharding.spec.dtype.to_native_dtype().itemsize
        return self.sharding.index_nbytes + (aside if self.view is None else 0)

    def any_held(self, index: ShardIndex) -> bool:
        """Tell whether the shard holds any inner chunk that is wanted, or is said to."""
        return any((index.offsets[part.chunks] != MISSING).any() for part in self.wanted.parts)

    def parts(self) -> Iterator[tuple[Boxes | Points, bool]]:
        """Yield its inner chunks, and whether they move straight."""
        for part, straight in zip(self.wanted.parts, self.wanted.straight, strict=True):
            yield part, straight and self.view is not None

    def target(self) -> NDBuffer:
        """Return what `wanted` is read into."""
        _, spec, *_ = self.item
        if self.view is not None:
            return spec.prototype.nd_buffer.from_ndarray_like(self.view)
        dtype = spec.dtype.to_native_dtype()
        return spec.prototype.nd_buffer.empty(self.wanted.shape, dtype, spec.order)

    def finish(self, target: NDBuffer, out: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        """Put what was gathered aside where it belongs."""
        if self.view is None:
            found = target.reshape(self.wanted.stored_shape)
            out[self.item[3]] = found.squeeze(axis=drop_axes) if drop_axes else found


def plan_shards(
    items: Sequence[Item],
    out: object,
    codecs: Sequence[Codec],
    store: object,
    drop_axes: tuple[int, ...],
) -> tuple[Plan, list[Shard]]:
    """Plan the read of shards.

    Parameters
    ----------
    items : sequence
        zarr's batch.
    out : array_like
        Where the selection goes.
    codecs : sequence of Codec
        The array's, evolved.
    store : object
        The store that the shards must belong to.
    drop_axes : tuple of int
        As zarr gives them.

    Returns
    -------
    Plan
        With nothing but what is left to the other pipeline.
    list of Shard
    """
    # Threads write to it at the same time, each to the part of an inner chunk.
    if not is_plain(out) or not out.flags.writeable or may_overlap(out):
        return Plan.of_none(items, NOT_PLAIN), []
    plan = Plan()
    shards: list[Shard] = []
    shapes: dict[tuple[int, ...], Sharding | None] = {}
    selections: dict[object, Selection] = {}
    for position, item in enumerate(items):
        path, spec, chunk_selection, out_selection, _ = item
        if type(path) is not StorePath or path.store is not store:
            plan.leave(position, NOT_OURS)
            continue
        if spec.shape not in shapes:
            shapes[spec.shape] = Sharding.of(codecs, spec)
        sharding = shapes[spec.shape]
        if sharding is None:
            plan.leave(position, UNKNOWN_SHARDS)
            continue
        key = _key(chunk_selection, spec)
        wanted = selections.get(key)
        if wanted is None:
            wanted = _select(chunk_selection, sharding, out)
            if key is not None:
                selections[key] = wanted
        view = None if drop_axes else _view(out, out_selection, wanted)
        shards.append(Shard(item, position, sharding, wanted, view))
    return plan, shards


def _select(chunk_selection: Any, sharding: Sharding, array: npt.NDArray[Any]) -> Selection:
    """Find the inner chunks of a selection in a shard, as zarr's codec does."""
    shape = sharding.shape
    indexer = get_indexer(chunk_selection, shape, ChunkGrid.from_sizes(shape, sharding.spec.shape))
    parts = find_parts(indexer, sharding)
    return Selection(
        indexer.shape,
        getattr(indexer, "sel_shape", indexer.shape),
        parts,
        [_goes_straight(part, sharding, array) for part in parts],
    )


def _key(chunk_selection: Any, spec: ArraySpec) -> object:
    """Return what shards have in common of which the same is wanted, if that is a basic selection.

    Numbers and slices equal one another whatever their types, arrays do not.
    """
    if type(chunk_selection) is tuple and all(type(s) in {slice, int} for s in chunk_selection):
        return spec.shape, chunk_selection
    return None


def _view(
    array: npt.NDArray[Any], out_selection: Any, wanted: Selection
) -> npt.NDArray[Any] | None:
    """Return a part of the array, if it is one without gaps and has the shape of the selection."""
    parts = out_selection if type(out_selection) is tuple else (out_selection,)
    if wanted.shape != wanted.stored_shape:
        return None
    if not all(type(part) is slice and part.step in {None, 1} for part in parts):
        return None
    view = array[(*parts, ...)]
    return view if view.shape == wanted.shape else None


def _goes_straight(part: Boxes | Points, sharding: Sharding, array: npt.NDArray[Any]) -> bool:
    """Tell whether boxes can move straight to the array: any view has the strides that it has."""
    raw, size = sharding.raw, array.itemsize
    if raw is None or raw.dtype != array.dtype or not isinstance(part, Boxes):
        return False
    if len(part.counts) != array.ndim:
        return False
    (_, run, *_), (_, row, *_) = (
        part.source(sharding.spec.shape, size, part.chunks),
        part.target(array.strides, size),
    )
    row = min(run, row)
    return row >= SHORT_ROW_BYTES or prod(part.counts) * size // row <= MANY_ROWS


def rounds(shards: Iterable[Shard], limit: int) -> Iterable[list[Shard]]:
    """Yield shards in lists, none of which needs more memory than the limit, or has one shard."""
    found: list[Shard] = []
    nbytes = 0
    for shard in shards:
        if found and nbytes + shard.nbytes > limit:
            yield found
            found, nbytes = [], 0
        found.append(shard)
        nbytes += shard.nbytes
    if found:
        yield found
