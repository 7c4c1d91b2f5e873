"""Plan the read of chunks, except of shards: pure, no I/O.

Boxes and runs of raw chunks move straight into the array. Encoded chunks, and raw ones that are
less work to fetch whole, are fetched as they are stored, in groups.
"""

from collections.abc import Sequence
from math import prod

from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import may_receive
from ucxstore.client.requests import ANY_VERSION
from ucxstore.codecs.buffers import chunk_nbytes
from ucxstore.codecs.chain import Chain
from ucxstore.pipeline.batch import NOT_HOST, NOT_PLAIN, Batch, Chunk, Group, Plan
from ucxstore.pipeline.box_plan import find_boxes
from ucxstore.pipeline.geometry.axes import Grid, find_axes, grid_of
from ucxstore.pipeline.geometry.boxes import find_box
from ucxstore.pipeline.geometry.points import find_points
from ucxstore.pipeline.geometry.runs import Move, find_move

# Chunks from which on it is faster to look at the points of all of them together.
_MANY_CHUNKS = 4

# Bytes of values, at the most, that one request fetches and one thread then decodes: so many that
# the 50 us of a request do not matter. A larger chunk has a request of its own.
GROUP_BYTES = 4 << 20

# Small reads go in smaller groups, so that all threads are busy soon and until the end. Still
# smaller ones would take more time to request than to decode.
_GROUPS = 32
_LEAST_BYTES = 256 << 10


def plan_read(batch: Batch, chain: Chain, positions: Sequence[int]) -> Plan[Group]:
    """Plan the read of some chunks of a batch.

    Parameters
    ----------
    batch : Batch
    chain : Chain
        The array's codecs.
    positions : sequence of int
        Which chunks of the batch to plan.
    """
    plan: Plan[Group] = Plan()
    if not may_receive(batch.array):
        return plan.leave(positions, NOT_PLAIN)
    whole = plan.leave_foreign(batch, positions)
    if chain.raw:
        found = find_boxes(batch, chain, whole, write=False)
        plan.boxes, whole = found.batches, found.whole
        if found.rest:
            whole += _find_runs(plan, batch, chain, found.rest)
    if whole and not batch.is_host:
        return plan.leave(whole, NOT_HOST)
    plan.groups = _groups(batch, chain, whole)
    return plan


def _find_runs(
    plan: Plan[Group], batch: Batch, chain: Chain, positions: Sequence[int]
) -> Sequence[int]:
    """Plan what moves in runs; return the positions of chunks that are fetched whole."""
    out = batch.array
    if out.dtype != chain.dtype:
        return positions
    itemsize = chain.dtype.itemsize
    array = Grid(out.shape, out.strides)
    found, whole = plan.runs, []
    spec: ArraySpec | None = None
    chunk, size = array, 0
    moves: Sequence[Move | None] = [None] * len(positions)
    if not batch.drop_axes:
        moves = _points([batch.chunks[position] for position in positions], chain, array) or moves
    for position, move in zip(positions, moves, strict=True):
        path, its_spec, chunk_selection, out_selection, _ = batch.chunks[position]
        if its_spec is not spec:
            spec = its_spec
            chunk = grid_of(spec.shape, itemsize, chain.order(spec))
            size = itemsize * prod(spec.shape)
        if move is None:
            axes = find_axes(chunk_selection, out_selection, batch.drop_axes, chunk, array)
            move = None if axes is None else find_move(axes, itemsize, size)
        if move is None:
            whole.append(position)
            continue
        found.positions.append(position)
        found.keys.append(path.path)
        found.sources.append(move.source)
        found.targets.append(move.target)
        found.sizes.append(size)
        found.versions.append(ANY_VERSION)
        found.nbytes.append(move.nbytes)
    return whole


def _points(chunks: Sequence[Chunk], chain: Chain, array: Grid) -> Sequence[Move] | None:
    """Return a move for each chunk if all have one shape and only a few points are wanted."""
    _, spec, *_ = chunks[0]
    if len(chunks) < _MANY_CHUNKS or any(chunk[1] is not spec for chunk in chunks):
        return None
    itemsize = chain.dtype.itemsize
    grid = grid_of(spec.shape, itemsize, chain.order(spec))
    selections = [(chunk[2], chunk[3]) for chunk in chunks]
    return find_points(selections, grid, array, itemsize, itemsize * prod(spec.shape))


def _groups(batch: Batch, chain: Chain, positions: Sequence[int]) -> list[Group]:
    """Put chunks that are fetched whole into groups."""
    groups: list[Group] = []
    last: ArraySpec | None = None
    shape: list[int] = []
    nbytes = limit = most = 0
    wanted: list[NativeRange] = []
    for position in positions:
        path, spec, chunk_selection, out_selection, _ = batch.chunks[position]
        if spec is not last:
            last, shape = spec, list(spec.shape) or [1]
            nbytes = chunk_nbytes(spec)
            limit = chain.limit(spec, nbytes)
            wanted = [(1, 0, limit)]
        most = most or group_bytes(len(positions) * nbytes)
        if not groups or groups[-1].nbytes + nbytes > most:
            groups.append(Group())
        group = groups[-1]
        box = find_box(chunk_selection, out_selection)
        group.positions.append(position)
        group.keys.append(path.path)
        group.whole.append(box is not None and box[2] == shape and not any(box[0]))
        group.ranges.append(wanted)
        group.nbytes += nbytes
        group.limit += limit
    return groups


def group_bytes(total: int) -> int:
    """Return how many bytes of values go into a group of a read of `total` bytes."""
    return min(GROUP_BYTES, max(_LEAST_BYTES, total // _GROUPS))
