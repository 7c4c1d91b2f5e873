"""Every family of arrays is read and written as by zarr, and goes the way that the table says."""

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.array import AsyncArray
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import MemoryStore, StorePath

from tests.pipeline.arrays import store_of
from tests.pipeline.families import BASE, FAMILIES, OPERATIONS, Family
from tests.pipeline.strategies import Step, contents, noise, outcome, read, write
from ucxstore import FallbackError, UcxStore, ZeroCopyCodecPipeline
from ucxstore.base.stats import StoreStats

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of what it may still change

LETTERS = {"direct": "D", "decode": "C", "encode": "E", "fallback": "F"}
NOT_CHUNKS = {
    *(
        "decode_in_place",
        "mapped",
        "bytes_read",
        "bytes_written",
        "staged_bytes",
        "lanes",
        "servers",
    )
}


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


@pytest.fixture(scope="module")
def address(any_address: str) -> Iterator[str]:
    """Keep the connection between tests."""
    with UcxStore(any_address) as store:
        store.get_sync("key")
        yield any_address


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_family(address: str, family: Family) -> None:
    options = BASE | family.options
    place = f"{address}/{uuid.uuid4().hex}"
    ours = zarr.create_array(UcxStore(place), **options)
    model = zarr.create_array(MemoryStore(), **options)
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    strict = in_store(ours, UcxStore(place, strict=True))
    steps = operations(model)
    assert tuple(steps) == OPERATIONS
    ways = []
    for name, step in steps.items():
        before = store_of(strict).stats(), store_of(ours).stats()
        found = outcome(step, strict)
        if refused := found is FallbackError:
            assert_stored_alike(ours, model)
            found = outcome(step, ours)
        assert found == outcome(step, model), name
        assert_stored_alike(ours, model)
        ways.append(way(before, (store_of(strict).stats(), store_of(ours).stats())))
        assert refused == ("F" in ways[-1]), name
    assert " ".join(ways) == family.ways


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_groups(address: str, zarr_format: Any) -> None:
    place = f"{address}/{uuid.uuid4().hex}"
    data = np.arange(48, dtype="i4").reshape(8, 6)
    roots = []
    for store in UcxStore(place), MemoryStore():
        root = zarr.create_group(store, zarr_format=zarr_format, attributes={"title": "é"})
        inner = root.create_group("of/groups", attributes={"n": 1})
        for name, compressors in ("raw", None), ("zstd", "auto"):
            array = inner.create_array(
                name, shape=data.shape, chunks=(4, 3), dtype="i4", compressors=compressors
            )
            array[:] = data
        zarr.consolidate_metadata(store)
        roots.append(root)
    assert contents(roots[0]) == contents(roots[1])
    group = zarr.open_consolidated(UcxStore(place, strict=True))
    assert dict(group.attrs) == {"title": "é"}
    assert dict(group["of/groups"].attrs) == {"n": 1}
    assert sorted(name for name, _ in group["of/groups"].arrays()) == ["raw", "zstd"]
    for name, expected in ("raw", "D"), ("zstd", "C"):
        before = (store_of(group).stats(),)
        np.testing.assert_array_equal(group[f"of/groups/{name}"][:], data)
        assert way(before, (store_of(group).stats(),)) == expected


def in_store(array: zarr.Array, store: UcxStore) -> zarr.Array:
    path = StorePath(store, array.path)
    return zarr.Array(AsyncArray(array.metadata, path, array.async_array.config))


def assert_stored_alike(ours: zarr.Array, model: zarr.Array) -> None:
    mine, others = contents(ours), contents(model)
    assert mine.keys() == others.keys()
    for key, value in mine.items():
        assert timeless(value) == timeless(others[key]), key


def timeless(value: bytes) -> bytes:
    """Return a value without the second of its compression, which gzip writes into it."""
    return value[:4] + value[8:] if value.startswith(b"\x1f\x8b\x08") else value


def operations(array: zarr.Array) -> dict[str, Step]:
    shape = array.shape
    values = some_values(array)
    box = tuple(slice(1, -1) for _ in shape)
    steps = tuple(slice(None, None, 2) for _ in shape)
    indices = tuple(np.array([side - 1, 0, side // 2][: 3 * side], int) for side in shape)
    rows = (*indices[:-1], 1) if len(shape) > 1 else indices
    first = tuple(slice(edges[0] if edges else 0) for edges in array.write_chunk_sizes)
    fill = array.fill_value
    if fill is None:
        fill = array.metadata.dtype.default_scalar()
    filled = np.full(values[first].shape, fill, array.dtype)
    return {
        "missing": read("basic", Ellipsis),
        "write": write("basic", Ellipsis, values),
        "part": write("basic", box, values[box][::-1] if shape else values),
        "scatter": write(
            "orthogonal", indices, values[np.ix_(*indices)][::-1] if shape else values
        ),
        "whole": read("basic", Ellipsis),
        "box": read("basic", box),
        "steps": read("basic", steps),
        "rows": read("orthogonal", rows),
        "points": read("coordinate", indices),
        "scalar": write("basic", box, values[(0,) * len(shape)] if values.size else fill),
        "fill": write("basic", first, filled),
    }


def some_values(array: zarr.Array) -> np.ndarray:
    match array.dtype.kind:
        case "T":
            return np.arange(array.size).astype(str).astype(array.dtype).reshape(array.shape)
        case "O":
            numbers = [str(n) for n in range(array.size)]
            if array.fill_value == b"":
                numbers = [n.encode() for n in numbers]
            return np.array(numbers, dtype=object).reshape(array.shape)
        case "f":
            return (np.arange(1, array.size + 1) / 8).astype(array.dtype).reshape(array.shape)
    return noise(array.dtype, array.shape, 1)


def way(before: tuple[StoreStats, ...], after: tuple[StoreStats, ...]) -> str:
    """Return the letters of the ways whose counters have grown in any of the stores."""
    grown = {
        name
        for old, new in zip(before, after, strict=True)
        for name in new.keys() - NOT_CHUNKS
        if new[name] > old[name]
    }
    return "".join(sorted(LETTERS.get(name, name[0].upper()) for name in grown)) or "-"
