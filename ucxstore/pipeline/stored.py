"""Chunks as they are stored: what is read of those that are written in part, and what is sent."""

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from zarr.abc.codec import Codec

from ucxstore.client.loops import LoopQueue
from ucxstore.pipeline.buffers import allocate
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.encode_plan import Group
from ucxstore.pipeline.geometry.holes import Part, moved, part_nbytes
from ucxstore.pipeline.merge import chunk_in, in_one_piece
from ucxstore.pipeline.raw import RawChunks
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import ArraySpec, ChunkTransform, NDBuffer, V2Codec

if TYPE_CHECKING:
    from ucxstore._core import Connection

_PRESENT, _MISSING, _CHANGED = range(3)  # what `read_parts` tells

_ANY = 0  # no value has this version


class Existing(NamedTuple):
    """What was read of a group.

    Parameters
    ----------
    sources : list of Bytes or None
        For `Stored.load`, chunk by chunk; ``None`` where the store has none.
    nbytes : int
        How many bytes were received.
    again : list of Group
        What to read instead, each by itself, where `sources` cannot be used.
    """

    sources: list[Bytes | None]
    nbytes: int
    again: list[Group]


class Stored(Protocol):
    """How the chunks of an array are stored. Methods without ``await`` are called in threads."""

    async def read(
        self, connection: "Connection", queue: LoopQueue, store: UcxStore, group: Group
    ) -> Existing:
        """Read of a group's chunks what is not written, or more."""
        ...

    def load(self, source: Bytes, spec: ArraySpec) -> NDBuffer:
        """Return a chunk that may be written to, of what was read."""
        ...

    def encode(self, chunk: NDBuffer, spec: ArraySpec) -> Bytes | None:
        """Return what is to be stored; ``None`` if the codecs say that nothing is."""
        ...


class EncodedChunks:
    """Chunks that codecs have changed.

    Parameters
    ----------
    codecs : tuple of Codec
        All of them.
    chain : Chain
        The same, taken apart.
    """

    def __init__(self, codecs: tuple[Codec, ...], chain: Chain) -> None:
        self._chain = chain
        self._transform = ChunkTransform(codecs=codecs)

    async def read(
        self, connection: "Connection", queue: LoopQueue, store: UcxStore, group: Group
    ) -> Existing:
        """Fetch all of the values, as far as a group's limit allows."""
        keys = [store.key_prefix + key for key in group.keys]
        found = await queue.complete(
            connection.get(keys, group.ranges, store.timeout, queue.native)
        )
        sources = [None if value is None else value[0] for value in found]
        sizes = [0 if value is None else value[1] for value in found]
        nbytes = sum(source.size for source in sources if source is not None)
        again: list[Group] = []
        if nbytes < sum(sizes):  # some are cut off
            out = group.limit // len(group.keys)
            again = [group.alone(i, size + out) for i, size in enumerate(sizes)]
        return Existing(sources, nbytes, again)

    def load(self, source: Bytes, spec: ArraySpec) -> NDBuffer:
        chain = self._chain
        encoded = chain.unwrap(source, spec)
        compressor = chain.compressor
        data, nbytes = encoded.as_numpy_array(), chain.values_nbytes(spec)
        if compressor is not None and compressor.holds(data, nbytes):
            compressor.check(data)
            values = allocate(nbytes)
            compressor.decode(data, values)
            chunk = chain.finish(values, spec)
        else:
            chunk = chain.decode(encoded, spec)
        return chunk if chunk.as_numpy_array().flags.writeable else chunk.copy()

    def encode(self, chunk: NDBuffer, spec: ArraySpec) -> Bytes | None:
        if not self._chain.arrays:
            chunk = in_one_piece(chunk, spec, self._chain.order(spec))
        buffer = self._transform.encode_chunk(chunk, spec)
        return None if buffer is None else buffer.as_numpy_array()


class _Piece(NamedTuple):
    """A part of a chunk, by its number in the group; where it goes; and of which value it is."""

    chunk: int
    source: Part
    target: Part
    version: int


class PlainChunks:
    """Raw chunks.

    Parameters
    ----------
    codec : Codec
        The only one.
    raw : RawChunks
        What it does.
    """

    def __init__(self, codec: Codec, raw: RawChunks) -> None:
        self._raw = raw
        self._is_v2 = type(codec) is V2Codec
        self._transform = ChunkTransform(codecs=(codec,))

    async def read(
        self, connection: "Connection", queue: LoopQueue, store: UcxStore, group: Group
    ) -> Existing:
        """Read the parts straight to their places in chunks of our own."""
        keys = [store.key_prefix + key for key in group.keys]
        versions: list[int | None] = [_ANY] * len(keys)
        if any(len(parts) > 1 for parts in group.parts):
            # Parts of different values are no chunk: they must all be of the one that is there now.
            heads = await queue.complete(
                connection.get(keys, [[(1, 0, 0)]] * len(keys), store.timeout, queue.native)
            )
            versions = [None if head is None else head[2] for head in heads]
        memory = allocate(group.nbytes)
        starts = list(accumulate(group.sizes, initial=0))
        pieces = [
            _Piece(chunk, part, moved(part, starts[chunk]), version)
            for chunk, (parts, version) in enumerate(zip(group.parts, versions, strict=True))
            if version is not None
            for part in parts
        ]
        found = await queue.complete(
            connection.read_parts(
                [keys[piece.chunk] for piece in pieces],
                [piece.source for piece in pieces],
                [piece.target for piece in pieces],
                memory.__array_interface__["data"][0],
                [group.sizes[piece.chunk] for piece in pieces],
                [piece.version for piece in pieces],
                memory,
                store.timeout,
                queue.native,
            )
        )
        told = list(zip(pieces, found, strict=True))
        nbytes = sum(part_nbytes(piece.source) for piece, status in told if status == _PRESENT)
        if _CHANGED in found:
            again = [group.alone(i, size) for i, size in enumerate(group.sizes)]
            return Existing([], nbytes, again)
        missing = {chunk for chunk, version in enumerate(versions) if version is None}
        missing |= {piece.chunk for piece, status in told if status == _MISSING}
        sources = [
            None if chunk in missing else memory[start:end]
            for chunk, (start, end) in enumerate(pairwise(starts))
        ]
        return Existing(sources, nbytes, [])

    def load(self, source: Bytes, spec: ArraySpec) -> NDBuffer:
        return chunk_in(source, spec, self._raw.dtype, self._raw.order)

    def encode(self, chunk: NDBuffer, spec: ArraySpec) -> Bytes | None:
        chunk = in_one_piece(chunk, spec, self._raw.order)
        if self._is_v2:  # whose codec would copy all of it
            array = chunk.as_numpy_array().astype(self._raw.dtype, order="K", copy=False)
            flat: Bytes = array.ravel(order="K").view(np.uint8)
            return flat
        buffer = self._transform.encode_chunk(chunk, spec)
        return None if buffer is None else buffer.as_numpy_array()


def stored_by(codecs: tuple[Codec, ...], chain: Chain | None, raw: RawChunks | None) -> Stored:
    """Return how the chunks of an array are stored, by the one of both that it has."""
    if chain is not None:
        return EncodedChunks(codecs, chain)
    assert raw is not None
    return PlainChunks(codecs[0], raw)
