"""What a server decodes by a recipe is what zarr decodes, and takes no more memory than a chunk."""

import bz2
import gzip
import json
import lzma
import tracemalloc
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    CastValue,
    Crc32cCodec,
    GzipCodec,
    ScaleOffset,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as wrapped
from zarr.storage import MemoryStore

from ucxstore.base.keys import DECODED_FOLDER, stored_key
from ucxstore.base.zarr_compat import ArraySpec, evolve_codecs
from ucxstore.codecs.bounded import bounded_of
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import classify
from ucxstore.codecs.recipe import MAX_RECIPE_BYTES, Prepared, Recipe, prepare, recipe_of
from ucxstore.pipeline.array_chunks import codecs_of, spec_of

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of codecs that are not in its standard

SHAPE, CHUNKS = (60, 70), (30, 35)
MB = 1 << 20

ARRAYS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": ZstdCodec()},
    "zstd checked": {"compressors": ZstdCodec(checksum=True)},
    "blosc": {"compressors": BloscCodec()},
    "gzip": {"compressors": GzipCodec()},
    "lz4": {"compressors": wrapped.LZ4()},
    "zlib": {"compressors": [wrapped.Zlib(), wrapped.CRC32()]},
    "bz2": {"compressors": [wrapped.Shuffle(elementsize=4), wrapped.BZ2()]},
    "lzma": {"filters": [wrapped.Delta(dtype="i4")], "compressors": wrapped.LZMA()},
    "crc32c": {"compressors": Crc32cCodec()},
    "several": {"compressors": [ZstdCodec(), GzipCodec(), Crc32cCodec(), BloscCodec()]},
    "big endian": {"dtype": ">i4", "compressors": ZstdCodec()},
    "transposed": {"filters": [TransposeCodec(order=(1, 0))], "compressors": ZstdCodec()},
    "scaled": {
        "dtype": "f8",
        "filters": [wrapped.FixedScaleOffset(offset=1, scale=2, dtype="f8", astype="i4")],
        "fill_value": float("nan"),
    },
    "offset": {"dtype": "f8", "filters": [ScaleOffset(offset=5, scale=0.5)]},
    "rounded": {"dtype": "f4", "filters": [wrapped.BitRound(keepbits=10)]},
    "text": {"dtype": "U4"},
    "times": {"dtype": "M8[s]"},
    "2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc(), "order": "F"},
    "2 gzip": {
        "zarr_format": 2,
        "compressors": numcodecs.GZip(),
        "filters": [numcodecs.Delta("i4")],
        "fill_value": None,
    },
    "2 zlib": {"zarr_format": 2, "compressors": numcodecs.Zlib(), "dtype": ">f8"},
    "2 lzma": {"zarr_format": 2, "compressors": numcodecs.LZMA()},
    "2 filter alone": {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Delta("i4")]},
}


def chain_and_spec(array: zarr.Array) -> tuple[Chain, ArraySpec]:
    spec = spec_of(array.metadata)
    chain = classify(evolve_codecs(codecs_of(array.metadata), spec), spec)
    assert isinstance(chain, Chain)
    return chain, spec


def made(**options: Any) -> tuple[zarr.Array, np.ndarray]:
    """Return an array, and its first chunk as it is stored."""
    store = MemoryStore()
    array = zarr.create_array(
        store, **({"dtype": "i4", "shape": SHAPE, "chunks": CHUNKS} | options)
    )
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE) % 3000
    array[:] = values.astype("i8").astype(array.dtype)
    (key,) = {"c/0/0", "0.0"} & store._store_dict.keys()
    return zarr.open_array(store), np.frombuffer(store._store_dict[key].to_bytes(), "u1")


def recipe_for(array: zarr.Array) -> Recipe:
    recipe = recipe_of(*chain_and_spec(array))
    assert recipe is not None
    return recipe


def prepared_for(array: zarr.Array) -> Prepared:
    prepared = prepare(recipe_for(array).text)
    assert isinstance(prepared, Prepared), prepared
    return prepared


@pytest.mark.parametrize("options", ARRAYS.values(), ids=ARRAYS)
def test_a_chunk_is_what_zarr_reads(options: dict[str, Any]) -> None:
    array, stored = made(**options)
    recipe, prepared = recipe_for(array), prepared_for(array)
    out = np.full(prepared.nbytes, 0xAA, "u1")
    assert prepared.decode(stored, out) == ""
    _, spec = chain_and_spec(array)
    order = recipe.chain.order(spec)
    chunk = out.view(recipe.chain.dtype).reshape(CHUNKS, order=order)
    np.testing.assert_array_equal(chunk, array[:30, :35])
    assert recipe.chain.raw
    assert recipe.folder == f"{DECODED_FOLDER}{prepared.digest}/"
    assert stored_key(f"{recipe.folder}all/a/c/0") == stored_key("a/c/0") == "a/c/0"


@pytest.mark.parametrize("options", ARRAYS.values(), ids=ARRAYS)
def test_a_broken_chunk_is_told(options: dict[str, Any]) -> None:
    array, stored = made(**options)
    prepared = prepared_for(array)
    out = np.zeros(prepared.nbytes, "u1")
    for broken in (stored[:0], stored[:3], stored[: stored.size // 2]):
        assert prepared.decode(broken, out) != ""


def test_a_cast_is_applied_where_its_library_is_there() -> None:
    pytest.importorskip("cast_value_rs")
    array, stored = made(dtype="f8", filters=[CastValue(data_type="int16")])
    prepared = prepared_for(array)
    out = np.zeros(prepared.nbytes, "u1")
    assert prepared.decode(stored, out) == ""
    np.testing.assert_array_equal(out.view("f8").reshape(CHUNKS), array[:30, :35])


def test_raw_chunks_have_no_recipe() -> None:
    array, _ = made(compressors=None)
    assert recipe_of(*chain_and_spec(array)) is None


def test_a_recipe_tells_arrays_apart() -> None:
    # In format 3, chunks of either byte order are stored alike.
    arrays = [options for name, options in ARRAYS.items() if name != "big endian"]
    texts = {recipe_for(made(**options)[0]).text for options in arrays}
    assert len(texts) == len(arrays)
    assert all(len(text) <= MAX_RECIPE_BYTES for text in texts)
    one, other = (recipe_for(made(compressors=ZstdCodec())[0]) for _ in range(2))
    assert one.text == other.text


def test_values_of_another_byte_order_are_refused() -> None:
    text = json.loads(recipe_for(made(compressors=ZstdCodec())[0]).text)
    assert text["dtype"] == "<i4"
    fault = prepare(json.dumps(text | {"dtype": ">i4"}))
    assert isinstance(fault, str)
    assert "byte order" in fault


FORMAT_2 = {"zarr_format": 2, "dtype": "<i4", "order": "C", "fill_value": 0, "shape": [10]}
FORMAT_2 |= {"data_type": {"name": "<i4", "object_codec_id": None}, "filters": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 4000,
        json.dumps(FORMAT_2 | {"compressor": {"id": "pickle"}}),
        json.dumps(FORMAT_2 | {"compressor": {"id": "none such"}}),
        json.dumps(FORMAT_2 | {"compressor": None, "filters": [{"id": "pickle"}]}),
        json.dumps(FORMAT_2 | {"compressor": None, "filters": [{"id": "zlib"}]}),
        json.dumps(FORMAT_2 | {"compressor": {"id": "zstd"}, "shape": [0]}),
        json.dumps(FORMAT_2 | {"compressor": {"id": "zstd"}, "shape": [-1]}),
        json.dumps(FORMAT_2 | {"compressor": {"id": "zstd"}, "shape": [1 << 62]}),
        json.dumps(FORMAT_2 | {"compressor": {"id": "zstd"}, "shape": [1e400]}),
        json.dumps(
            FORMAT_2
            | {
                "compressor": None,
                "filters": [{"id": "astype", "encode_dtype": "u1", "decode_dtype": "S100000"}],
            }
        ),
    ],
)
def test_what_is_no_recipe_is_refused(text: str) -> None:
    assert isinstance(prepare(text), str)


NUMCODECS_BOMBS = {
    "gzip": (GzipCodec(), lambda data: gzip.compress(data, 9)),
    "zlib": (wrapped.Zlib(), lambda data: zlib.compress(data, 9)),
    "bz2": (wrapped.BZ2(), lambda data: bz2.compress(data)),
    "lzma": (wrapped.LZMA(), lambda data: lzma.compress(data)),
    "zstd": (ZstdCodec(), numcodecs.Zstd().encode),
    "blosc": (BloscCodec(), numcodecs.Blosc().encode),
    "lz4": (wrapped.LZ4(), numcodecs.LZ4().encode),
}


@pytest.mark.parametrize("name", NUMCODECS_BOMBS)
@pytest.mark.parametrize("outer", [False, True])
def test_a_bomb_takes_no_more_than_a_chunk(name: str, outer: bool) -> None:
    codec, encode = NUMCODECS_BOMBS[name]
    array, _ = made(compressors=[ZstdCodec(), codec] if outer else codec)
    prepared = prepared_for(array)
    bomb = np.frombuffer(encode(bytes(64 * MB)), "u1")
    out = np.zeros(prepared.nbytes, "u1")
    prepared.decode(bomb, out)  # the libraries make what they need once
    tracemalloc.start()
    try:
        assert prepared.decode(bomb, out) != ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MB


def test_only_what_is_bounded_is_decoded() -> None:
    assert bounded_of(GzipCodec()) is not None
    assert bounded_of(numcodecs.Pickle()) is None
    assert bounded_of(numcodecs.JSON()) is None
    assert bounded_of(object()) is None

    class Other(GzipCodec):
        pass

    assert bounded_of(Other()) is None
