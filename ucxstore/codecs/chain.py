"""Codec chain of an array: encode and decode chunks by zarr's own codecs, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
from zarr.abc.codec import Codec

from ucxstore.base.zarr_compat import (
    ArraySpec,
    Buffer,
    ChunkTransform,
    NDBuffer,
    V2Codec,
    resolve_aa_specs,
)
from ucxstore.codecs.buffers import allocate, chunk_in, contiguous_chunk
from ucxstore.codecs.compressors import Bytes, Compressor, compressor_of

# What compressors add to data that they cannot compress: lz4 one byte in 255, the others less.
# Checksums and headers add a few bytes each.
_GROWTH = 64
_HEADERS = 4096


@dataclass(frozen=True)
class Chain:
    """The codecs of chunks that are handled here. Methods may be called by many threads at once.

    Parameters
    ----------
    codecs : tuple of Codec
        All of them, evolved.
    arrays : tuple of Codec
        The codecs from arrays to arrays, in the order of encoding.
    serializer : Codec
        ``BytesCodec``; in format 2 ``V2Codec``, with the filters. Without the `compressor`.
    outer : tuple of Codec
        The other codecs from bytes to bytes, which encode after the `compressor`.
    compressor : Compressor or None
        The codec whose decoder returns values, if it can write them into given memory.
    whole : tuple of Codec
        The serializer and the compressor, as zarr has them.
    dtype : numpy.dtype
        The dtype of the values that `compressor` decodes, byte order included.
    straight : bool
        Whether these values are the chunk's, so that no other codec changes them.
    raw : bool
        Whether a chunk is stored as its values lie in memory, so that there is nothing to decode.
    """

    codecs: tuple[Codec, ...]
    arrays: tuple[Any, ...]
    serializer: Any
    outer: tuple[Any, ...]
    compressor: Compressor | None
    whole: tuple[Any, ...]
    dtype: np.dtype[Any]
    straight: bool
    raw: bool

    # ---- sizes ----

    def order(self, spec: ArraySpec) -> Literal["C", "F"]:
        """Return the order in which the values of a chunk are stored: C, except in format 2."""
        return spec.order if type(self.serializer) is V2Codec else "C"

    def values_nbytes(self, spec: ArraySpec) -> int:
        """Return how many bytes of values `compressor` decodes for a chunk."""
        return prod(self._last(spec).shape) * self.dtype.itemsize

    def limit(self, spec: ArraySpec, nbytes: int) -> int:
        """Return how many bytes a stored chunk has at the most; some filters put out more.

        Parameters
        ----------
        spec : ArraySpec
        nbytes : int
            Bytes of the chunk's values.
        """
        if self.raw:
            return nbytes
        if type(self.serializer) is V2Codec and self.serializer.filters:
            nbytes *= 2  # filters may encode to larger items, or to text
        else:
            nbytes = max(nbytes, self.values_nbytes(spec))
        return nbytes + nbytes // _GROWTH + _HEADERS

    # ---- decoding ----

    def unwrap(self, data: Bytes, spec: ArraySpec) -> tuple[Buffer, int | None]:
        """Decode a stored chunk by the `outer` codecs.

        Returns
        -------
        Buffer
            What the compressor has encoded.
        int or None
            The bytes of values that `decompress` will write. ``None`` if only `decode` can be
            used: there is no such compressor, or the header announces another size than a chunk's.
        """
        last = self._last(spec)
        buffer = self._undo(self.outer, spec.prototype.buffer.from_array_like(data), last)
        if self.compressor is not None:
            nbytes = prod(last.shape) * self.dtype.itemsize
            if self.compressor.holds(buffer.as_numpy_array(), nbytes):
                return buffer, nbytes
        return buffer, None

    def decompress(self, buffer: Buffer, values: Bytes) -> None:
        """Decode what `unwrap` returned into memory that fits all values exactly."""
        compressor = self.compressor
        assert compressor is not None
        source = buffer.as_numpy_array()
        compressor.check(source)
        compressor.decode(source, values)

    def finish(self, values: Bytes, spec: ArraySpec) -> NDBuffer:
        """Return the chunk of the values that `decompress` has decoded."""
        buffer = spec.prototype.buffer.from_array_like(values)
        return self._finish(self.serializer, buffer, spec)

    def decode(self, buffer: Buffer, spec: ArraySpec) -> NDBuffer:
        """Decode what `unwrap` returned into a chunk, as zarr does."""
        check = compressor_of(getattr(self.whole[0], "compressor", None))
        if check is not None:
            check.check(buffer.as_numpy_array())
        serializer, *compressors = self.whole
        return self._finish(serializer, self._undo(compressors, buffer, self._last(spec)), spec)

    def load(self, data: Bytes, spec: ArraySpec) -> NDBuffer:
        """Decode a stored chunk into memory that may be written to."""
        if self.raw:
            return chunk_in(data, spec, self.dtype, self.order(spec))
        buffer, nbytes = self.unwrap(data, spec)
        if nbytes is None:
            chunk = self.decode(buffer, spec)
        else:
            values = allocate(nbytes)
            self.decompress(buffer, values)
            chunk = self.finish(values, spec)
        return chunk if chunk.as_numpy_array().flags.writeable else chunk.copy()

    def _last(self, spec: ArraySpec) -> ArraySpec:
        return resolve_aa_specs(self.arrays, spec)[1] if self.arrays else spec

    def _undo(self, codecs: Sequence[Any], buffer: Buffer, spec: ArraySpec) -> Buffer:
        for codec in reversed(codecs):
            compressor = compressor_of(codec)
            if compressor is not None:
                compressor.check(buffer.as_numpy_array())
            buffer = codec._decode_sync(buffer, spec)
        return buffer

    def _finish(self, serializer: Any, buffer: Buffer, spec: ArraySpec) -> NDBuffer:
        specs, last = resolve_aa_specs(self.arrays, spec)
        chunk: NDBuffer = serializer._decode_sync(buffer, last)
        for codec, its_spec in zip(reversed(self.arrays), reversed(specs), strict=True):
            chunk = codec._decode_sync(chunk, its_spec)
        return chunk

    # ---- encoding ----

    def encode(self, chunk: NDBuffer, spec: ArraySpec) -> Bytes | None:
        """Return the bytes to store, or ``None`` if the codecs return none."""
        if not self.arrays:
            chunk = contiguous_chunk(chunk, spec, self.order(spec))
        if self.raw and type(self.serializer) is V2Codec:  # the codec would copy the chunk
            array = chunk.as_numpy_array().astype(self.dtype, order="K", copy=False)
            flat: Bytes = array.ravel(order="K").view(np.uint8)
            return flat
        buffer = self._transform.encode_chunk(chunk, spec)
        return None if buffer is None else buffer.as_numpy_array()

    @cached_property
    def _transform(self) -> ChunkTransform:
        return ChunkTransform(codecs=self.codecs)
