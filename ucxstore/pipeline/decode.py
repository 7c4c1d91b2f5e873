"""Chunks as they are stored: fetched as far as a budget lets them, decoded as others arrive."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import GetResult

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.loops import LoopQueue
from ucxstore.errors import ChunkSizeError
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.buffers import allocate, put
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.decode_frames import SplitChunk, is_large, split_chunks
from ucxstore.pipeline.decode_plan import Group
from ucxstore.pipeline.jobs import Jobs
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import ArraySpec, NDBuffer, scatter_chunk

if TYPE_CHECKING:
    from ucxstore._core import Completions, Connection, Operation

type AnyItem = tuple[Any, ArraySpec, Any, Any, Any]
"""What zarr gives for a chunk, or something like it: its first four are used here."""

type Found = tuple[Bytes, int, int] | None

type Brought = tuple[list[int], list[bool], list[Found]]
"""Positions in zarr's batch, whether all of each chunk is wanted, and their values."""


class Decoding:
    """A read of whole chunks, encoded or raw, by way of memory of ours into one array.

    Parameters
    ----------
    store : UcxStore
    items : sequence
        zarr's batch.
    out : NDBuffer
        Where the selection goes: plain memory, which does not overlap itself.
    chain : Chain
        The array's codecs.
    drop_axes : tuple of int
        As zarr gives them.
    """

    def __init__(
        self,
        store: UcxStore,
        items: Sequence[AnyItem],
        out: NDBuffer,
        chain: Chain,
        drop_axes: tuple[int, ...],
    ) -> None:
        self.missing: dict[int, GetResult] = {}
        self._store = store
        self._items = items
        self._out = out
        self._chain = chain
        self._drop_axes = drop_axes
        self._straight = chain.straight and chain.dtype == out.dtype
        self._jobs = Jobs(store.budget)
        self._scratch: list[Bytes] = []  # those that no thread uses right now
        self._again: list[Group] = []  # chunks whose values were longer than what was fetched
        self._lock = threading.Lock()
        self._received = self._in_place = 0

    async def read(self, connection: "Connection", queue: LoopQueue, groups: list[Group]) -> None:
        """Read all groups.

        When this returns or raises, cancelled too, neither UCX nor a thread writes to the array
        any more. `missing` then has the results of chunks that the store does not hold.
        """
        start = partial(self._start, connection)
        bring = partial(self._bring, connection, queue)
        large = await self._split(connection, queue, groups)
        for chunk in large:
            await self._jobs.run(chunk.frames, chunk.read)
            self._received += chunk.received
        # Those that were written anew in the middle are read as one, which cannot be mixed.
        split = {id(chunk.group) for chunk in large if chunk.is_complete}
        left = [group for group in groups if id(group) not in split]
        while left:
            if self._fetches_alone(connection) and len(left) > self._jobs.threads:
                await self._jobs.pump(left, start, self._work_on)
            else:
                await self._jobs.feed(left, bring, self._decode_all)
            left, self._again = self._again, []
        self._in_place += len(split)
        self._count(sum(len(group.keys) for group in groups))

    def _count(self, chunks: int) -> None:
        self._store.counters.add(
            decode=chunks,
            in_place=self._in_place,
            read=self._received,
            staged=self._received,
        )

    async def _split(
        self, connection: "Connection", queue: LoopQueue, groups: list[Group]
    ) -> list[SplitChunk]:
        """Find chunks that several threads can decode, where there are few chunks for them."""
        chain = self._chain
        wanted: list[tuple[Group, Bytes]] = []
        array = self._out.as_numpy_array()
        if len(groups) <= self._jobs.threads and self._straight and not chain.outer:
            for group in groups:
                _, spec, _, out_selection, _ = self._items[group.positions[0]]
                nbytes = chain.values_nbytes(spec)
                if is_large(group, nbytes, chain.compressor):
                    region = _contiguous(array[(*out_selection, ...)], nbytes, chain.order(spec))
                    if region is not None:
                        wanted.append((group, region))
        if not wanted or chain.compressor is None:
            return []
        return await split_chunks(
            wanted, self._store, connection, queue, chain.compressor, self._jobs
        )

    async def _bring(
        self, connection: "Connection", queue: LoopQueue, group: Group, claim: Claim
    ) -> Brought:
        """Fetch a group; what has to be fetched again by itself is left for later."""
        found = await self._fetch(connection, queue, group.keys, group.ranges)
        return self._sort_out(group, found, claim)

    def _sort_out(self, group: Group, found: list[Found], claim: Claim) -> Brought:
        received = sum(value[0].size for value in found if value is not None)
        claim.resize(received)
        with self._lock:
            self._received += received
        if self._chain.raw:
            self._check_sizes(group, found)
        cut = {i for i, value in enumerate(found) if value is not None and value[0].size < value[1]}
        if not cut:
            return group.positions, group.whole, found
        self._again += [group.single(i, value[1]) for i in cut if (value := found[i])]
        kept = [i for i in range(len(found)) if i not in cut]
        return (
            [group.positions[i] for i in kept],
            [group.whole[i] for i in kept],
            [found[i] for i in kept],
        )

    async def _fetch(
        self,
        connection: "Connection",
        queue: LoopQueue,
        keys: list[str],
        ranges: list[list[NativeRange]],
    ) -> list[Found]:
        full = [self._store.key_prefix + key for key in keys]
        operation = connection.get(full, ranges, self._store.timeout, queue.native)
        found: list[Found] = await queue.complete(operation)
        return found

    def _check_sizes(self, group: Group, found: list[Found]) -> None:
        """Raise if a raw value is not as long as its chunk, all of which was asked for."""
        for key, ((_, start, end),), value in zip(group.keys, group.ranges, found, strict=True):
            size = end - start
            if value is not None and value[1] != size:
                raise ChunkSizeError(
                    f"{self._store.key_prefix + key!r} has {value[1]} bytes, which is not the size "
                    f"of its chunk ({size} bytes)"
                )

    # ---- in threads ----

    def _fetches_alone(self, connection: "Connection") -> bool:
        """Tell whether a request is one native operation, which any thread may start."""
        from ucxstore._native import core  # not before it is needed

        return type(connection) is core.Connection

    def _start(
        self, connection: "Connection", group: Group, completions: "Completions"
    ) -> "Operation":
        keys = [self._store.key_prefix + key for key in group.keys]
        return connection.get(keys, group.ranges, self._store.timeout, completions)

    def _work_on(self, group: Group, found: list[Found], claim: Claim) -> None:
        self._decode_all(self._sort_out(group, found, claim))

    def _decode_all(self, brought: Brought) -> None:
        """Decode one after another."""
        positions, whole, found = brought
        in_place = 0
        for index, position in enumerate(positions):
            if self._jobs.stopping:
                break
            value, found[index] = found[index], None  # so that its memory is free again
            try:
                if value is None:
                    self.missing[position] = self._scatter(None, self._items[position])
                else:
                    in_place += self._decode(value[0], self._items[position], whole[index])
            except Exception as error:
                path, *_ = self._items[position]
                error.add_note(f"while reading {path}")
                raise
        with self._lock:
            self._in_place += in_place

    def _decode(self, data: Bytes, item: AnyItem, whole: bool) -> bool:
        _, spec, _, out_selection, _ = item
        chain = self._chain
        encoded = chain.unwrap(data, spec)
        compressor = chain.compressor
        nbytes = chain.values_nbytes(spec)
        source = encoded.as_numpy_array()
        if compressor is None or not compressor.holds(source, nbytes):
            self._scatter(chain.decode(encoded, spec), item)
            return False
        compressor.check(source)
        place: npt.NDArray[Any] | None = None
        if whole and self._straight:
            order = chain.order(spec)
            array = self._target(item).as_numpy_array()
            place = array[(*out_selection, ...)]
            region = _contiguous(place, nbytes, order)
            if region is not None:
                compressor.decode(source, region)
                return True
        scratch = self._take_scratch(nbytes)
        try:
            values = scratch[:nbytes]
            compressor.decode(source, values)
            if place is not None and place.nbytes == nbytes:  # as below, with less ado
                put(values, place, order, array_nbytes=array.nbytes)
            else:
                self._scatter(chain.finish(values, spec), item)
        finally:
            self._scratch.append(scratch)
        return False

    def _scatter(self, chunk: NDBuffer | None, item: AnyItem) -> GetResult:
        _, spec, chunk_selection, out_selection, _ = item
        return scatter_chunk(
            None if chunk is None else chunk[chunk_selection],
            self._target(item),
            chunk_spec=spec,
            out_selection=out_selection,
            drop_axes=self._drop_axes,
        )

    def _target(self, item: AnyItem) -> NDBuffer:
        """Return the array that a chunk is selected of."""
        return self._out

    def _take_scratch(self, nbytes: int) -> Bytes:
        """Return memory for a chunk. There is never more of it than there are threads."""
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = np.empty(0, np.uint8)
        return scratch if scratch.size >= nbytes else allocate(nbytes)


def _contiguous(region: npt.NDArray[Any], nbytes: int, order: str) -> Bytes | None:
    """Return the bytes of a part of an array, if they lie together in this order."""
    if order == "F":
        region = region.T
    if region.nbytes != nbytes or not region.flags.c_contiguous:
        return None
    return region.reshape(-1).view(np.uint8)
