"""How a shard is made, and what its index says of its inner chunks: pure, no I/O."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.errors import ChunkSizeError, ShardError
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.classify import Sharded
from ucxstore.zarr_compat import ArraySpec, numpy_buffer_prototype

type Ints = npt.NDArray[np.int64]

# Instead of an inner chunk's offset: it is not stored, or its entry points outside the value.
MISSING = -1
_OUTSIDE = -2


class IndexForm(NamedTuple):
    """What two indexes must have in common for one to be taken for the other."""

    codecs: tuple[Codec, ...]
    location: str
    grid: tuple[int, ...]
    raw_nbytes: int | None


@dataclass(frozen=True)
class Sharding:
    """How an array's shards of one shape are made.

    Parameters
    ----------
    codec : ShardingCodec
    chain : Chain
        The codecs of inner chunks.
    shape : tuple of int
        A shard's, in items.
    spec : ArraySpec
        An inner chunk's.
    grid : tuple of int
        How many of them there are, on each axis.
    """

    codec: ShardingCodec
    chain: Chain
    shape: tuple[int, ...]
    spec: ArraySpec
    grid: tuple[int, ...]

    @classmethod
    def of(cls, kind: Sharded, spec: ArraySpec) -> Self:
        """Return how shards of a shape are made, given the spec of one."""
        codec, chain = kind
        inner = codec._get_chunk_spec(spec)
        return cls(codec, chain, spec.shape, inner, codec._get_chunks_per_shard(spec))

    @cached_property
    def count(self) -> int:
        """Inner chunks in a shard."""
        return prod(self.grid)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an item."""
        return self.spec.dtype.to_native_dtype().itemsize

    @cached_property
    def chunk_nbytes(self) -> int:
        """Bytes of an inner chunk's values."""
        return prod(self.spec.shape) * self.itemsize

    @cached_property
    def index_nbytes(self) -> int:
        """Bytes of a stored index."""
        return self.codec._shard_index_size(self.grid)

    @cached_property
    def index_form(self) -> IndexForm:
        """What an index is decoded and checked by."""
        nbytes = self.chunk_nbytes if self.chain.raw else None
        return IndexForm(self.codec.index_codecs, self.codec.index_location, self.grid, nbytes)

    @property
    def index_ranges(self) -> list[NativeRange]:
        """Where the index is in a shard."""
        at_start = self.codec.index_location == "start"
        return [(1, 0, self.index_nbytes) if at_start else (3, self.index_nbytes, 0)]

    def coordinates(self, chunk: int) -> tuple[int, ...]:
        """Return where an inner chunk is in its shard, from its number in C order."""
        return tuple(int(i) for i in np.unravel_index(chunk, self.grid))


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """A shard's index: what is where in one value of a key.

    Parameters
    ----------
    offsets, lengths : numpy.ndarray
        Of each inner chunk, in bytes, in C order. Offsets below 0 are no offsets.
    version : int
        The value's; another value of the same key has another one.
    sound : bool
        Whether `find` will find nothing wrong.
    """

    offsets: Ints
    lengths: Ints
    version: int
    sound: bool

    @classmethod
    def decode(
        cls, data: npt.NDArray[np.uint8], size: int, version: int, sharding: Sharding
    ) -> Self:
        """Decode an index as zarr does, checks included.

        Parameters
        ----------
        data : numpy.ndarray
            What `Sharding.index_ranges` takes from a value.
        size : int
            Bytes of the whole value.
        version : int
        sharding : Sharding

        Raises
        ------
        ValueError
            If the value is too short to have an index, or its checksum is not that of the index.
        """
        buffer = numpy_buffer_prototype().buffer.from_array_like(data)
        found = sharding.codec._decode_shard_index_sync(buffer, sharding.grid)
        entries = found.offsets_and_lengths.reshape(-1, 2)
        starts, lengths = entries[:, 0], entries[:, 1]
        missing = (entries == np.iinfo(np.uint64).max).all(axis=1)
        # In this order no number is too large for its type.
        outside = (starts > size) | (lengths > size - np.minimum(starts, np.uint64(size)))
        offsets = np.where(outside, _OUTSIDE, starts.astype(np.int64))
        offsets[missing] = MISSING
        sound = not (offsets == _OUTSIDE).any()
        if sharding.chain.raw:
            sound = sound and bool((missing | (lengths == sharding.chunk_nbytes)).all())
        return cls(offsets, lengths.astype(np.int64), version, sound)

    @property
    def nbytes(self) -> int:
        """Bytes that the index takes in memory."""
        return self.offsets.nbytes + self.lengths.nbytes

    def find(self, chunks: Ints, sharding: Sharding, path: object) -> tuple[Ints, Ints]:
        """Return offsets and lengths of inner chunks.

        Parameters
        ----------
        chunks : numpy.ndarray
            Their numbers.
        sharding : Sharding
        path : object
            What to call the shard in an error.

        Raises
        ------
        ShardError
            If one is said to be where the value has no bytes.
        ChunkSizeError
            If one is raw and has not the size of its values.
        """
        offsets, lengths = self.offsets[chunks], self.lengths[chunks]
        outside = offsets == _OUTSIDE
        if outside.any():
            where = sharding.coordinates(chunks[outside.argmax()])
            raise ShardError(f"{path}: its index says that inner chunk {where} is outside of it")
        if sharding.chain.raw:
            wrong = (offsets >= 0) & (lengths != sharding.chunk_nbytes)
            if wrong.any():
                first = wrong.argmax()
                raise ChunkSizeError(
                    f"{path}: inner chunk {sharding.coordinates(chunks[first])} has "
                    f"{lengths[first]} bytes, and not {sharding.chunk_nbytes}"
                )
        return offsets, lengths
