"""Gather what to request of shards whose indexes are known: pure, no I/O."""

from collections.abc import Iterable
from itertools import groupby, repeat
from operator import itemgetter

from ucxstore.base.zarr_compat import NDBuffer, fill_value_or_default
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import describe
from ucxstore.client.requests import ANY_SIZE
from ucxstore.pipeline.batch import Chunk, Group, RunBatch
from ucxstore.pipeline.geometry.runs import shifted
from ucxstore.pipeline.indexes.index import Ints, ShardIndex, Sharding
from ucxstore.pipeline.read_plan import group_bytes
from ucxstore.pipeline.shards.boxes import Boxes, BoxMoves, PointMoves, Points
from ucxstore.pipeline.shards.read_plan import ShardRead
from ucxstore.pipeline.shards.shard import InnerChunk


class Gathering:
    """Runs to move and inner chunks to decode, of some shards.

    Parameters
    ----------
    out : NDBuffer
        The user's array.
    prefix : str
        The store's prefix, where inner chunks are read as servers decode them. It is within their
        names.

    Attributes
    ----------
    out : ndarray
        The user's array. The targets of `runs` are counted from its first item.
    runs : RunBatch
        The runs that move straight.
    owners : list
        The objects that hold the memory of the targets.
    chunks, targets : list
        Inner chunks that are decoded, as `Batch` has chunks, and the array that each is read into.
    shards : dict of str
        The keys of shards, by the names of their inner chunks as servers decode these.
    """

    def __init__(self, out: NDBuffer, prefix: str = "") -> None:
        self.shards: dict[str, str] = {}
        self.out = out.as_numpy_array()
        self.runs = RunBatch()
        self.owners: list[object] = [self.out]
        self.chunks: list[Chunk] = []
        self.targets: list[NDBuffer] = []
        self._ranges: list[tuple[str, NativeRange]] = []
        self._whole: list[bool] = []
        self._versions: dict[str, int] = {}
        self._address, *_ = describe(self.out)
        self._prefix = prefix

    def add(self, shard: ShardRead, index: ShardIndex | None, target: NDBuffer) -> None:
        """Add what is wanted of a shard, and fill the parts that it does not hold.

        Raises
        ------
        ShardError, ChunkSizeError
            If the index of an inner chunk that is wanted is wrong.
        """
        if index is None or not shard.holds_any(index):
            target[...] = fill_value_or_default(shard.sharding.spec)
            return
        self._versions[shard.key] = index.version
        for moving in shard.wanted.direct:
            self._move(shard, index, moving, target)
        for inner in shard.wanted.decode:
            self._decode(shard, index, inner, target)

    def groups(self) -> list[Group]:
        """Return the inner chunks to decode in groups."""
        if not self.chunks:
            return []
        inner: InnerChunk = self.chunks[0][0]
        size = inner.sharding.chunk_nbytes
        step = max(1, group_bytes(len(self.chunks) * size) // size)
        groups = []
        for begin in range(0, len(self.chunks), step):
            end = min(begin + step, len(self.chunks))
            group = Group(list(range(begin, end)), whole=self._whole[begin:end], versions=[])
            for key, pairs in groupby(self._ranges[begin:end], itemgetter(0)):
                group.add_ranges(key, self._versions[key], (wanted for _, wanted in pairs))
            group.limit = sum(stop - start for _, (_, start, stop) in self._ranges[begin:end])
            groups.append(group)
        return groups

    def _move(
        self, shard: ShardRead, index: ShardIndex, moving: BoxMoves | PointMoves, target: NDBuffer
    ) -> None:
        array = target.as_numpy_array()
        address, *_ = describe(array)
        self.owners.append(array)
        starts, lengths = index.find(moving.chunks.chunks, shard.sharding, shard.path)
        held = starts >= 0
        if not held.all():
            _fill(target, moving.chunks.only(~held), shard.sharding)
        if shard.sharding.recipe is None:
            moves = moving.moves(starts, held)
            keys: Iterable[str] = repeat(shard.key)
        else:
            moves = moving.each_from_its_start(held)
            keys = self._names(shard, starts[held], lengths[held])
        for move, key in zip(moves, keys, strict=False):
            self.runs.keys.append(key)
            self.runs.sources.append(move.source)
            self.runs.targets.append(shifted(move.target, address - self._address))
            self.runs.sizes.append(ANY_SIZE)
            self.runs.versions.append(index.version)
            self.runs.nbytes.append(move.nbytes)

    def _decode(
        self, shard: ShardRead, index: ShardIndex, inner: Boxes | Points, target: NDBuffer
    ) -> None:
        path, sharding = shard.path, shard.sharding
        starts, lengths = index.find(inner.chunks, sharding, path)
        held = starts >= 0
        if not held.all():
            _fill(target, inner.only(~held), sharding)
            inner, starts, lengths = inner.only(held), starts[held], lengths[held]
        ranges: Iterable[tuple[str, NativeRange]]
        if sharding.recipe is None:
            ends = (starts + lengths).tolist()
            pairs = zip(starts.tolist(), ends, strict=True)
            ranges = ((shard.key, (1, start, end)) for start, end in pairs)
        else:
            names = self._names(shard, starts, lengths)
            ranges = ((name, (1, 0, sharding.chunk_nbytes)) for name in names)
        for (number, chunk_selection, out_selection), wanted in zip(inner, ranges, strict=True):
            name = InnerChunk(path, sharding, number)
            chunk = (name, sharding.spec, chunk_selection, out_selection, inner.whole)
            self.chunks.append(chunk)
            self.targets.append(target)
            self._ranges.append(wanted)
            self._whole.append(inner.whole)

    def _names(self, shard: ShardRead, starts: Ints, lengths: Ints) -> list[str]:
        """Return the names of inner chunks as servers decode them."""
        names = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            name = f"{start}-{start + length}/{self._prefix}{shard.key}"
            self.shards[name] = shard.key
            self._versions[name] = self._versions[shard.key]
            names.append(name)
        return names


def held_ranges(
    index: ShardIndex, chunks: Ints, sharding: Sharding, path: object
) -> tuple[list[int], list[NativeRange]]:
    """Return the inner chunks that a shard holds, and their byte ranges: see `ShardIndex.find`."""
    starts, lengths = index.find(chunks, sharding, path)
    held = starts >= 0
    ends = (starts + lengths)[held].tolist()
    ranges = [(1, start, end) for start, end in zip(starts[held].tolist(), ends, strict=True)]
    return chunks[held].tolist(), ranges


def _fill(target: NDBuffer, inner: Boxes | Points, sharding: Sharding) -> None:
    fill = fill_value_or_default(sharding.spec)
    for _, _, out_selection in inner:
        target[out_selection] = fill
