"""Shard index: where the inner chunks of a shard are, decoded and checked: pure, no I/O."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.codecs import ShardingCodec

from ucxstore.base.errors import ChunkSizeError, ShardError
from ucxstore.base.zarr_compat import ArraySpec, numpy_buffer_prototype
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import Sharded
from ucxstore.codecs.recipe import Recipe

type Ints = npt.NDArray[np.int64]

# In place of an offset: the inner chunk is not stored, or its entry points outside the value.
MISSING = -1
_OUTSIDE = -2


class IndexForm(NamedTuple):
    """Form of an index. A cached index is used only if the form is the same."""

    codecs: tuple[Codec, ...]
    location: str
    grid: tuple[int, ...]
    raw_nbytes: int | None


@dataclass(frozen=True)
class Sharding:
    """Codecs, shapes and sizes of an array's shards of one shape.

    Parameters
    ----------
    codec : ShardingCodec
    chain : Chain
        The codecs of inner chunks.
    shape : tuple of int
        Items of a shard along each axis.
    spec : ArraySpec
        The spec of an inner chunk.
    grid : tuple of int
        Inner chunks of a shard along each axis.
    recipe : Recipe or None
        Set where inner chunks are read as servers decode them. Then `chain` is raw.
    """

    codec: ShardingCodec
    chain: Chain
    shape: tuple[int, ...]
    spec: ArraySpec
    grid: tuple[int, ...]
    recipe: Recipe | None = None

    @classmethod
    def of(cls, kind: Sharded, spec: ArraySpec) -> Self:
        """Return the sharding of a shard with this spec."""
        codec, chain, recipe = kind
        inner = codec._get_chunk_spec(spec)
        return cls(codec, chain, spec.shape, inner, codec._get_chunks_per_shard(spec), recipe)

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
        """The form of the index, by which it is decoded and checked."""
        nbytes = self.stored_nbytes
        return IndexForm(self.codec.index_codecs, self.codec.index_location, self.grid, nbytes)

    @cached_property
    def stored_nbytes(self) -> int | None:
        """Bytes of a stored inner chunk; ``None`` if they differ, as they are encoded."""
        return self.chunk_nbytes if self.chain.raw and self.recipe is None else None

    @property
    def index_ranges(self) -> list[NativeRange]:
        """The byte ranges of the index in a shard."""
        at_start = self.codec.index_location == "start"
        return [(1, 0, self.index_nbytes) if at_start else (3, self.index_nbytes, 0)]

    def coordinates(self, chunk: int) -> tuple[int, ...]:
        """Return the grid coordinates of an inner chunk, from its number in C order."""
        return tuple(int(i) for i in np.unravel_index(chunk, self.grid))


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Index of a shard: offsets and lengths of its inner chunks in one version of its value.

    Parameters
    ----------
    offsets, lengths : numpy.ndarray
        In bytes, for each inner chunk, in C order. An offset below 0 is `MISSING`, or wrong.
    version : int
        The version of the value.
    sound : bool
        Whether all entries are right, so that `find` does not raise.
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
            The bytes at `Sharding.index_ranges` of a value.
        size : int
            Bytes of the whole value.
        version : int
        sharding : Sharding

        Raises
        ------
        ValueError
            If the value is too short to have an index, or the checksum of the index is wrong.
        """
        buffer = numpy_buffer_prototype().buffer.from_array_like(data)
        found = sharding.codec._decode_shard_index_sync(buffer, sharding.grid)
        entries = found.offsets_and_lengths.reshape(-1, 2)
        starts, lengths = entries[:, 0], entries[:, 1]
        missing = (entries == np.iinfo(np.uint64).max).all(axis=1)
        # Written so that no number overflows its type.
        outside = (starts > size) | (lengths > size - np.minimum(starts, np.uint64(size)))
        offsets = np.where(outside, _OUTSIDE, starts.astype(np.int64))
        offsets[missing] = MISSING
        sound = not (offsets == _OUTSIDE).any()
        if sharding.stored_nbytes is not None:
            sound = sound and bool((missing | (lengths == sharding.stored_nbytes)).all())
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
            The name of the shard in errors.

        Raises
        ------
        ShardError
            If an entry points outside the value.
        ChunkSizeError
            If an inner chunk is raw, and its length is not the size of its values.
        """
        offsets, lengths = self.offsets[chunks], self.lengths[chunks]
        outside = offsets == _OUTSIDE
        if outside.any():
            where = sharding.coordinates(chunks[outside.argmax()])
            raise ShardError(f"{path}: its index says that inner chunk {where} is outside of it")
        if sharding.stored_nbytes is not None:
            wrong = (offsets >= 0) & (lengths != sharding.chunk_nbytes)
            if wrong.any():
                first = wrong.argmax()
                raise ChunkSizeError(
                    f"{path}: inner chunk {sharding.coordinates(chunks[first])} has "
                    f"{lengths[first]} bytes, and not {sharding.chunk_nbytes}"
                )
        return offsets, lengths
