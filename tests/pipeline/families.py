"""Families of arrays, and the way that the chunks of each go today, operation by operation.

A way is D where chunks go direct, C where they are decoded here and E where they are encoded or
merged here, F where they fall back to zarr's own pipeline, several where chunks of one operation
differ, and - where no chunk is touched.
"""

from dataclasses import dataclass, field
from typing import Any

import numcodecs
import numpy as np
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as wrapped

# Reads and writes of everything, of a box that cuts chunks, of every other item, and of three
# indices along each axis in no order (but one integer along the last of "rows"). The first read is
# of an array without chunks, and the last write puts fill values over a chunk.
OPERATIONS = (
    *("missing", "write", "part", "scatter"),
    *("whole", "box", "steps", "rows", "points"),
    *("scalar", "fill"),
)


@dataclass(frozen=True)
class Family:
    """A kind of array.

    Parameters
    ----------
    name : str
    ways : str
        Of `OPERATIONS`, in their order.
    options : dict
        What ``zarr.create_array`` takes, beyond `BASE`.
    """

    name: str
    ways: str
    options: dict[str, Any] = field(default_factory=dict)


# In groups: missing write part scatter, whole box steps rows points, scalar fill
RAW = "D DE DE E D D D D D E D"
ENCODED = "C E E E C C C C C E E"
SHARDED = "D D DE E D D D D D E D"
FOREIGN = "F F F F F F F F F F F"

BASE: dict[str, Any] = {"shape": (10, 7), "chunks": (4, 3), "dtype": "f4", "compressors": None}
V2 = {"zarr_format": 2}
ZSTD = {"compressors": ZstdCodec()}
OLD_ZSTD = V2 | {"compressors": numcodecs.Zstd()}
SHARDS = {"chunks": (2, 1), "shards": (4, 3)}
TRANSPOSED = {"filters": TransposeCodec(order=(1, 0))}
BIG = {"serializer": BytesCodec(endian="big")}
NO_AXES = {"shape": (), "chunks": ()}
EDGES = {"chunks": [[4, 6], [3, 3, 1]]}
NONE_MISSING = {"config": {"read_missing_chunks": False}}
KEEP = {"config": {"write_empty_chunks": True}}
RECORD = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S3")])
NESTED = ShardingCodec(chunk_shape=(4, 2), codecs=[ShardingCodec(chunk_shape=(2, 1))])

FAMILIES = [
    # raw, in every layout
    Family("raw", RAW),
    Family("F order", RAW, {"config": {"order": "F"}}),
    Family("format 2", RAW, V2),
    Family("format 2, F order", RAW, V2 | {"order": "F"}),
    Family("one row a chunk", "D D E E D D D D D E D", {"chunks": (1, 7)}),
    Family("one chunk", "D D E E D D D D D E D", {"chunks": (10, 7)}),
    Family("a chunk beyond the array", "D E E E D D D D D E E", {"chunks": (12, 9)}),
    Family(
        "many short rows",
        "C DE E E C C CD D D E D",
        {"shape": (200, 90), "chunks": (100, 40), "config": {"order": "F"}},
    ),
    Family("one axis", RAW, {"shape": (10,), "chunks": (4,)}),
    Family("four axes", "D DE E E D D D D D E D", {"shape": (3, 4, 5, 6), "chunks": (2, 2, 5, 4)}),
    Family("no axes", "D E E E D D D D - E E", NO_AXES),
    Family("no axes, zstd", "C E E E C C C C - E E", NO_AXES | ZSTD),
    Family("no items", "- - - - - - - - - - -", {"shape": (0, 7)}),
    Family("rectilinear", "D D E E D D D D D E D", EDGES),
    Family("rectilinear, zstd", ENCODED, EDGES | ZSTD),
    # dtypes
    Family("bool", RAW, {"dtype": "?"}),
    Family("int8", RAW, {"dtype": "i1"}),
    Family("uint64", RAW, {"dtype": "u8"}),
    Family("float16", RAW, {"dtype": "f2"}),
    Family("complex128", RAW, {"dtype": "c16"}),
    Family("datetime64", RAW, {"dtype": "M8[ns]"}),
    Family("timedelta64", RAW, {"dtype": "m8[10s]"}),
    Family("fixed bytes", RAW, {"dtype": "S5"}),
    Family("fixed text", RAW, {"dtype": "U5"}),
    Family("raw bytes", RAW, {"dtype": "V6"}),
    Family("records", RAW, {"dtype": RECORD}),
    Family("records, format 2", RAW, V2 | {"dtype": RECORD}),
    Family("records, zstd", ENCODED, ZSTD | {"dtype": RECORD}),
    Family("text", FOREIGN, {"dtype": str}),
    Family("text, zstd", FOREIGN, ZSTD | {"dtype": str}),
    Family("text, format 2", FOREIGN, V2 | {"dtype": str}),
    Family("bytes", FOREIGN, {"dtype": "variable_length_bytes"}),
    # byte orders
    Family("big-endian", ENCODED, BIG),
    Family("big-endian twice", RAW, BIG | {"dtype": ">f4"}),
    Family("big-endian dtype", ENCODED, {"dtype": ">f4"}),
    Family("big-endian, format 2", RAW, V2 | {"dtype": ">f4"}),
    Family("big-endian text, format 2", RAW, V2 | {"dtype": ">U5"}),
    Family("big-endian, zstd", ENCODED, BIG | ZSTD),
    # fill values
    Family("fill: 7", RAW, {"fill_value": 7}),
    Family("fill: NaN", RAW, {"fill_value": np.nan}),
    Family("fill: -0.0", RAW, {"fill_value": -0.0}),
    Family("fill: infinity", RAW, {"fill_value": -np.inf}),
    Family(
        "fill: NaN with payload",
        RAW,
        {"fill_value": np.uint32(0x7FC00001).view("f4")},
    ),
    Family("fill: complex NaN", RAW, {"dtype": "c8", "fill_value": complex(np.nan, -0.0)}),
    Family("fill: NaT", RAW, {"dtype": "M8[s]", "fill_value": np.datetime64("NaT", "s")}),
    Family("fill: text", RAW, {"dtype": "U5", "fill_value": "fill"}),
    Family("fill: True", RAW, {"dtype": "?", "fill_value": True}),
    Family("fill: none, format 2", RAW, V2 | {"fill_value": None}),
    Family("fill: NaN, format 2", RAW, V2 | {"fill_value": np.nan}),
    Family(
        "fill: a record",
        RAW,
        {"dtype": RECORD, "fill_value": np.array((1, 2, b"x"), RECORD)[()]},
    ),
    Family("fill: 7, zstd", ENCODED, ZSTD | {"fill_value": 7}),
    # empty and missing chunks
    Family("empty chunks kept", RAW, KEEP),
    Family("empty chunks kept, NaN", RAW, KEEP | {"fill_value": np.nan}),
    Family("empty chunks kept, zstd", ENCODED, KEEP | ZSTD),
    Family("empty chunks kept, format 2", RAW, KEEP | V2),
    Family("missing refused", RAW, NONE_MISSING),
    Family("missing refused, zstd", ENCODED, NONE_MISSING | ZSTD),
    # from bytes to bytes
    Family("zstd", ENCODED, {"compressors": ZstdCodec(level=3, checksum=True)}),
    Family(
        "blosc",
        ENCODED,
        {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)},
    ),
    Family("gzip", ENCODED, {"compressors": GzipCodec()}),
    Family("crc32c", ENCODED, {"compressors": Crc32cCodec()}),
    Family("zstd, crc32c", ENCODED, {"compressors": [ZstdCodec(), Crc32cCodec()]}),
    Family("lz4", ENCODED, {"compressors": wrapped.LZ4()}),
    Family("zlib", ENCODED, {"compressors": wrapped.Zlib()}),
    Family("bz2", ENCODED, {"compressors": wrapped.BZ2()}),
    Family(
        "shuffle, zstd",
        ENCODED,
        {"compressors": [wrapped.Shuffle(elementsize=4), wrapped.Zstd()]},
    ),
    Family("adler32", ENCODED, {"compressors": wrapped.Adler32()}),
    Family("zstd, format 2", ENCODED, OLD_ZSTD),
    Family("zstd, format 2, F order", ENCODED, OLD_ZSTD | {"order": "F"}),
    Family("blosc, format 2", ENCODED, V2 | {"compressors": numcodecs.Blosc(cname="zstd")}),
    Family("lz4, format 2", ENCODED, V2 | {"compressors": numcodecs.LZ4()}),
    Family("gzip, format 2", ENCODED, V2 | {"compressors": numcodecs.GZip()}),
    Family("zlib, format 2", ENCODED, V2 | {"compressors": numcodecs.Zlib()}),
    Family("bz2, format 2", ENCODED, V2 | {"compressors": numcodecs.BZ2()}),
    # from arrays to arrays
    Family("transpose", ENCODED, TRANSPOSED),
    Family("transpose, zstd", ENCODED, TRANSPOSED | ZSTD),
    Family("delta", ENCODED, {"filters": wrapped.Delta(dtype="<f4")}),
    Family(
        "fixed scale and offset",
        ENCODED,
        {"filters": wrapped.FixedScaleOffset(offset=0, scale=8, dtype="<f4", astype="<i4")},
    ),
    Family("pack bits", ENCODED, {"dtype": "?", "filters": wrapped.PackBits()}),
    Family("delta, format 2", ENCODED, V2 | {"filters": numcodecs.Delta("<f4")}),
    Family("shuffle, format 2", ENCODED, V2 | {"filters": numcodecs.Shuffle(4)}),
    Family(
        "fixed scale and offset, format 2",
        ENCODED,
        V2 | {"filters": numcodecs.FixedScaleOffset(0, 8, "<f4", "<i4")},
    ),
    Family("delta, zstd, format 2", ENCODED, OLD_ZSTD | {"filters": numcodecs.Delta("<f4")}),
    # shards
    Family("shards", SHARDED, SHARDS),
    Family("shards, zstd", ENCODED, SHARDS | ZSTD),
    Family("shards, crc32c", ENCODED, SHARDS | {"compressors": Crc32cCodec()}),
    Family(
        "shards, index first",
        SHARDED,
        SHARDS | {"shards": {"shape": (4, 3), "index_location": "start"}},
    ),
    Family(
        "shards, zstd outside",
        FOREIGN,
        ZSTD | {"serializer": ShardingCodec(chunk_shape=(2, 1))},
    ),
    Family("shards, transposed inside", ENCODED, SHARDS | TRANSPOSED),
    Family("shards, one chunk each", RAW, {"chunks": (4, 3), "shards": (4, 3)}),
    Family("shards, empty chunks kept", SHARDED, KEEP | SHARDS),
    Family("shards in shards", FOREIGN, {"chunks": (8, 4), "serializer": NESTED}),
]
