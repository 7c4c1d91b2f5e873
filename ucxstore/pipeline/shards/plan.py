"""Which inner chunks of which shards a read needs, and which way each goes: pure, no I/O.

An inner chunk goes DIRECT if its stored bytes are its values, and it is less work to move what is
wanted of it than to fetch all of it. All others go to DECODE.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.storage import StorePath

from ucxstore.client.memory import may_receive
from ucxstore.pipeline.geometry.axes import Grid, grid_of
from ucxstore.pipeline.plan import NOT_OURS, NOT_PLAIN, Item, Plan
from ucxstore.pipeline.shards.boxes import Boxes, Points, find_parts
from ucxstore.pipeline.shards.index import MISSING, ShardIndex, Sharding
from ucxstore.pipeline.shards.moves import BoxMoves, PointMoves, find_moves
from ucxstore.zarr_compat import (
    ArraySpec,
    ChunkGrid,
    Indexer,
    NDBuffer,
    OrthogonalIndexer,
    get_indexer,
)

UNKNOWN_SHARDS = "its shards have codecs that are not known here"
NO_FIT = "what is selected of it does not fit where it goes"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted of a shard, whichever it is.

    Parameters
    ----------
    shape : tuple of int
        As zarr's indexer has it.
    stored_shape : tuple of int
        As the array has it, before axes are dropped.
    aside : bool
        Whether it is gathered in memory of its own, and put where it belongs in the end: that is
        no part of the array without gaps.
    direct : list
        Inner chunks that move straight.
    decode : list
        The others.
    """

    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    aside: bool
    direct: list[BoxMoves | PointMoves]
    decode: list[Boxes | Points]


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
    """

    item: Item
    position: int
    sharding: Sharding
    wanted: Selection

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
    def nbytes(self) -> int:
        """Bytes of memory that reading it needs beside the array, apart from encoded chunks."""
        aside = prod(self.wanted.shape) * self.sharding.itemsize if self.wanted.aside else 0
        return self.sharding.index_nbytes + aside

    def parts(self) -> Iterator[Boxes | Points]:
        """Yield all inner chunks."""
        yield from (moving.part for moving in self.wanted.direct)
        yield from self.wanted.decode

    def any_held(self, index: ShardIndex) -> bool:
        """Tell whether the shard holds any inner chunk that is wanted, or is said to."""
        return any((index.offsets[part.chunks] != MISSING).any() for part in self.parts())

    def target(self, out: NDBuffer) -> NDBuffer:
        """Return what `wanted` is read into."""
        _, spec, _, out_selection, _ = self.item
        nd_buffer = spec.prototype.nd_buffer
        if self.wanted.aside:
            dtype = spec.dtype.to_native_dtype()
            return nd_buffer.empty(self.wanted.shape, dtype, spec.order)
        return nd_buffer.from_ndarray_like(view_of(out.as_ndarray_like(), out_selection))

    def finish(self, target: NDBuffer, out: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        """Put what was gathered aside where it belongs."""
        if self.wanted.aside:
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
    if not may_receive(out):
        return Plan.of_none(items, NOT_PLAIN), []
    plan = Plan()
    shards: list[Shard] = []
    selections: dict[object, Selection] = {}
    for position, item, sharding in known_shards(items, plan, codecs, store):
        _, spec, chunk_selection, out_selection, _ = item
        aside = bool(drop_axes) or not is_view(out_selection)
        key = basic_key(chunk_selection, spec, aside)
        wanted = selections.get(key)
        if wanted is None:
            wanted = _select(chunk_selection, sharding, out, aside)
            if key is not None:
                selections[key] = wanted
        if not wanted.aside and view_of(out, out_selection).shape != wanted.shape:
            plan.leave(position, NO_FIT)
            continue
        shards.append(Shard(item, position, sharding, wanted))
    return plan, shards


def known_shards(
    items: Sequence[Item], plan: Plan, codecs: Sequence[Codec], store: object
) -> Iterator[tuple[int, Item, Sharding]]:
    """Yield the shards of a batch, where they stand in it, and how they are made.

    Those of another store, or of codecs that are not known here, are left to the other pipeline.
    """
    shapes: dict[tuple[int, ...], Sharding | None] = {}
    for position, item in enumerate(items):
        path, spec, *_ = item
        if type(path) is not StorePath or path.store is not store:
            plan.leave(position, NOT_OURS)
            continue
        if spec.shape not in shapes:
            shapes[spec.shape] = Sharding.of(codecs, spec)
        sharding = shapes[spec.shape]
        if sharding is None:
            plan.leave(position, UNKNOWN_SHARDS)
        else:
            yield position, item, sharding


def rounds(shards: Iterable[Shard], limit: int) -> Iterator[list[Shard]]:
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


def _select(
    chunk_selection: Any, sharding: Sharding, array: npt.NDArray[Any], aside: bool
) -> Selection:
    """Find the inner chunks of a selection in a shard, as zarr's codec does."""
    spec, shape = sharding.spec, sharding.shape
    indexer = _indexer(chunk_selection, shape, ChunkGrid.from_sizes(shape, spec.shape))
    stored_shape = getattr(indexer, "sel_shape", indexer.shape)
    aside = aside or indexer.shape != stored_shape
    selection = Selection(indexer.shape, stored_shape, aside, [], [])
    # All views have the strides that the array has.
    target = Grid(indexer.shape, array.strides)
    if aside:
        target = grid_of(indexer.shape, sharding.itemsize, spec.order)
    dtype = spec.dtype.to_native_dtype() if aside else array.dtype
    for part in find_parts(indexer, sharding):
        if sharding.raw is None or sharding.raw.dtype != dtype:
            selection.decode.append(part)
            continue
        moving, rest = find_moves(part, sharding, target)
        if moving is not None:
            selection.direct.append(moving)
        if rest is not None:
            selection.decode.append(rest)
    return selection


def _indexer(chunk_selection: Any, shape: tuple[int, ...], grid: ChunkGrid) -> Indexer:
    """Return the indexer of a selection: zarr's codec's, or one that selects the same.

    The codec takes index arrays for an axis each, as `numpy.ix_` makes them, for those of points,
    and so looks at each item.
    """
    if type(chunk_selection) is tuple and all(
        type(part) is np.ndarray and part.ndim == len(shape) and part.size == part.shape[axis]
        for axis, part in enumerate(chunk_selection)
    ):
        return OrthogonalIndexer(tuple(part.reshape(-1) for part in chunk_selection), shape, grid)
    return get_indexer(chunk_selection, shape, grid)


def basic_key(chunk_selection: Any, spec: ArraySpec, more: object) -> object:
    """Return what shards have in common of which the same is wanted, if that is a basic selection.

    Slices and numbers can be told apart quickly; arrays cannot.
    """
    if type(chunk_selection) is tuple and all(type(s) in {slice, int} for s in chunk_selection):
        return spec.shape, chunk_selection, more
    return None


def is_view(out_selection: Any) -> bool:
    """Tell whether all that a selection selects of an array is a part of it without gaps."""
    parts = out_selection if type(out_selection) is tuple else (out_selection,)
    return all(type(part) is slice and part.step in {None, 1} for part in parts)


def view_of(array: Any, out_selection: Any) -> npt.NDArray[Any]:
    """Return that part."""
    parts = out_selection if type(out_selection) is tuple else (out_selection,)
    view: npt.NDArray[Any] = array[(*parts, ...)]
    return view
