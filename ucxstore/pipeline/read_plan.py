"""Which way each chunk of a raw read goes: pure, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.storage import StorePath

from ucxstore.client.memory import may_receive
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.geometry.axes import Grid, find_axes, grid_of
from ucxstore.pipeline.geometry.points import find_points
from ucxstore.pipeline.geometry.runs import Move, Part, find_move
from ucxstore.pipeline.plan import NOT_A_BOX, NOT_OURS, NOT_PLAIN, NOT_RAW, Item, Plan, plan_read
from ucxstore.pipeline.raw import RawChunks, raw_chunks
from ucxstore.zarr_compat import ArraySpec

# From here on it is worth while to look at points of all chunks together.
_MANY_CHUNKS = 4

NOT_HOST = "its buffers are not in the memory of this machine"


@dataclass(slots=True)
class PartBatch:
    """Parts of chunks, which one native call moves.

    Parameters
    ----------
    positions : list of int
        Where the chunks stand in zarr's batch.
    keys : list of str
        The chunks' keys, without the store's prefix.
    sources, targets : list of tuple
        What is taken of each chunk, and where in the array it goes.
    sizes : list of int
        The bytes of each chunk as it is stored.
    nbytes : list of int
        How many bytes move for each key.
    """

    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sources: list[Part] = field(default_factory=list)
    targets: list[Part] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RawPlan(Plan):
    """What becomes of the chunks of a raw read.

    Parameters
    ----------
    parts : PartBatch
        What is read straight, but not in boxes.
    chain : Chain or None
        What makes chunks of those that are fetched whole; ``None`` if there are none.
    """

    parts: PartBatch = field(default_factory=PartBatch)
    chain: Chain | None = None


def plan_raw(
    items: Sequence[Item],
    out: object,
    codecs: Sequence[Codec],
    store: object,
    drop_axes: tuple[int, ...],
) -> RawPlan:
    """Plan a read of chunks whose stored bytes are their values.

    Parameters
    ----------
    items : sequence
        zarr's batch.
    out : array_like
        Where the selection goes.
    codecs : sequence of Codec
        The array's, evolved.
    store : object
        The store that the chunks must belong to.
    drop_axes : tuple of int
        As zarr gives them.

    Returns
    -------
    RawPlan
        All of an array whose codecs change the bytes is left to the other pipeline.
    """
    raw = raw_chunks(codecs, items[0][1])
    if raw is None:
        return RawPlan.of_none(items, NOT_RAW)
    if not may_receive(out):
        return RawPlan.of_none(items, NOT_PLAIN)
    # With axes to drop there are index arrays, and no boxes.
    boxes = Plan.of_none(items, NOT_A_BOX) if drop_axes else plan_read(items, out, codecs, store)
    plan = RawPlan(boxes.direct, boxes.whole, fallback=boxes.fallback)
    if plan.fallback:
        _look_again(plan, items, out, raw, store, drop_axes)
    if plan.whole:
        plan.chain = Chain.of(codecs, items[0][1], raw=True)
        if plan.chain is None:
            for position in plan.whole:
                plan.leave(position, NOT_HOST)
            plan.whole = []
    return plan


def _look_again(
    plan: RawPlan,
    items: Sequence[Item],
    out: npt.NDArray[Any],
    raw: RawChunks,
    store: object,
    drop_axes: tuple[int, ...],
) -> None:
    """Find out which chunks that are no boxes can be read in parts, or have to be whole."""
    positions, plan.fallback = plan.fallback, []
    itemsize = raw.dtype.itemsize
    array = Grid(out.shape, out.strides)
    parts, whole = plan.parts, plan.whole
    spec: ArraySpec | None = None
    chunk, size = array, 0
    moves: Sequence[Move | None] = [None] * len(positions)
    if not drop_axes:
        moves = _points([items[position] for position in positions], raw, array) or moves
    for position, found in zip(positions, moves, strict=True):
        path, its_spec, chunk_selection, out_selection, _ = items[position]
        if type(path) is not StorePath or path.store is not store:
            plan.leave(position, NOT_OURS)
            continue
        if out.dtype != raw.dtype:
            whole.append(position)
            continue
        if its_spec is not spec:
            spec = its_spec
            chunk, size = grid_of(spec.shape, itemsize, raw.order), itemsize * prod(spec.shape)
        move = found
        if move is None:
            axes = find_axes(chunk_selection, out_selection, drop_axes, chunk, array)
            move = None if axes is None else find_move(axes, itemsize, size)
        if move is None:
            whole.append(position)
            continue
        parts.positions.append(position)
        parts.keys.append(path.path)
        parts.sources.append(move.source)
        parts.targets.append(move.target)
        parts.sizes.append(size)
        parts.nbytes.append(move.nbytes)


def _points(items: Sequence[Item], raw: RawChunks, array: Grid) -> Sequence[Move] | None:
    """Return what is to move for chunks of one shape of which a few points each are wanted."""
    _, spec, *_ = items[0]
    if len(items) < _MANY_CHUNKS or any(item[1] is not spec for item in items):
        return None
    itemsize = raw.dtype.itemsize
    chunk = grid_of(spec.shape, itemsize, raw.order)
    selections = [(item[2], item[3]) for item in items]
    return find_points(selections, chunk, array, itemsize, itemsize * prod(spec.shape))
