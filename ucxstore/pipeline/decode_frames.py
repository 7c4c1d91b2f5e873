"""Read large blosc chunks in frames, runs of blocks that all threads decode at the same time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import READ, get, read_parts
from ucxstore.codecs.blosc_frames import PREFIX_BYTES, Frame, split
from ucxstore.codecs.buffers import allocate
from ucxstore.codecs.compressors import Bytes, Compressor
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Group
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.read_plan import GROUP_BYTES
from ucxstore.pipeline.scheduler import Scheduler

# Bytes of a chunk's values from which on a round trip for the header takes less time than it saves.
LARGE_BYTES = 4 * GROUP_BYTES


@dataclass(slots=True)
class SplitChunk:
    """A chunk that is read in frames.

    Parameters
    ----------
    group : Group
        A group of this chunk alone.
    frames : list of Frame
        The frames of its stored value.
    region : array of uint8
        Where its values go.
    version : int
        The version of the stored value.
    is_complete : bool
        False once a frame could not be read, since the value has been replaced.
    """

    group: Group
    frames: list[Frame]
    region: Bytes
    version: int
    is_complete: bool = True


class FrameReader:
    """Reads large blosc chunks in frames.

    Parameters
    ----------
    access : ChunkAccess
    scheduler : Scheduler
    compressor : Compressor
        Blosc's.

    Attributes
    ----------
    received : int
        Bytes that were received.
    """

    def __init__(self, access: ChunkAccess, scheduler: Scheduler, compressor: Compressor) -> None:
        self._access = access
        self._scheduler = scheduler
        self._compressor = compressor
        self.received = 0

    async def split(self, wanted: Sequence[tuple[Group, Bytes]]) -> list[SplitChunk]:
        """Fetch the beginning of chunks, and return those that can be read in frames.

        Parameters
        ----------
        wanted : sequence
            Groups of one chunk each, and where its values go.
        """
        keys = self._access.full_keys([group.keys[0] for group, _ in wanted])
        found = await self._access.channel.ask(get(keys, [[(1, 0, PREFIX_BYTES)]] * len(keys)))
        chunks = []
        for (group, region), value in zip(wanted, found, strict=True):
            if value is not None:
                prefix, size, version = value
                self.received += prefix.size
                frames = split(prefix, size, region.size, GROUP_BYTES)
                if len(frames) > 1:
                    chunks.append(SplitChunk(group, frames, region, version))
        return chunks

    async def read(self, chunk: SplitChunk) -> None:
        """Read all frames, or stop if the value has been replaced: see `SplitChunk.is_complete`."""

        async def read_one(frame: Frame, _: Claim) -> None:
            if chunk.is_complete:
                await self._read(chunk, frame)

        await self._scheduler.run(chunk.frames, read_one)

    async def _read(self, chunk: SplitChunk, frame: Frame) -> None:
        value = allocate(frame.limit)
        head, length = len(frame.head), frame.stop - frame.start
        value[:head] = np.frombuffer(frame.head, np.uint8)
        (status,) = await self._access.channel.ask(
            read_parts(
                self._access.full_keys(chunk.group.keys),
                [(frame.start, length, [], [], None)],
                [(head, length, [], [], None)],
                Memory(describe(value), value),
                versions=[chunk.version],
            )
        )
        if status == READ:
            self.received += length
            await self._scheduler.in_thread(self._decode, chunk, frame, value)
        else:
            chunk.is_complete = False

    def _decode(self, chunk: SplitChunk, frame: Frame, value: Bytes) -> None:
        if self._scheduler.stopping:
            return
        try:
            self._compressor.decode(value, chunk.region[frame.first : frame.last])
        except Exception as error:
            error.add_note(f"while reading {chunk.group.keys[0]}")
            raise


def is_large(group: Group, nbytes: int) -> bool:
    """Tell whether a group is one chunk, all wanted, that is large enough for frames."""
    return len(group.keys) == 1 and group.whole[0] and nbytes >= LARGE_BYTES
