"""A batch of chunks as zarr passes it, and the plan for it: values, no I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import Any, Self

import numpy.typing as npt
from zarr.abc.codec import GetResult
from zarr.storage import StorePath

from ucxstore.base.zarr_compat import ArraySpec, NDBuffer, cpu, scatter_chunk
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import Layout, Memory
from ucxstore.client.requests import Found, Lent, Request, read_parts
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.geometry.runs import Runs, all_runs

type Chunk = tuple[Any, ArraySpec, Any, Any, bool]
"""What zarr passes for a chunk: its StorePath, its spec, the selections in the chunk and in the
array, and whether it is complete. To zarr, a chunk at the array's edge is complete if all of it
that lies in the array is selected.
"""

# Byte ranges of one key in a request: more than half of what a server takes.
MOST_RANGES = 1 << 13

# Reasons to leave chunks to zarr.
NOT_PLAIN = "the array is not a plain numpy array, or overlaps itself"
NOT_OURS = "it belongs to another store"
NOT_HOST = "its buffers are not in the memory of this machine"


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks that are read or written together.

    Parameters
    ----------
    chunks : sequence of Chunk
    values : NDBuffer
        The array that is read into or written.
    drop_axes : tuple of int
        As zarr gives them.
    store : object
        The store that the chunks must belong to. Chunks of others are left to zarr.
    """

    chunks: Sequence[Chunk]
    values: NDBuffer
    drop_axes: tuple[int, ...] = ()
    store: object = None

    @property
    def array(self) -> npt.NDArray[Any]:
        """The array. It may be another array-like than numpy's."""
        return self.values.as_ndarray_like()  # type: ignore[return-value]

    @property
    def is_host(self) -> bool:
        """Whether buffers of the batch are in host memory."""
        _, spec, *_ = self.chunks[0]
        return issubclass(spec.prototype.buffer, cpu.Buffer)

    def scatter(self, chunk: NDBuffer | None, position: int, out: NDBuffer) -> GetResult:
        """Put the wanted part of a chunk into an array; the fill value for a missing chunk."""
        _, spec, chunk_selection, out_selection, _ = self.chunks[position]
        return scatter_chunk(
            None if chunk is None else chunk[chunk_selection],
            out,
            chunk_spec=spec,
            out_selection=out_selection,
            drop_axes=self.drop_axes,
        )

    def key(self, position: int) -> str:
        """Return the key of a chunk, without the store's prefix."""
        path: StorePath = self.chunks[position][0]
        return path.path


@dataclass(frozen=True, slots=True)
class BoxBatch:
    """Boxes of raw chunks of one shape: what one native call moves.

    Parameters
    ----------
    chunk_shape : tuple of int
        In items, of at least one axis.
    layout : tuple
        The user's array, with an axis of length 1 and stride 0 for each that a selection dropped.
    positions : list of int
        The chunks' positions in zarr's batch.
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
class RunBatch:
    """Runs of values: what one native call reads.

    Parameters
    ----------
    positions : list of int
        The chunks' positions in zarr's batch; empty for shards.
    keys : list of str
        Without the store's prefix.
    sources, targets : list of tuple
        What is read of each value, and where in the array it goes.
    sizes : list of int
        The bytes that each value must have; `ANY_SIZE` for any.
    versions : list of int
        The version that each must have; `ANY_VERSION` for any.
    nbytes : list of int
        How many bytes move for each key.
    """

    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sources: list[Runs] = field(default_factory=list)
    targets: list[Runs] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)

    def request(self, access: ChunkAccess, out: Memory) -> Request[list[Any]]:
        """Return the request that reads all of them into memory."""
        keys = access.full_keys(self.keys)
        return read_parts(
            keys, self.sources, self.targets, out, self.sizes, self.versions, access.recipe
        )


@dataclass(slots=True)
class Group:
    """Chunks that are fetched, worked on by one thread, or sent together.

    Parameters
    ----------
    positions : list of int
        The chunks' positions in the batch.
    keys : list of str
        Their keys, without the store's prefix. Inner chunks of a shard share one.
    nbytes : int
        Bytes of their values.
    limit : int
        Bytes of buffers that they need at the most: see `Chain.limit`.
    ranges : list of list
        The byte ranges to fetch of each key: as many bytes as a stored chunk can have. A value that
        is longer, since its codecs let it grow or it is no such chunk, is fetched again by itself.
    whole : list of bool
        For a read, whether all of each chunk is wanted, as one box of the array.
    versions : list of int or None
        For shards, the version that each value must have.
    is_part : bool
        For a write, whether the chunks are written in part, so that they are read first.
    sizes : list of int
        For a write, bytes of each chunk's values.
    runs : list of list
        For raw chunks that are written in part, what is read of each.
    """

    positions: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    nbytes: int = 0
    limit: int = 0
    ranges: list[list[NativeRange]] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    versions: list[int] | None = None
    is_part: bool = False
    sizes: list[int] = field(default_factory=list)
    runs: list[list[Runs]] = field(default_factory=list)

    def add_ranges(self, key: str, version: int, ranges: Iterable[NativeRange]) -> None:
        """Add byte ranges of a shard to fetch, if it has this version."""
        assert self.versions is not None
        # The server looks up a key, and may open a file, once for all ranges that it comes with.
        for some in batched(ranges, MOST_RANGES):
            self.keys.append(key)
            self.versions.append(version)
            self.ranges.append(list(some))

    def alone(self, index: int, limit: int) -> Self:
        """Return a group of one of the chunks, which fetches a whole value of `limit` bytes."""
        nbytes = self.sizes[index] if self.sizes else limit
        return type(self)(
            positions=[self.positions[index]],
            keys=[self.keys[index]],
            nbytes=nbytes,
            limit=limit,
            ranges=[[]],
            whole=self.whole[index : index + 1],
            is_part=self.is_part,
            sizes=[nbytes],
            runs=[[all_runs(nbytes)]],
        )


def split_ranges(value: Found | Lent | None, ranges: Sequence[NativeRange]) -> list[Bytes] | None:
    """Return what was fetched of a shard, range by range; ``None`` if its version has changed."""
    if value is None or value[0] is None:
        return None
    data, end = value[0], 0
    found = []
    for _, start, stop in ranges:
        begin, end = end, end + stop - start
        found.append(data[begin:end])
    return found


@dataclass(slots=True)
class Plan[G]:
    """The plan of a read or write. Each chunk of the batch is in one of the lists.

    Parameters
    ----------
    boxes : list of BoxBatch
        Boxes that move straight, in one native call for each entry.
    runs : RunBatch
        Runs that are read straight, in one native call.
    empty : list of str
        Keys of chunks that hold only their fill value, which are deleted (writes only).
    groups : list
        Groups of chunks, or shards, that are decoded or encoded here.
    left : list of int
        Positions of chunks that are left to zarr.
    reason : str
        Why the first of them is left; empty if there are none.
    """

    boxes: list[BoxBatch] = field(default_factory=list)
    runs: RunBatch = field(default_factory=RunBatch)
    empty: list[str] = field(default_factory=list)
    groups: list[G] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    reason: str = ""

    def leave(self, positions: Iterable[int], reason: str) -> Self:
        """Leave chunks to the pipeline that zarr would have used."""
        before = len(self.left)
        self.left += positions
        if len(self.left) > before:
            self.reason = self.reason or reason
        return self

    def leave_foreign(self, batch: Batch, positions: Sequence[int]) -> Sequence[int]:
        """Leave chunks of other stores to zarr, and return the positions of the rest."""
        chunks, store = batch.chunks, batch.store
        ours = [
            position
            for position in positions
            if type(path := chunks[position][0]) is StorePath and path.store is store
        ]
        if len(ours) < len(positions):
            self.leave(sorted(set(positions).difference(ours)), NOT_OURS)
        return ours
