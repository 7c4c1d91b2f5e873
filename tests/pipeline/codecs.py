"""Chains of codecs that Hypothesis draws for arrays."""

from typing import Any

import hypothesis.strategies as st
import numcodecs
import numpy as np
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as wrapped


def compressors(size: int) -> list[list[Any]]:
    """Return chains from bytes to bytes for items of so many bytes."""
    return [
        [ZstdCodec()],
        [ZstdCodec(level=3, checksum=True)],
        [BloscCodec(cname="lz4", shuffle="shuffle", typesize=size)],
        [BloscCodec(cname="zstd", shuffle="bitshuffle", typesize=size)],
        [BloscCodec(cname="blosclz", clevel=0)],
        [GzipCodec()],
        [Crc32cCodec()],
        [ZstdCodec(), Crc32cCodec()],
        [BloscCodec(), Crc32cCodec()],
        [Crc32cCodec(), ZstdCodec()],
        [wrapped.LZ4()],
        [wrapped.LZ4(), Crc32cCodec()],
        [wrapped.Zstd(level=1), wrapped.Blosc(cname="lz4")],
        [wrapped.Zlib()],
        [wrapped.BZ2()],
        [wrapped.Shuffle(elementsize=size), wrapped.Zstd()],
        [wrapped.Shuffle(elementsize=size), wrapped.LZ4(), wrapped.Adler32()],
        [wrapped.Fletcher32()],
        [wrapped.CRC32()],
    ]


def old_compressors() -> list[Any]:
    return [
        numcodecs.Zstd(),
        numcodecs.Blosc(cname="lz4", shuffle=1),
        numcodecs.Blosc(cname="zstd", shuffle=2),
        numcodecs.LZ4(),
        numcodecs.Zlib(),
        numcodecs.GZip(),
        numcodecs.BZ2(),
    ]


def draw_codecs(draw: st.DrawFn, options: dict[str, Any], *, is_raw: bool = False) -> None:
    """Add an order and codecs to what ``zarr.create_array`` takes, or none for raw chunks."""
    shape, dtype = options["shape"], np.dtype(options["dtype"])
    order = draw(st.sampled_from("CCF"))
    number = dtype.kind in "iuf"
    if options["zarr_format"] == 2:
        options["order"] = order
        options["compressors"] = None if is_raw else draw(st.sampled_from(old_compressors()))
        filters: list[Any] = [[], [], [numcodecs.Shuffle(dtype.itemsize)], [numcodecs.Base64()] * 5]
        if number:
            filters += [[numcodecs.Delta(dtype)], [numcodecs.Delta(dtype), numcodecs.Zlib()]]
        options["filters"] = [] if is_raw else draw(st.sampled_from(filters)) or None
        return
    options["config"]["order"] = order
    options["compressors"] = None if is_raw else draw(st.sampled_from(compressors(dtype.itemsize)))
    if shape and draw(st.integers(0, 3)) == 0:
        options["chunks"] = [[side] if side < 3 else [2, side - 2] for side in shape]
    filters = [[], [], []]
    if shape and isinstance(options["chunks"], tuple):
        filters.append([TransposeCodec(order=tuple(draw(st.permutations(range(len(shape))))))])
    if number and dtype.isnative:
        filters.append([wrapped.Delta(dtype=dtype.str)])
    options["filters"] = [] if is_raw else draw(st.sampled_from(filters))
    if dtype.itemsize > 1 and dtype.kind in "iufcU":
        options["serializer"] = BytesCodec(endian=draw(st.sampled_from(["little", "big"])))
