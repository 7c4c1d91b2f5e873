"""Find out from codecs, dtype and format how an array's chunks are stored: pure, no I/O.

`classify` is called once for each array. The planners decide which way each chunk goes, since that
depends on the selection, too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.abc.codec import SupportsSyncCodec as Sync
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

from ucxstore.base.zarr_compat import (
    ArraySpec,
    HasEndianness,
    Struct,
    V2Codec,
    evolve_codecs,
    resolve_aa_specs,
)
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.compressors import compressor_of

if TYPE_CHECKING:
    from ucxstore.codecs.recipe import Recipe

UNKNOWN_CODECS = "ucxstore does not handle its codecs or its dtype"
UNKNOWN_SHARDS = "ucxstore does not handle the codecs of its shards"

# The modules of codecs that are called here. Others may not expect to be called by several threads.
_KNOWN = ("zarr.codecs.", "numcodecs.")

# zarr's default codecs of an index, without and with the checksum. Others may be asynchronous, or
# from other packages.
_INDEX_CODECS = ((BytesCodec,), (BytesCodec, Crc32cCodec))


class Sharded(NamedTuple):
    """Chunks are shards, and no other codec of the array changes their bytes.

    Parameters
    ----------
    codec : ShardingCodec
    inner : Chain
        The codecs of inner chunks.
    recipe : Recipe or None
        Set where inner chunks are read as servers decode them. Then `inner` is raw.
    """

    codec: ShardingCodec
    inner: Chain
    recipe: "Recipe | None" = None


class LeftToZarr(NamedTuple):
    """Chunks are left to the pipeline that zarr would have used, for this reason."""

    reason: str


type ChunkKind = Chain | Sharded | LeftToZarr
"""How chunks are stored: raw or encoded, as their chain says, or in shards, or left to zarr."""


def classify(codecs: Sequence[Codec], spec: ArraySpec) -> ChunkKind:
    """Find out how the chunks of an array are stored.

    Parameters
    ----------
    codecs : sequence of Codec
        All codecs of the array, evolved.
    spec : ArraySpec
        The spec of any chunk. Other chunks may have other shapes.
    """
    if len(codecs) == 1 and type(codecs[0]) is ShardingCodec:
        return _sharded(codecs[0], spec)
    return _chain(tuple(codecs), spec) or LeftToZarr(UNKNOWN_CODECS)


def _sharded(codec: ShardingCodec, spec: ArraySpec) -> Sharded | LeftToZarr:
    if spec.shape and tuple(map(type, codec.index_codecs)) in _INDEX_CODECS:
        inner = codec._get_chunk_spec(spec)
        chain = _chain(evolve_codecs(codec.codecs, inner), inner)
        if chain is not None:
            return Sharded(codec, chain)
    return LeftToZarr(UNKNOWN_SHARDS)


def _chain(codecs: tuple[Codec, ...], spec: ArraySpec) -> Chain | None:
    """Take codecs apart; ``None`` where some are not known here, or the dtype is not plain."""
    dtype = spec.dtype.to_native_dtype()
    if dtype.hasobject or dtype.itemsize == 0 or not all(map(_is_known, codecs)):
        return None
    arrays = tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))
    outer = tuple(codec for codec in codecs if isinstance(codec, BytesBytesCodec))
    if len(arrays) + len(outer) != len(codecs) - 1:
        return None
    serializer: Any = codecs[len(arrays)]
    whole: tuple[Any, ...] = (serializer,)
    # The exact classes: what a subclass does to the bytes is not known here.
    if type(serializer) is V2Codec:
        compressor = None if serializer.filters else compressor_of(serializer.compressor)
        bare = serializer if compressor is None else replace(serializer, compressor=None)
        raw = len(codecs) == 1 and serializer.compressor is None and not serializer.filters
        return Chain(codecs, arrays, bare, outer, compressor, whole, dtype, not arrays, raw)
    if type(serializer) is not BytesCodec:
        return None
    compressor = compressor_of(outer[0]) if outer else None
    if compressor is not None:
        whole, outer = (serializer, outer[0]), outer[1:]
    stored = _stored_dtype(serializer, resolve_aa_specs(arrays, spec)[1])
    straight = not arrays and stored == dtype
    raw = straight and len(codecs) == 1
    return Chain(codecs, arrays, serializer, outer, compressor, whole, stored, straight, raw)


def _stored_dtype(codec: BytesCodec, spec: ArraySpec) -> np.dtype[Any]:
    """Return the dtype of stored values, as `BytesCodec` reads them."""
    dtype: np.dtype[Any] = spec.dtype.to_native_dtype()
    if isinstance(spec.dtype, HasEndianness):
        return replace(spec.dtype, endianness=codec.endian).to_native_dtype()  # type: ignore[call-arg]
    if isinstance(spec.dtype, Struct) and codec.endian is not None:
        return dtype.newbyteorder(codec.endian)
    return dtype


def _is_known(codec: Codec) -> bool:
    inside: list[object] = [codec]
    if isinstance(codec, V2Codec):
        inside += [*(codec.filters or ()), *([codec.compressor] if codec.compressor else ())]
    return isinstance(codec, Sync) and all(
        type(each).__module__.startswith(_KNOWN) for each in inside
    )
