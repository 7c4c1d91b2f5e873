"""Which chunks of a batch can move straight between the user's array and the store: pure, no I/O.

A chunk goes DIRECT if its stored bytes are its values, and what is wanted of it is one box that
is also one box of the array. `read_plan` has a second look at the others that are read; those that
are written go to the pipeline that zarr would have used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from operator import add, gt
from typing import Any, Self

import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.storage import StorePath

from ucxstore.client.memory import Layout, describe, is_plain, may_receive
from ucxstore.pipeline.fill import FillTest
from ucxstore.pipeline.geometry.axes import grid_of
from ucxstore.pipeline.geometry.boxes import find_box, run_bytes
from ucxstore.pipeline.geometry.costs import is_less_in_runs
from ucxstore.pipeline.raw import raw_chunks
from ucxstore.zarr_compat import ArraySpec

# A chunk is written row by row, a row being a run of bytes that is contiguous both in the chunk and
# in the array. A row below a cache line costs more as an entry of a scatter list, on either side,
# than its bytes cost to copy; more than a few of them are left to numpy. Arrays in Fortran order,
# whose rows are single items, are the usual case.
SHORT_ROW_BYTES = 64
MANY_ROWS = 64

type Item = tuple[Any, ArraySpec, Any, Any, bool]
"""What zarr gives for a chunk: its StorePath, its spec, the selections in the chunk and in the
array, and whether it is complete (not relied on: edge chunks are complete to zarr)."""

NOT_RAW = "its codecs change the bytes"
NOT_PLAIN = "the array is not a plain numpy array of the stored dtype"
NOT_OURS = "it belongs to another store"
NOT_A_BOX = "its selection has steps, index arrays or masks"
NOT_WHOLE = "it is written in part"
SHORT_ROWS = f"it has more than {MANY_ROWS} rows shorter than {SHORT_ROW_BYTES} bytes"


@dataclass(frozen=True, slots=True)
class BoxBatch:
    """Chunks of one shape, which one native call moves.

    Parameters
    ----------
    chunk_shape : tuple of int
        In items, of at least one axis.
    layout : tuple
        The user's array, with an axis of length 1 and stride 0 for each that a selection dropped.
    positions : list of int
        Where the chunks stand in zarr's batch.
    keys : list of str
        The chunks' keys, without the store's prefix.
    boxes : list of int
        For a read, d starts in the chunk, d starts in the array and d counts for each key; for a
        write, d starts in the array.
    nbytes : list of int
        How many bytes move for each key.
    """

    chunk_shape: tuple[int, ...]
    layout: Layout
    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    boxes: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """What becomes of the chunks of a batch, each of which is in one of its lists.

    Parameters
    ----------
    direct : list of BoxBatch
        What native calls move, one each.
    whole : list of int
        Where chunks stand in the batch that are less work to fetch whole (reads only).
    empty : list of str
        Keys of chunks that hold only their fill value, which zarr deletes (writes only).
    fallback : list of int
        Where the other chunks stand in the batch.
    reason : str
        Why the first of them is no direct one; empty if there are none.
    """

    direct: list[BoxBatch] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    fallback: list[int] = field(default_factory=list)
    reason: str = ""

    @classmethod
    def of_none(cls, items: Sequence[Item], reason: str) -> Self:
        """Leave all chunks to the other pipeline."""
        return cls(fallback=list(range(len(items))), reason=reason)

    def leave(self, position: int, reason: str) -> None:
        """Leave a chunk to the other pipeline."""
        self.fallback.append(position)
        self.reason = self.reason or reason


def plan_read(items: Sequence[Item], out: object, codecs: Sequence[Codec], store: object) -> Plan:
    """Plan a read.

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
    """
    if not may_receive(out):
        return Plan.of_none(items, NOT_PLAIN)
    return _plan(items, out, codecs, store, write=False)


def plan_write(
    items: Sequence[Item], value: object, codecs: Sequence[Codec], store: object
) -> Plan:
    """Plan a write. As `plan_read`, but only whole chunks go direct."""
    if not is_plain(value) or value.shape == ():  # a scalar is for numpy to spread
        return Plan.of_none(items, NOT_PLAIN)
    return _plan(items, value, codecs, store, write=True)


@dataclass(slots=True)
class _Group:
    """Chunks of one shape whose selections drop the same axes."""

    batch: BoxBatch
    view: npt.NDArray[Any]  # the array with the dropped axes put back
    shape: list[int]
    backwards: bool
    write: bool
    fill: FillTest | None  # None where chunks are stored even if they hold nothing else
    sizes: dict[tuple[int, ...], int] = field(default_factory=dict)

    def has(self, targets: list[int], counts: list[int]) -> bool:
        """Tell whether a box lies in the array: a value may be shorter than its selection."""
        return not any(map(gt, map(add, targets, counts), self.view.shape))

    def is_empty(self, targets: list[int]) -> bool:
        """Tell whether zarr would delete the chunk rather than store it."""
        fill = self.fill
        if fill is None or fill.rules_out(self.view, targets):
            return False
        return fill.holds(self.view[tuple(map(slice, targets, map(add, targets, self.shape)))])

    def size(self, counts: list[int]) -> int:
        """Return the bytes of a box, or -1 if it is less work not to move it row by row."""
        key = tuple(counts)
        size = self.sizes.get(key)
        if size is None:
            size = self.sizes[key] = self._size(counts)
        return size

    def _size(self, counts: list[int]) -> int:
        _, _, strides, itemsize = self.batch.layout
        shape = self.batch.chunk_shape
        if self.backwards:
            counts = counts[::-1]
        size = itemsize * prod(counts)
        ends = (grid_of(shape, itemsize, "C").strides, strides)
        rows = [size // run_bytes(end, counts, itemsize) for end in ends]
        if self.write:
            short = size < SHORT_ROW_BYTES * max(rows) and max(rows) > MANY_ROWS
        else:
            short = not is_less_in_runs(size, itemsize, itemsize * prod(shape), sum(rows))
        return -1 if short else size


class _Groups:
    """The groups of a batch, made as they come up."""

    def __init__(self, array: npt.NDArray[Any], codecs: Sequence[Codec], *, write: bool) -> None:
        self._array = array
        self._codecs = codecs
        self._write = write
        self._groups: dict[object, _Group | str] = {}

    def of(self, spec: ArraySpec, dropped: tuple[int, ...]) -> _Group | str:
        """Return the group of a chunk, or why it cannot go direct."""
        # A batch is of one array, and only the shape differs between its specs, each an object of
        # its own in a rectilinear grid; another dtype or configuration would be another object.
        key = (spec.shape, dropped, id(spec.dtype), id(spec.config))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._make(spec, dropped)
        return group

    def batches(self) -> list[BoxBatch]:
        """Return what was gathered."""
        groups = self._groups.values()
        return [g.batch for g in groups if isinstance(g, _Group) and g.batch.keys]

    def _make(self, spec: ArraySpec, dropped: tuple[int, ...]) -> _Group | str:
        raw = raw_chunks(self._codecs, spec)
        if raw is None:
            return NOT_RAW
        if self._array.dtype != raw.dtype:
            return NOT_PLAIN
        shape = list(spec.shape) or [1]
        if self._array.ndim + len(dropped) != len(shape):
            return NOT_A_BOX
        view = self._array[tuple(None if a in dropped else slice(None) for a in range(len(shape)))]
        # A chunk in Fortran order is one in C order with its axes the other way round.
        backwards = raw.order == "F"
        outer = view.T if backwards else view
        batch = BoxBatch(tuple(shape[::-1] if backwards else shape), describe(outer))
        elide = self._write and not spec.config.write_empty_chunks
        fill = FillTest(spec) if elide else None
        return _Group(batch, view, shape, backwards, self._write, fill)


def _plan(
    items: Sequence[Item],
    array: npt.NDArray[Any],
    codecs: Sequence[Codec],
    store: object,
    *,
    write: bool,
) -> Plan:
    plan = Plan()
    leave = plan.leave
    groups = _Groups(array, codecs, write=write)
    group: _Group | str = NOT_RAW
    last: ArraySpec | None = None
    axes: tuple[int, ...] = ()
    # A chunk may take no more than 2 to 3 us here: zarr itself takes 7 to 8.
    for position, (path, spec, chunk_selection, out_selection, _) in enumerate(items):
        box = find_box(chunk_selection, out_selection)
        if box is None:
            leave(position, NOT_A_BOX)
            continue
        starts, targets, counts, dropped = box
        if spec is not last or dropped != axes:
            last, axes = spec, dropped
            group = groups.of(spec, dropped)
        if isinstance(group, str):
            leave(position, group)
            continue
        if type(path) is not StorePath or path.store is not store:
            leave(position, NOT_OURS)
            continue
        if len(counts) != len(group.shape):
            leave(position, NOT_A_BOX)
            continue
        if write and (counts != group.shape or any(starts) or not group.has(targets, counts)):
            leave(position, NOT_WHOLE)
            continue
        size = group.size(counts)
        if size < 0:
            if write:
                leave(position, SHORT_ROWS)
            else:
                plan.whole.append(position)
            continue
        if write and group.is_empty(targets):
            plan.empty.append(path.path)
            continue
        batch = group.batch
        if group.backwards:
            starts.reverse()
            targets.reverse()
            counts.reverse()
        batch.positions.append(position)
        batch.keys.append(path.path)
        batch.nbytes.append(size)
        boxes = batch.boxes
        if write:
            boxes += targets
        else:
            boxes += starts
            boxes += targets
            boxes += counts
    plan.direct = groups.batches()
    return plan
