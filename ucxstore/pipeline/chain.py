"""How stored values become chunks and chunks stored values: zarr's own codecs, taken apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
from zarr.abc.codec import Codec

from ucxstore.pipeline.buffers import allocate, chunk_in, contiguous_chunk
from ucxstore.pipeline.compressors import Bytes, Compressor, compressor_of
from ucxstore.zarr_compat import (
    ArraySpec,
    Buffer,
    ChunkTransform,
    NDBuffer,
    V2Codec,
    resolve_aa_specs,
)

# What compressors add to data that they cannot compress: lz4 1 in 255 and some bytes, the others
# less. Checksums and headers come to a few bytes each.
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
        From arrays to arrays, in the order of encoding.
    serializer : Codec
        ``BytesCodec`` or, with all that format 2 has, ``V2Codec``; without the `compressor`.
    outer : tuple of Codec
        From bytes to bytes, without the `compressor`.
    compressor : Compressor or None
        What decodes into values, if that can write into given memory. `finish` does the rest.
    whole : tuple of Codec
        The serializer and the compressor, as zarr has them.
    dtype : numpy.dtype
        Of the values that come out of `compressor`, byte order included.
    straight : bool
        Whether these values are the chunk's: nothing is left to do to them.
    raw : bool
        Whether a chunk is stored as its values lie in memory: there is nothing to decode.
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
        """Tell in which order the values of a chunk are stored: always C, but for format 2."""
        return spec.order if type(self.serializer) is V2Codec else "C"

    def values_nbytes(self, spec: ArraySpec) -> int:
        """Return how many bytes of values come out of `compressor` for a chunk."""
        return prod(self._last(spec).shape) * self.dtype.itemsize

    def limit(self, spec: ArraySpec, nbytes: int) -> int:
        """Return how many bytes a stored chunk has at the most, as far as its codecs are known.

        Parameters
        ----------
        spec : ArraySpec
        nbytes : int
            Of the chunk's values.
        """
        if self.raw:
            return nbytes
        if type(self.serializer) is V2Codec and self.serializer.filters:
            nbytes *= 2  # to other items, or to text
        else:
            nbytes = max(nbytes, self.values_nbytes(spec))
        return nbytes + nbytes // _GROWTH + _HEADERS

    # ---- decoding ----

    def unwrap(self, data: Bytes, spec: ArraySpec) -> tuple[Buffer, int | None]:
        """Undo the codecs around the compressor, or all from bytes to bytes without one.

        Returns
        -------
        Buffer
            What the compressor has encoded.
        int or None
            How many bytes of values `decompress` makes of it; ``None`` if only `decode` can be
            used, as where the value does not announce exactly a chunk.
        """
        last = self._last(spec)
        buffer = self._undo(self.outer, spec.prototype.buffer.from_array_like(data), last)
        if self.compressor is not None:
            nbytes = prod(last.shape) * self.dtype.itemsize
            if self.compressor.holds(buffer.as_numpy_array(), nbytes):
                return buffer, nbytes
        return buffer, None

    def decompress(self, buffer: Buffer, values: Bytes) -> None:
        """Decode what `unwrap` returned into memory for all values."""
        compressor = self.compressor
        assert compressor is not None
        source = buffer.as_numpy_array()
        compressor.check(source)
        compressor.decode(source, values)

    def finish(self, values: Bytes, spec: ArraySpec) -> NDBuffer:
        """Make a chunk of what `decompress` has decoded."""
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
        """Return a stored chunk that may be written to."""
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
        """Return what is to be stored; ``None`` if the codecs say that nothing is."""
        if not self.arrays:
            chunk = contiguous_chunk(chunk, spec, self.order(spec))
        if self.raw and type(self.serializer) is V2Codec:  # it would copy all of the chunk
            array = chunk.as_numpy_array().astype(self.dtype, order="K", copy=False)
            flat: Bytes = array.ravel(order="K").view(np.uint8)
            return flat
        buffer = self._transform.encode_chunk(chunk, spec)
        return None if buffer is None else buffer.as_numpy_array()

    @cached_property
    def _transform(self) -> ChunkTransform:
        return ChunkTransform(codecs=self.codecs)
