"""Which chunks of a batch are fetched as they are stored, and decoded here: pure, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from zarr.storage import StorePath

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import may_receive
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.geometry.boxes import find_box
from ucxstore.pipeline.plan import NOT_OURS, NOT_PLAIN, Item, Plan
from ucxstore.zarr_compat import ArraySpec, V2Codec

# Bytes of values, at the most, that are fetched by one request and then decoded by one thread:
# large enough for some 50 us a request not to matter. A larger chunk has a request of its own.
GROUP_BYTES = 4 << 20

# Small reads go in smaller groups, for all threads to be busy soon and until the end; but not in
# groups so small that decoding them takes less time than asking for them.
_GROUPS = 32
_LEAST_BYTES = 256 << 10

# What compressors add to data that they cannot compress: lz4 1 in 255 and some bytes, the others
# less. Checksums and headers come to a few bytes each.
_GROWTH = 64
_HEADERS = 4096

_WHOLE: list[NativeRange] = []


@dataclass(slots=True)
class Group:
    """Chunks that are fetched together.

    Parameters
    ----------
    positions : list of int
        Where they stand in zarr's batch.
    keys : list of str
        Their keys, without the store's prefix.
    whole : list of bool
        Whether all of a chunk is wanted, as one box of the array.
    ranges : list of list
        What is fetched of each: not more than a chunk can need. A longer value has other bytes
        than such a chunk, or codecs that let it grow, and is fetched again by itself.
    limit : int
        Bytes that all of them can have at the most.
    """

    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    ranges: list[list[NativeRange]] = field(default_factory=list)
    limit: int = 0

    def single(self, index: int, nbytes: int) -> "Group":
        """Return a group of one of its chunks, for all of a value of so many bytes."""
        return Group(
            [self.positions[index]], [self.keys[index]], [self.whole[index]], [_WHOLE], nbytes
        )


def plan_decode(
    items: Sequence[Item], out: object, chain: Chain, store: object
) -> tuple[Plan, list[Group]]:
    """Plan the read of encoded chunks.

    Parameters
    ----------
    items : sequence
        zarr's batch.
    out : array_like
        Where the selection goes.
    chain : Chain
        The array's codecs.
    store : object
        The store that the chunks must belong to.

    Returns
    -------
    Plan
        With nothing but what is left to the other pipeline.
    list of Group
    """
    if not may_receive(out):
        return Plan.of_none(items, NOT_PLAIN), []
    plan = Plan()
    groups: list[Group] = []
    group = Group()
    last: ArraySpec | None = None
    shape: list[int] = []
    size = limit = nbytes = most = 0
    wanted: list[NativeRange] = []
    for position, (path, spec, chunk_selection, out_selection, _) in enumerate(items):
        if type(path) is not StorePath or path.store is not store:
            plan.leave(position, NOT_OURS)
            continue
        if spec is not last:
            last, shape = spec, list(spec.shape) or [1]
            size = prod(shape) * spec.dtype.to_native_dtype().itemsize
            limit = limit_of(chain, spec, size)
            wanted = [(1, 0, limit)]
        most = most or group_bytes(len(items) * size)
        if group.keys and nbytes + size > most:
            groups.append(group)
            group, nbytes = Group(), 0
        box = find_box(chunk_selection, out_selection)
        nbytes += size
        group.positions.append(position)
        group.keys.append(path.path)
        group.whole.append(box is not None and box[2] == shape and not any(box[0]))
        group.ranges.append(wanted)
        group.limit += limit
    if group.keys:
        groups.append(group)
    return plan, groups


def group_bytes(total: int) -> int:
    """Return how many bytes of values go into a group where there are so many in all."""
    return min(GROUP_BYTES, max(_LEAST_BYTES, total // _GROUPS))


def limit_of(chain: Chain, spec: ArraySpec, size: int) -> int:
    """Return how many bytes a chunk's value has at the most, as far as its codecs are known."""
    if chain.raw:
        return size
    if type(chain.serializer) is V2Codec and chain.serializer.filters:
        size *= 2  # to other items, or to text
    else:
        size = max(size, chain.values_nbytes(spec))
    return size + size // _GROWTH + _HEADERS
