"""Find raw chunks that move straight between the user's array and the store in boxes: no I/O.

A chunk does so if the wanted part of it is one box, which is also one box of the array, and its
rows are long enough. A row is a run of bytes that is contiguous in the chunk and in the array. A
write must be of the whole chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from operator import add, gt
from typing import Any, NamedTuple

import numpy.typing as npt

from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.client.memory import describe
from ucxstore.codecs.chain import Chain
from ucxstore.pipeline.batch import Batch, BoxBatch
from ucxstore.pipeline.fill import FillTest
from ucxstore.pipeline.geometry.axes import grid_of
from ucxstore.pipeline.geometry.boxes import find_box
from ucxstore.pipeline.geometry.costs import are_short, is_less_in_runs
from ucxstore.pipeline.geometry.runs import run_nbytes


class BoxPlan(NamedTuple):
    """The chunks of a batch that move in boxes, and all others.

    Parameters
    ----------
    batches : list of BoxBatch
    empty : list of str
        Keys of chunks that hold only their fill value (writes only).
    whole : list of int
        Positions of chunks that are less work to fetch whole (reads only).
    rest : sequence of int
        Positions of all others.
    """

    batches: list[BoxBatch]
    empty: list[str]
    whole: list[int]
    rest: Sequence[int]


@dataclass(slots=True)
class _Shape:
    """Chunks of one shape whose selections drop the same axes."""

    batch: BoxBatch
    view: npt.NDArray[Any]  # the array with the dropped axes put back
    shape: list[int]
    backwards: bool
    write: bool
    fill: FillTest | None  # of a write that deletes chunks which hold only the fill value
    sizes: dict[tuple[int, ...], int] = field(default_factory=dict)

    def has(self, targets: list[int], counts: list[int]) -> bool:
        """Tell whether a box lies in the array, which may be shorter than the selection."""
        return not any(map(gt, map(add, targets, counts), self.view.shape))

    def size(self, counts: list[int]) -> int:
        """Return the bytes of a box, or -1 if moving it row by row is more work."""
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
        rows = [size // run_nbytes(end, counts, itemsize) for end in ends]
        if self.write:
            short = are_short(size, max(rows))
        else:
            short = not is_less_in_runs(size, itemsize, itemsize * prod(shape), sum(rows))
        return -1 if short else size


class _Shapes:
    """The shapes of a batch, each made when its first chunk comes."""

    def __init__(self, array: npt.NDArray[Any], chain: Chain, *, write: bool) -> None:
        self._array = array
        self._chain = chain
        self._write = write
        self._shapes: dict[object, _Shape | None] = {}

    def of(self, spec: ArraySpec, dropped: tuple[int, ...]) -> _Shape | None:
        """Return the shape of a chunk, or ``None`` if its boxes are no boxes of the array."""
        # All chunks are of one array, so their specs differ only by shape. In a rectilinear grid,
        # each spec is another object.
        key = (spec.shape, dropped)
        if key not in self._shapes:
            self._shapes[key] = self._make(spec, dropped)
        return self._shapes[key]

    def batches(self) -> list[BoxBatch]:
        """Return the boxes of each shape that has any."""
        return [s.batch for s in self._shapes.values() if s is not None and s.batch.keys]

    def _make(self, spec: ArraySpec, dropped: tuple[int, ...]) -> _Shape | None:
        shape = list(spec.shape) or [1]
        if self._array.ndim + len(dropped) != len(shape):
            return None
        view = self._array[tuple(None if a in dropped else slice(None) for a in range(len(shape)))]
        # A chunk in Fortran order has the same bytes as one in C order with its axes reversed.
        backwards = self._chain.order(spec) == "F"
        outer = view.T if backwards else view
        batch = BoxBatch(tuple(shape[::-1] if backwards else shape), describe(outer))
        elide = self._write and not spec.config.write_empty_chunks
        fill = FillTest(spec) if elide else None
        return _Shape(batch, view, shape, backwards, self._write, fill)


def find_boxes(batch: Batch, chain: Chain, positions: Sequence[int], *, write: bool) -> BoxPlan:
    """Find the chunks that move in boxes.

    Parameters
    ----------
    batch : Batch
        Its array is plain memory.
    chain : Chain
        A raw one.
    positions : sequence of int
        The chunks to look at. They belong to the batch's store.
    write : bool
        Whether the batch is written.
    """
    array = batch.array
    # Axes are dropped only for index arrays, which are no boxes. A scalar is left to numpy.
    if array.dtype != chain.dtype or batch.drop_axes or (write and array.shape == ()):
        return BoxPlan([], [], [], positions)
    if not write and len(positions) == 1:
        whole_chunk = _find_whole(batch, chain, positions[0])
        if whole_chunk is not None:
            return BoxPlan([whole_chunk], [], [], [])
    shapes = _Shapes(array, chain, write=write)
    empty: list[str] = []
    whole: list[int] = []
    rest: list[int] = []
    chunks = batch.chunks
    shape: _Shape | None = None
    last: ArraySpec | None = None
    axes: tuple[int, ...] = ()
    # This must not take more than 2 to 3 us a chunk: zarr itself takes 7 to 8.
    for position in positions:
        path, spec, chunk_selection, out_selection, _ = chunks[position]
        box = find_box(chunk_selection, out_selection)
        if box is None:
            rest.append(position)
            continue
        starts, targets, counts, dropped = box
        if spec is not last or dropped != axes:
            last, axes = spec, dropped
            shape = shapes.of(spec, dropped)
        if shape is None or len(counts) != len(shape.shape):
            rest.append(position)
            continue
        if write and (counts != shape.shape or any(starts) or not shape.has(targets, counts)):
            rest.append(position)
            continue
        size = shape.size(counts)
        if size < 0:
            (rest if write else whole).append(position)
            continue
        if shape.fill is not None and shape.fill.holds(shape.view, targets, counts):
            empty.append(path.path)
            continue
        found = shape.batch
        if shape.backwards:
            starts.reverse()
            targets.reverse()
            counts.reverse()
        found.positions.append(position)
        found.keys.append(path.path)
        found.nbytes.append(size)
        boxes = found.boxes
        if write:
            boxes += targets
        else:
            boxes += starts
            boxes += targets
            boxes += counts
    return BoxPlan(shapes.batches(), empty, whole, rest)


def _find_whole(batch: Batch, chain: Chain, position: int) -> BoxBatch | None:
    """Return the box of a chunk that is all of the array: what follows would take as long as a map.

    ``None`` for all others.
    """
    array = batch.array
    path, spec, chunk_selection, out_selection, _ = batch.chunks[position]
    shape = array.shape
    if (
        not shape
        or spec.shape != shape
        or not array.flags.c_contiguous
        or chain.order(spec) != "C"
        or find_box(chunk_selection, out_selection) != ([0] * len(shape),) * 2 + (list(shape), ())
    ):
        return None
    boxes = [0] * (2 * len(shape)) + list(shape)
    return BoxBatch(shape, describe(array), [position], [path.path], boxes, [array.nbytes])
