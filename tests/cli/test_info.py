"""``ucxstore info``: arrays and groups, and which way their chunks go."""

import json
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec

from tests.cli.command import run
from ucxstore import UcxStore
from ucxstore.stores.channel_store import keyspace_of
from ucxstore.stores.description import ArrayDescription, describe


def make(store: UcxStore, name: str, **options: Any) -> zarr.Array:
    array = zarr.create_array(store, name=name, shape=(10, 7), chunks=(4, 3), dtype="f4", **options)
    array[:4] = 1
    return array


def test_a_tree(ucx_store: UcxStore, address: str) -> None:
    zarr.open_group(ucx_store)
    zarr.open_group(ucx_store, path="g")
    make(ucx_store, "raw", compressors=None)
    make(ucx_store, "g/gzip", compressors=GzipCodec(level=1))
    done = run("info", address)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{address}  group of 2 members, format 3"
    assert lines[1] == "├── g  group of 1 member, format 3"
    assert lines[2] == "│   └── gzip  float32 (10, 7), chunks (4, 3), bytes gzip, format 3"
    assert lines[3].startswith("│           3 of 9 chunks stored, ")
    assert lines[3].endswith(" for 280 B; DECODE, ENCODE")
    assert lines[4] == "└── raw  float32 (10, 7), chunks (4, 3), bytes, format 3"
    assert lines[5] == "        3 of 9 chunks stored, 144 B for 280 B; DIRECT"
    assert len(lines) == 6


def test_as_json(ucx_store: UcxStore, address: str) -> None:
    zarr.open_group(ucx_store)
    make(ucx_store, "raw", compressors=None)
    found = json.loads(run("info", "--json", address).stdout)
    assert found == {
        "kind": "group",
        "name": "",
        "zarr_format": 3,
        "members": [
            {
                "kind": "array",
                "name": "raw",
                "shape": [10, 7],
                "chunks": [4, 3],
                "shards": None,
                "dtype": "float32",
                "codecs": ["bytes"],
                "zarr_format": 3,
                "nbytes": 280,
                "stored_bytes": 144,
                "stored_values": 3,
                "most_values": 9,
                "read": "DIRECT",
                "write": "DIRECT",
                "reason": "",
            }
        ],
    }


@pytest.mark.parametrize(
    ("options", "codecs", "ways"),
    [
        ({"compressors": None}, ("bytes",), ("DIRECT", "DIRECT")),
        ({}, ("bytes", "zstd"), ("DECODE", "ENCODE")),
        ({"zarr_format": 2, "compressors": None}, (), ("DIRECT", "DIRECT")),
        ({"zarr_format": 2}, ("zstd",), ("DECODE", "ENCODE")),
        ({"shards": (8, 6), "compressors": None}, ("bytes",), ("DIRECT", "DIRECT")),
        ({"shards": (8, 6)}, ("bytes", "zstd"), ("DECODE", "ENCODE")),
    ],
)
def test_the_way_that_is_named_is_the_way_that_chunks_go(
    options: dict[str, Any],
    codecs: tuple[str, ...],
    ways: tuple[str, str],
    ucx_store: UcxStore,
) -> None:
    array = make(ucx_store, "a", **options)
    found = describe(ucx_store.at(f"{keyspace_of(ucx_store).prefix}a"))
    assert isinstance(found, ArrayDescription)
    assert (found.codecs, (found.read, found.write)) == (codecs, ways)
    assert found.shards == options.get("shards")
    assert found.reason == ""

    def counted(name: str) -> int:
        value = ucx_store.stats()[name]
        assert isinstance(value, int)
        return value

    store = zarr.open_array(ucx_store, path="a", mode="r+")
    before = counted(found.read.lower())
    np.testing.assert_array_equal(store[:4], np.ones((4, 7), "f4"))
    assert counted(found.read.lower()) > before
    before = counted(found.write.lower())
    array[:] = np.full((10, 7), 2, "f4")
    assert counted(found.write.lower()) > before


def test_what_is_left_to_zarr_says_why(ucx_store: UcxStore, address: str) -> None:
    zarr.create_array(ucx_store, name="words", shape=(10,), chunks=(4,), dtype=str)
    done = run("info", f"{address}/words")
    assert "FALLBACK (ucxstore does not handle its codecs or its dtype)" in done.stdout


def test_an_array_without_axes(ucx_store: UcxStore, address: str) -> None:
    zarr.create_array(ucx_store, name="scalar", shape=(), dtype="i4")[...] = 2
    first, second = run("info", f"{address}/scalar").stdout.splitlines()
    assert "int32 (), chunks ()," in first
    assert "1 of 1 chunks stored" in second


def test_chunks_of_many_shapes(ucx_store: UcxStore, address: str) -> None:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        edges = zarr.create_array(
            ucx_store, name="e", shape=(10, 7), chunks=[[4, 6], [3, 3, 1]], dtype="f4"
        )
        edges[:] = 1
        first, second = run("info", f"{address}/e").stdout.splitlines()
    assert "chunks of many shapes" in first
    assert "6 of 6 chunks stored" in second


def test_metadata_that_is_none(ucx_store: UcxStore, address: str) -> None:
    from zarr.core.buffer import cpu

    ucx_store.set_sync("zarr.json", cpu.Buffer.from_bytes(b"no JSON"))
    done = run("info", address)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"ucxstore info: {address}: metadata cannot be read: ")
