"""Large blosc chunks: fetched and decoded a run of blocks at a time, by all threads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ucxstore.client.loops import LoopQueue
from ucxstore.pipeline.blosc_frames import PREFIX_BYTES, Frame, split
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.buffers import allocate
from ucxstore.pipeline.compressors import Bytes, Compressor, is_blosc
from ucxstore.pipeline.decode_plan import GROUP_BYTES, Group
from ucxstore.pipeline.jobs import Jobs
from ucxstore.store import UcxStore

if TYPE_CHECKING:
    from ucxstore._core import Connection

# Values of a chunk, in bytes, from which on the round trip for its header is worth while.
_LARGE_BYTES = 4 * GROUP_BYTES

_PRESENT = 0  # what `read_parts` says of a value that is still the one that is meant


class SplitChunk:
    """A chunk that is read in frames.

    Parameters
    ----------
    group : Group
        Of this chunk alone.
    frames : list of Frame
        What its value was split into.
    region : array of uint8
        Where its values go.
    version : int
        Of its value.

    Attributes
    ----------
    is_complete : bool
        Whether all frames that were read so far are of that value.
    received : int
        Bytes.
    """

    def __init__(
        self,
        group: Group,
        frames: list[Frame],
        region: Bytes,
        version: int,
        store: UcxStore,
        connection: "Connection",
        queue: LoopQueue,
        compressor: Compressor,
        jobs: Jobs,
    ) -> None:
        self.group = group
        self.frames = frames
        self.is_complete = True
        self.received = 0
        self._region = region
        self._version = version
        self._store = store
        self._connection = connection
        self._queue = queue
        self._compressor = compressor
        self._jobs = jobs

    async def read(self, frame: Frame, _: Claim) -> None:
        """Read a frame; if the value is another one by now, the chunk is not complete."""
        if not self.is_complete:
            return
        value = allocate(frame.limit)
        head, length = len(frame.head), frame.stop - frame.start
        value[:head] = np.frombuffer(frame.head, np.uint8)
        operation = self._connection.read_parts(
            [self._store.key_prefix + self.group.keys[0]],
            [(frame.start, length, [], [], None)],
            [(head, length, [], [], None)],
            value.__array_interface__["data"][0],
            [-1],
            [self._version],
            value,
            self._store.timeout,
            self._queue.native,
        )
        (status,) = await self._queue.complete(operation)
        if status == _PRESENT:
            self.received += length
            await self._jobs.in_thread(self._decode, frame, value)
        else:
            self.is_complete = False

    def _decode(self, frame: Frame, value: Bytes) -> None:
        if self._jobs.stopping:
            return
        try:
            self._compressor.decode(value, self._region[frame.first : frame.last])
        except Exception as error:
            error.add_note(f"while reading {self.group.keys[0]}")
            raise


def is_large(group: Group, nbytes: int, compressor: Compressor | None) -> bool:
    """Tell whether a group is one chunk that is worth while to look at."""
    return (
        compressor is not None
        and is_blosc(compressor)
        and len(group.keys) == 1
        and group.whole[0]
        and nbytes >= _LARGE_BYTES
    )


async def split_chunks(
    wanted: Sequence[tuple[Group, Bytes]],
    store: UcxStore,
    connection: "Connection",
    queue: LoopQueue,
    compressor: Compressor,
    jobs: Jobs,
) -> list[SplitChunk]:
    """Look at the beginning of chunks, and return those that can be read in frames.

    Parameters
    ----------
    wanted : sequence
        A group of one chunk, and where its values go.
    compressor : Compressor
        Blosc's.
    """
    keys = [store.key_prefix + group.keys[0] for group, _ in wanted]
    ranges = [[(1, 0, PREFIX_BYTES)]] * len(keys)
    found = await queue.complete(connection.get(keys, ranges, store.timeout, queue.native))
    chunks = []
    for (group, region), value in zip(wanted, found, strict=True):
        if value is not None:
            prefix, size, version = value
            frames = split(prefix, size, region.size, GROUP_BYTES)
            if len(frames) > 1:
                chunk = SplitChunk(
                    group, frames, region, version, store, connection, queue, compressor, jobs
                )
                chunk.received = prefix.size
                chunks.append(chunk)
    return chunks
