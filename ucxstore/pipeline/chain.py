"""How stored values become chunks: zarr's own codecs, and which memory the last can write to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.abc.codec import SupportsSyncCodec as Sync
from zarr.codecs.bytes import BytesCodec

from ucxstore.pipeline.compressors import Bytes, Compressor, compressor_of
from ucxstore.pipeline.raw import raw_chunks, stored_dtype
from ucxstore.zarr_compat import ArraySpec, Buffer, NDBuffer, V2Codec, cpu, resolve_aa_specs

# Codecs of others may not expect to be called by several threads.
_KNOWN = ("zarr.codecs.", "numcodecs.")


@dataclass(frozen=True, slots=True)
class Chain:
    """A codec chain, taken apart.

    Parameters
    ----------
    arrays : tuple of Codec
        From arrays to arrays, in the order of encoding.
    serializer : Codec
        ``BytesCodec`` or, with all that format 2 has, ``V2Codec``.
    outer : tuple of Codec
        From bytes to bytes, without the `compressor`.
    compressor : Compressor or None
        What decodes into values, if that can write into given memory. `values` does the rest.
    whole : tuple of Codec
        The serializer and the compressor, as zarr has them.
    dtype : numpy.dtype
        Of the values that come out of `compressor`.
    straight : bool
        Whether these values are the chunk's: nothing is left to do to them.
    raw : bool
        Whether a chunk's values are stored as they are.
    """

    arrays: tuple[Any, ...]
    serializer: Any
    outer: tuple[Any, ...]
    compressor: Compressor | None
    whole: tuple[Any, ...]
    dtype: np.dtype[Any]
    straight: bool
    raw: bool

    @classmethod
    def of(cls, codecs: Sequence[Codec], spec: ArraySpec, *, raw: bool = False) -> Self | None:
        """Take a chain apart.

        Parameters
        ----------
        codecs : sequence of Codec
            All codecs of the array, evolved.
        spec : ArraySpec
            Any chunk's.
        raw : bool
            Whether chains are wanted, too, in which there is nothing to decode.

        Returns
        -------
        Chain or None
            ``None`` where there is nothing to decode, or codecs that are not known here.
        """
        dtype = spec.dtype.to_native_dtype()
        is_raw = raw_chunks(codecs, spec) is not None
        if dtype.hasobject or dtype.itemsize == 0 or (is_raw and not raw):
            return None
        if not issubclass(spec.prototype.buffer, cpu.Buffer) or not all(map(_is_known, codecs)):
            return None
        arrays = tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))
        outer = tuple(codec for codec in codecs if isinstance(codec, BytesBytesCodec))
        if len(arrays) + len(outer) != len(codecs) - 1:
            return None
        serializer = codecs[len(arrays)]
        if type(serializer) is V2Codec:
            compressor = None if serializer.filters else compressor_of(serializer.compressor)
            bare = serializer if compressor is None else replace(serializer, compressor=None)
            return cls(arrays, bare, outer, compressor, (serializer,), dtype, not arrays, is_raw)
        if type(serializer) is not BytesCodec:
            return None
        compressor = compressor_of(outer[0]) if outer else None
        whole: tuple[Any, ...] = (serializer,)
        if compressor is not None:
            whole, outer = (serializer, outer[0]), outer[1:]
        _, last = resolve_aa_specs(arrays, spec)
        stored = stored_dtype(serializer, last, last.dtype.to_native_dtype())
        straight = not arrays and stored == dtype
        return cls(arrays, serializer, outer, compressor, whole, stored, straight, is_raw)

    def order(self, spec: ArraySpec) -> Literal["C", "F"]:
        """Tell in which order the values of a chunk are stored."""
        return spec.order if type(self.serializer) is V2Codec else "C"

    def values_nbytes(self, spec: ArraySpec) -> int:
        """Return how many bytes of values come out of `compressor` for a chunk."""
        if self.arrays:
            _, spec = resolve_aa_specs(self.arrays, spec)
        return prod(spec.shape) * self.dtype.itemsize

    def unwrap(self, data: Bytes, spec: ArraySpec) -> Buffer:
        """Undo the codecs around the compressor, or all from bytes to bytes without one."""
        buffer = spec.prototype.buffer.from_array_like(data)
        return self._undo(self.outer, buffer, self._last(spec))

    def decode(self, buffer: Buffer, spec: ArraySpec) -> NDBuffer:
        """Decode what `unwrap` gave into a chunk, as zarr does."""
        check = compressor_of(getattr(self.whole[0], "compressor", None))
        if check is not None:
            check.check(buffer.as_numpy_array())
        serializer, *compressors = self.whole
        return self._finish(serializer, self._undo(compressors, buffer, self._last(spec)), spec)

    def finish(self, values: Bytes, spec: ArraySpec) -> NDBuffer:
        """Make a chunk of what `compressor` has decoded."""
        buffer = spec.prototype.buffer.from_array_like(values)
        return self._finish(self.serializer, buffer, spec)

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


def _is_known(codec: Codec) -> bool:
    parts: list[object] = [codec]
    if isinstance(codec, V2Codec):
        parts += [*(codec.filters or ()), *([codec.compressor] if codec.compressor else ())]
    return isinstance(codec, Sync) and all(
        type(part).__module__.startswith(_KNOWN) for part in parts
    )
