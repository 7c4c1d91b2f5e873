"""Which chunks of a write are encoded here, or put together from parts: pure, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Self

from zarr.storage import StorePath

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import is_plain
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.decode_plan import limit_of
from ucxstore.pipeline.geometry.boxes import find_box
from ucxstore.pipeline.geometry.holes import Part, holes, whole
from ucxstore.pipeline.merge import spec_nbytes
from ucxstore.pipeline.plan import MANY_ROWS, NOT_OURS, NOT_PLAIN, SHORT_ROW_BYTES, Item, Plan
from ucxstore.pipeline.raw import RawChunks
from ucxstore.pipeline.workers import codec_threads
from ucxstore.zarr_compat import ArraySpec

# Bytes of values, at the most, that one thread encodes and one request sends then: large enough for
# some 250 us a group not to matter. A larger chunk is sent by itself.
GROUP_BYTES = 4 << 20

# What is left is shared out to each thread so many times over: large groups first, which cost least
# for what is in them, and then ever smaller ones, for all threads to be busy until the end. See
# Polychronopoulos and Kuck, "Guided self-scheduling" (IEEE Transactions on Computers, 1987).
_SHARES = 4
_LEAST_BYTES = 64 << 10


@dataclass(slots=True)
class Group:
    """Chunks that are encoded by one thread, and sent together.

    Parameters
    ----------
    is_part : bool
        Whether they are written in part, so that what is stored of them is read first.
    positions : list of int
        Where they stand in zarr's batch.
    keys : list of str
        Their keys, without the store's prefix.
    sizes : list of int
        Bytes of each, as the array has it.
    nbytes : int
        Bytes of all of them.
    limit : int
        Bytes of buffers that they need at the most, as far as their codecs are known.
    ranges : list of list
        What is fetched of each that is encoded. A longer value is fetched again by itself.
    parts : list of list
        What is read of each that is raw.
    """

    is_part: bool
    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    nbytes: int = 0
    limit: int = 0
    ranges: list[list[NativeRange]] = field(default_factory=list)
    parts: list[list[Part]] = field(default_factory=list)

    def alone(self, index: int, limit: int) -> Self:
        """Return a group of one of the chunks, all of which is read."""
        nbytes = self.sizes[index]
        return type(self)(
            self.is_part,
            [self.positions[index]],
            [self.keys[index]],
            [nbytes],
            nbytes,
            limit,
            [[]],
            [[whole(nbytes)]],
        )


def plan_encode(
    items: Sequence[Item],
    plan: Plan,
    value: object,
    chain: Chain | None,
    raw: RawChunks | None,
    store: object,
) -> list[Group]:
    """Take from a plan what is left to the other pipeline, but can be done here.

    Parameters
    ----------
    items : sequence
        zarr's batch.
    plan : Plan
        Its fallback keeps what cannot be done here.
    value : array_like
        What is written.
    chain : Chain or None
        The array's codecs, if they are known and have something to do.
    raw : RawChunks or None
        How chunks are stored, if they are raw.
    store : object
        The store that the chunks must belong to.
    """
    if chain is None and raw is None:
        return []
    if not is_plain(value):
        plan.reason = NOT_PLAIN
        return []
    left, plan.fallback, plan.reason = plan.fallback, [], ""
    groups: list[Group] = []
    unfinished: dict[bool, Group] = {}
    last: ArraySpec | None = None
    size = limit = 0
    most: dict[bool, int] = {}
    shares = _SHARES * codec_threads()[1]
    wanted: list[NativeRange] = []
    for index, position in enumerate(left):
        path, spec, chunk_selection, out_selection, is_complete = items[position]
        if type(path) is not StorePath or path.store is not store:
            plan.leave(position, NOT_OURS)
            continue
        if spec is not last:
            last, size = spec, spec_nbytes(spec)
            limit = size if chain is None else limit_of(chain, spec, size)
            wanted = [(1, 0, limit)]
        group = unfinished.get(not is_complete)
        if group is None or group.nbytes + size > most[not is_complete]:
            rest = (len(left) - index) * size
            most[not is_complete] = min(GROUP_BYTES, max(_LEAST_BYTES, rest // shares))
            group = unfinished[not is_complete] = Group(not is_complete)
            groups.append(group)
        group.positions.append(position)
        group.keys.append(path.path)
        group.sizes.append(size)
        group.nbytes += size
        group.limit += limit
        if group.is_part and chain is not None:
            group.ranges.append(wanted)
            group.limit += limit
        elif group.is_part and raw is not None:
            group.parts.append(_missing(spec, raw, size, chunk_selection, out_selection))
    return groups


def _missing(
    spec: ArraySpec, raw: RawChunks, nbytes: int, chunk_selection: object, out_selection: object
) -> list[Part]:
    """Return what is to be read of a raw chunk: what is not written, if that is a few boxes."""
    box = find_box(chunk_selection, out_selection)
    if box is None:
        return [whole(nbytes)]
    starts, _, counts, _ = box
    shape = list(spec.shape) or [1]
    if raw.order == "F":  # a chunk in C order with its axes the other way round
        shape, starts, counts = shape[::-1], starts[::-1], counts[::-1]
    parts = holes(shape, starts, counts, raw.dtype.itemsize)
    if any(run < SHORT_ROW_BYTES and prod(repeats) > MANY_ROWS for _, run, repeats, _, _ in parts):
        return [whole(nbytes)]
    return parts
