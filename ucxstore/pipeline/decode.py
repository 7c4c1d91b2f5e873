"""Read chunks as they are stored: fetch them within a budget, decode some while others arrive."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import GetResult

from ucxstore.base import process
from ucxstore.base.errors import ChunkSizeError
from ucxstore.base.zarr_compat import NDBuffer
from ucxstore.client.requests import Found, Lent, Request, borrow, get
from ucxstore.codecs.buffers import allocate, contiguous_bytes
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.compressors import Bytes, is_blosc
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, Group, split_ranges
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.decode_frames import FrameReader, SplitChunk, is_large
from ucxstore.pipeline.placing import put
from ucxstore.pipeline.scheduler import Scheduler

type _Values = list[Found | Lent | None]

type Arrived = tuple[int, bool, Bytes | None]
"""A chunk's position, whether all of it is wanted, and its bytes; ``None`` if it is missing."""


class Decoding:
    """A read of whole chunks, encoded or raw, into an array.

    Parameters
    ----------
    access, batch, chain
        The array of the batch is plain memory, which does not overlap itself.
    targets : sequence of NDBuffer, optional
        For inner chunks of shards: the array that each is read into.

    Attributes
    ----------
    missing : dict
        The results of chunks that the store does not hold.
    changed : set of str
        Keys of shards that have been replaced, so that what was read of them must not be used.
    """

    def __init__(
        self,
        access: ChunkAccess,
        batch: Batch,
        chain: Chain,
        targets: Sequence[NDBuffer] | None = None,
    ) -> None:
        self.missing: dict[int, GetResult] = {}
        self.changed: set[str] = set()
        self._access = access
        self._batch = batch
        self._chain = chain
        self._targets = targets
        self._straight = chain.straight and chain.dtype == batch.values.dtype
        self._scheduler = Scheduler(access.budget)
        self._scratch: list[Bytes] = []  # memory that no thread uses right now
        self._again: list[Group] = []  # what must be fetched again: see _work_on, _take_chunks
        self._borrow = True
        self._lock = process.lock()
        self._received = self._in_place = 0

    async def read(self, groups: list[Group]) -> None:
        """Read all groups.

        When this returns or raises, even if it is cancelled, neither UCX nor a thread writes to
        the array any more.
        """
        # A chunk that was replaced between its frames is read again, whole.
        split = {id(chunk.group) for chunk in await self._read_frames(groups) if chunk.is_complete}
        left = [group for group in groups if id(group) not in split]
        while left:
            await self._scheduler.fetch(self._access.channel, left, self._request, self._work_on)
            left, self._again = self._again, []
        chunks = 0 if self._targets else sum(len(group.keys) for group in groups)
        self._access.counters.add(
            decode=0 if self._access.recipe else chunks,
            decoded=chunks if self._access.recipe else 0,
            decode_in_place=self._in_place + len(split),
            bytes_read=self._received,
            staged_bytes=self._received,
        )

    async def _read_frames(self, groups: list[Group]) -> list[SplitChunk]:
        """Read large chunks that several threads can decode, if there are few chunks."""
        chain, compressor = self._chain, self._chain.compressor
        is_alone = self._straight and not chain.outer and not self._targets
        few = len(groups) <= self._scheduler.threads
        if compressor is None or not (is_blosc(compressor) and is_alone and few):
            return []
        wanted: list[tuple[Group, Bytes]] = []
        for group in groups:
            _, spec, _, out_selection, _ = self._batch.chunks[group.positions[0]]
            nbytes = chain.values_nbytes(spec)
            if is_large(group, nbytes):
                region = self._batch.array[(*out_selection, ...)]
                values = contiguous_bytes(region, nbytes, chain.order(spec))
                if values is not None:
                    wanted.append((group, values))
        if not wanted:
            return []
        reader = FrameReader(self._access, self._scheduler, compressor)
        chunks = await reader.split(wanted)
        for chunk in chunks:
            await reader.read(chunk)
        self._received += reader.received
        return chunks

    # ---- in threads ----

    def _request(self, group: Group) -> Request[_Values]:
        keys = self._access.full_keys(group.keys)
        read = borrow if self._borrow else get
        return cast(Request[_Values], read(keys, group.ranges, group.versions, self._access.recipe))

    def _work_on(self, group: Group, found: _Values, claim: Claim) -> None:
        """Decode what was fetched of a group, one chunk after another.

        If the server has taken back what it had lent meanwhile, the bytes may have been others.
        Then the group is read again, by copies.
        """
        received = sum(
            value[0].size for value in found if value is not None and value[0] is not None
        )
        claim.resize(received)
        with self._lock:
            self._received += received
        loans = [loan for value in found if value is not None for loan in value[3:]]
        try:
            self._decode_all(group, found)
        except Exception:
            if not any(loan is not None and loan.lost for loan in loans):
                raise
        if any(loan is not None and loan.lost for loan in loans):
            self._borrow = False
            for position in group.positions:
                self.missing.pop(position, None)
            self._again.append(group)

    def _decode_all(self, group: Group, found: _Values) -> None:
        take = self._take_chunks if group.versions is None else self._take_inner_chunks
        arrived = take(group, found)[::-1]
        found.clear()
        in_place = 0
        while arrived and not self._scheduler.stopping:
            position, whole, data = arrived.pop()  # frees the memory of the one before
            try:
                if data is None:
                    out = self._target(position)
                    self.missing[position] = self._batch.scatter(None, position, out)
                else:
                    in_place += self._decode(data, position, whole)
            except Exception as error:
                path, *_ = self._batch.chunks[position]
                error.add_note(f"while reading {path}")
                raise
        with self._lock:
            self._in_place += in_place

    def _take_chunks(self, group: Group, found: _Values) -> list[Arrived]:
        """Return chunks with their bytes. Those that were cut off are noted to be read again."""
        if self._chain.raw:
            self._check_sizes(group, found)
        arrived: list[Arrived] = []
        for index, value in enumerate(found):
            if value is not None and value[0].size < value[1]:
                self._again.append(group.alone(index, value[1]))
                continue
            data = None if value is None else value[0]
            arrived.append((group.positions[index], group.whole[index], data))
        return arrived

    def _take_inner_chunks(self, group: Group, found: _Values) -> list[Arrived]:
        """Return inner chunks with their bytes; note shards that have been replaced."""
        arrived: list[Arrived] = []
        chunks = zip(group.positions, group.whole, strict=True)
        for key, ranges, value in zip(group.keys, group.ranges, found, strict=True):
            its_chunks = list(islice(chunks, len(ranges)))
            values = split_ranges(value, ranges)
            if values is None:
                self.changed.add(key)
            else:
                arrived += [(*chunk, data) for chunk, data in zip(its_chunks, values, strict=True)]
        return arrived

    def _check_sizes(self, group: Group, found: _Values) -> None:
        """Raise if a raw value is not as long as its chunk."""
        for key, ((_, start, end),), value in zip(group.keys, group.ranges, found, strict=True):
            size = end - start
            if value is not None and value[1] != size:
                raise ChunkSizeError(
                    f"{self._access.key_prefix + key!r} has {value[1]} bytes, which is not the "
                    f"size of its chunk ({size} bytes)"
                )

    def _decode(self, data: Bytes, position: int, whole: bool) -> bool:
        """Decode a chunk; return whether the codec has written straight into the array."""
        _, spec, _, out_selection, _ = self._batch.chunks[position]
        chain = self._chain
        out = self._target(position)
        encoded, nbytes = chain.unwrap(data, spec)
        if nbytes is None:
            self._batch.scatter(chain.decode(encoded, spec), position, out)
            return False
        region: npt.NDArray[Any] | None = None
        if whole and self._straight:
            order = chain.order(spec)
            array = out.as_numpy_array()
            region = array[(*out_selection, ...)]
            values = contiguous_bytes(region, nbytes, order)
            if values is not None:
                chain.decompress(encoded, values)
                return True
        scratch = self._take_scratch(nbytes)
        try:
            values = scratch[:nbytes]
            chain.decompress(encoded, values)
            if region is not None and region.nbytes == nbytes:  # as below, but faster
                put(values, region, order, array_nbytes=array.nbytes)
            else:
                self._batch.scatter(chain.finish(values, spec), position, out)
        finally:
            self._scratch.append(scratch)
        return False

    def _target(self, position: int) -> NDBuffer:
        return self._targets[position] if self._targets else self._batch.values

    def _take_scratch(self, nbytes: int) -> Bytes:
        """Return memory for a chunk. There is never more of it than there are threads."""
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = np.empty(0, np.uint8)
        return scratch if scratch.size >= nbytes else allocate(nbytes)
