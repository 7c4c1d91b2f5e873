"""Large blosc chunks: fetched and decoded a run of blocks at a time, by all threads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ucxstore.blosc_frames import PREFIX_BYTES, Frame, split
from ucxstore.budget import Claim
from ucxstore.compressors import Bytes, Compressor, is_blosc
from ucxstore.decode_plan import GROUP_BYTES, Group
from ucxstore.flow import Job, in_thread
from ucxstore.loops import LoopQueue
from ucxstore.store import UcxStore
from ucxstore.workers import decoders

if TYPE_CHECKING:
    from ucxstore._core import Connection

# Values of a chunk, in bytes, from which on the round trip for its header is worth while.
_LARGE_BYTES = 4 * GROUP_BYTES

_CHANGED = 2
"""What `read_parts` says of a value that is another one by now."""


@dataclass(slots=True, eq=False)
class SplitChunk:
    """A chunk that is read in frames.

    Parameters
    ----------
    group : Group
        Of this chunk alone.
    frames : list of Frame
    generation : int
        Of the value that they belong to.
    region : array of uint8
        Where the chunk's values go.
    complete : bool
        Whether all frames have been of that value, so far.
    """

    group: Group
    frames: list[Frame]
    generation: int
    region: Bytes
    complete: bool = True


class FrameReads:
    """Reads of chunks that are split.

    Parameters
    ----------
    store : UcxStore
    connection : Connection
    queue : LoopQueue
    compressor : Compressor or None
        The array's; that of a chunk that is split is blosc.
    """

    def __init__(
        self,
        store: UcxStore,
        connection: "Connection",
        queue: LoopQueue,
        compressor: Compressor | None,
    ) -> None:
        self._store = store
        self._connection = connection
        self._queue = queue
        self._compressor = compressor
        self._pool, self._threads = decoders()
        self._stop = False
        self.received = 0
        self.ended = 0

    async def split(self, wanted: Sequence[tuple[Group, Bytes]]) -> list[SplitChunk]:
        """Look at the beginning of chunks, and return those that can be split."""
        keys = [self._store.key_prefix + group.keys[0] for group, _ in wanted]
        ranges = [[(1, 0, PREFIX_BYTES)]] * len(keys)
        found = await self._queue.complete(
            self._connection.get(keys, ranges, self._store.timeout, self._queue.native)
        )
        chunks = []
        for (group, region), value in zip(wanted, found, strict=True):
            if value is not None:
                prefix, size, generation = value
                self.received += prefix.size
                frames = split(prefix, size, region.size, GROUP_BYTES)
                if len(frames) > 1:
                    chunks.append(SplitChunk(group, frames, generation, region))
        return chunks

    def jobs(self, chunk: SplitChunk) -> list[Job]:
        """Return what reads a chunk."""
        return [(frame.nbytes, partial(self._read, chunk, frame)) for frame in chunk.frames]

    async def _read(self, chunk: SplitChunk, frame: Frame, _: Claim) -> None:
        from ucxstore._native import core  # not before it is needed

        if chunk.complete:
            value = core.allocate(frame.nbytes)
            head = len(frame.head)
            value[:head] = np.frombuffer(frame.head, np.uint8)
            length = frame.stop - frame.start
            operation = self._connection.read_parts(
                [self._store.key_prefix + chunk.group.keys[0]],
                [(frame.start, length, [], [], None)],
                [(head, length, [], [], None)],
                value.__array_interface__["data"][0],
                [-1],
                [chunk.generation],
                value,
                self._store.timeout,
                self._queue.native,
            )
            (status,) = await self._queue.complete(operation)
            if status == 0:
                self.received += length
                await in_thread(self._pool, self._halt, self._decode, chunk, frame, value)
            else:
                chunk.complete = False
        self.ended += 1

    def _decode(self, chunk: SplitChunk, frame: Frame, value: Bytes) -> None:
        if self._compressor is not None and not self._stop:
            try:
                self._compressor.decode(value, chunk.region[frame.first : frame.last])
            except Exception as error:
                error.add_note(f"while reading {chunk.group.keys[0]}")
                raise

    def _halt(self) -> None:
        self._stop = True


def is_large(group: Group, nbytes: int, compressor: Compressor | None) -> bool:
    """Tell whether a group is one chunk that is worth while to look at."""
    return (
        compressor is not None
        and is_blosc(compressor)
        and len(group.keys) == 1
        and group.whole[0]
        and nbytes >= _LARGE_BYTES
    )
