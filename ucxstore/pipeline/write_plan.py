"""Plan the write of chunks, except of shards: pure, no I/O.

Whole raw chunks are sent straight from the array. All others are encoded, or merged with what is
stored, in groups.
"""

from collections.abc import Sequence
from math import prod

from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import is_plain
from ucxstore.codecs.buffers import chunk_nbytes
from ucxstore.codecs.chain import Chain
from ucxstore.pipeline.batch import NOT_HOST, NOT_PLAIN, Batch, Chunk, Group, Plan
from ucxstore.pipeline.box_plan import find_boxes
from ucxstore.pipeline.geometry.boxes import find_box, runs_around
from ucxstore.pipeline.geometry.costs import are_short
from ucxstore.pipeline.geometry.runs import Runs, all_runs
from ucxstore.pipeline.workers import codec_threads

# Bytes of values, at the most, that one thread encodes and one request then sends: so many that
# the 250 us of a group do not matter. A larger chunk is sent by itself.
GROUP_BYTES = 4 << 20

# A group gets what is left, divided by so many times the number of threads. Large groups come
# first, since they cost least. Smaller ones follow, so that all threads are busy until the end. See
# Polychronopoulos and Kuck, "Guided self-scheduling" (IEEE Transactions on Computers, 1987).
_SHARES = 4
_LEAST_BYTES = 64 << 10


def plan_write(batch: Batch, chain: Chain) -> Plan[Group]:
    """Plan a write.

    Parameters
    ----------
    batch : Batch
    chain : Chain
        The array's codecs.
    """
    plan: Plan[Group] = Plan()
    everything = range(len(batch.chunks))
    if not is_plain(batch.array):
        return plan.leave(everything, NOT_PLAIN)
    if not chain.raw and not batch.is_host:
        return plan.leave(everything, NOT_HOST)
    positions = plan.leave_foreign(batch, everything)
    if chain.raw:
        found = find_boxes(batch, chain, positions, write=True)
        plan.boxes, plan.empty, positions = found.batches, found.empty, found.rest
    plan.groups = _groups(batch, chain, positions)
    return plan


def _groups(batch: Batch, chain: Chain, positions: Sequence[int]) -> list[Group]:
    """Put chunks into groups. Those that are written in part have groups of their own."""
    groups: list[Group] = []
    unfinished: dict[bool, Group] = {}
    most: dict[bool, int] = {}
    last: ArraySpec | None = None
    nbytes = limit = 0
    wanted: list[NativeRange] = []
    shares = _SHARES * codec_threads()[1]
    for index, position in enumerate(positions):
        chunk = batch.chunks[position]
        path, spec, _, _, is_complete = chunk
        is_part = not is_complete
        if spec is not last:
            last, nbytes = spec, chunk_nbytes(spec)
            limit = chain.limit(spec, nbytes)
            wanted = [(1, 0, limit)]
        group = unfinished.get(is_part)
        if group is None or group.nbytes + nbytes > most[is_part]:
            rest = (len(positions) - index) * nbytes
            most[is_part] = min(GROUP_BYTES, max(_LEAST_BYTES, rest // shares))
            group = unfinished[is_part] = Group(is_part=is_part)
            groups.append(group)
        group.positions.append(position)
        group.keys.append(path.path)
        group.sizes.append(nbytes)
        group.nbytes += nbytes
        group.limit += limit
        if is_part and chain.raw:
            group.runs.append(_not_written(chunk, chain, nbytes))
        elif is_part:
            group.ranges.append(wanted)
            group.limit += limit
    return groups


def _not_written(chunk: Chunk, chain: Chain, nbytes: int) -> list[Runs]:
    """Return the runs to read of a raw chunk: what is not written, or all if that is less work."""
    _, spec, chunk_selection, out_selection, _ = chunk
    box = find_box(chunk_selection, out_selection)
    if box is None:
        return [all_runs(nbytes)]
    starts, _, counts, _ = box
    shape = list(spec.shape) or [1]
    if chain.order(spec) == "F":  # the same bytes as a chunk in C order with its axes reversed
        shape, starts, counts = shape[::-1], starts[::-1], counts[::-1]
    around = runs_around(shape, starts, counts, chain.dtype.itemsize)
    if any(are_short(run * prod(counts), prod(counts)) for _, run, counts, _, _ in around):
        return [all_runs(nbytes)]
    return around
