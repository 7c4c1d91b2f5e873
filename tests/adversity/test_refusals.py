"""What a server refuses leaves everything as it was: values, buffers, the connection."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from tests.adversity.conftest import OpenStore, StartServer
from tests.adversity.servers import files_under
from tests.adversity.transfers import BLANK, VALUE, filled
from tests.values import as_buffer
from ucxstore import InvalidKeyError, ReadOnlyServerError, UcxStore, ValueTooLargeError

SIZES = [100, 5_000, 100_000, 20_000_000]  # eager, rendezvous, several segments

PROTOTYPE = default_buffer_prototype()


# ---- a server that only reads ----


@pytest.mark.parametrize("size", SIZES)
def test_a_server_that_only_reads(
    start_server: StartServer, open_store: OpenStore, tmp_path: Path, size: int
) -> None:
    (tmp_path / "key").write_bytes(filled(VALUE, size).tobytes())
    server = start_server(tmp_path, read_only=True)
    store = open_store(server)
    value = as_buffer(filled(9, size))
    writes: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.set("key", value),
        lambda: store.set("new/key", value),
        lambda: store.set_if_not_exists("new", value),
        lambda: store.delete("key"),
        lambda: store.delete_dir(""),
        lambda: store.clear(),
        lambda: store.set_many([(f"{number}", value) for number in range(3)]),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyServerError, match=server.place):
            asyncio.run(write())
    for write_sync in (
        lambda: store.set_sync("key", value),
        lambda: store.delete_sync("key"),
    ):
        with pytest.raises(ReadOnlyServerError, match="'key'"):
            write_sync()
    assert files_under(tmp_path) == {"key"}
    found = store.get_sync("key")
    assert found is not None
    assert (found.as_numpy_array() == VALUE).all()
    assert len(found) == size


# ---- values larger than `out` ----


@pytest.mark.parametrize("size", SIZES)
def test_a_value_larger_than_out(store: UcxStore, size: int) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, size)))
    memory = filled(BLANK, size + 200)
    out = memory[100 : 100 + size - 1]
    for read in (
        lambda: store.get_into_sync("key", out),
        lambda: asyncio.run(store.get_into("key", out)),
        lambda: store.get_into_sync("key", out[: size // 2], RangeByteRequest(0, size // 2 + 1)),
    ):
        with pytest.raises(ValueTooLargeError, match="'key'"):
            read()
        assert (memory[:100] == BLANK).all()
        assert (memory[100 + size - 1 :] == BLANK).all()
    # It fits to the byte, and around it nothing is touched.
    out = memory[100 : 100 + size]
    assert store.get_into_sync("key", out) == size
    assert (out == VALUE).all()
    assert (memory[:100] == BLANK).all()
    assert (memory[100 + size :] == BLANK).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_value_smaller_than_out(store: UcxStore, size: int) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, size)))
    out = filled(BLANK, 2 * size)
    assert store.get_into_sync("key", out) == size
    assert (out[:size] == VALUE).all()
    assert (out[size:] == BLANK).all()
    assert store.get_into_sync("missing", out[:size]) is None
    assert (out[:size] == VALUE).all()


@pytest.mark.parametrize("rows", [10, 2_000])
def test_the_gaps_of_a_strided_out(store: UcxStore, rows: int) -> None:
    size = rows * 1000
    store.set_sync("key", as_buffer(filled(VALUE, size)))
    store.set_sync("larger", as_buffer(filled(VALUE, size + 1)))
    memory = np.full((rows, 2000), BLANK, "u1")
    out = memory[:, 500:1500]
    with pytest.raises(ValueTooLargeError, match="'larger'"):
        store.get_into_sync("larger", out)
    assert (memory[:, :500] == BLANK).all()
    assert (memory[:, 1500:] == BLANK).all()
    assert store.get_into_sync("key", out) == size
    assert (out == VALUE).all()
    assert (memory[:, :500] == BLANK).all()
    assert (memory[:, 1500:] == BLANK).all()


def test_one_of_many_is_too_large(store: UcxStore) -> None:
    sizes = {f"{number}": 1000 * (number + 1) for number in range(20)}
    for key, size in sizes.items():
        store.set_sync(key, as_buffer(filled(VALUE, size)))
    outs = [filled(BLANK, 10_000) for _ in sizes]
    with pytest.raises(ValueTooLargeError, match=r"'1[0-9]'"):
        store.get_many_into_sync([(key, out, None) for key, out in zip(sizes, outs, strict=True)])
    for out, size in zip(outs, sizes.values(), strict=True):
        assert (out[size:] == BLANK).all()
    before = [out.copy() for out in outs]
    assert store.get_sync("19") is not None
    assert all(map(np.array_equal, outs, before))  # nothing comes late


def test_outs_that_cannot_be(store: UcxStore) -> None:
    store.set_sync("key", as_buffer(b"value"))
    read_only = filled(BLANK, 10)
    read_only.flags.writeable = False
    for out in (read_only, b"0123456789", memoryview(b"0123456789")):
        with pytest.raises(TypeError, match="read-only"):
            store.get_into_sync("key", out)
    with pytest.raises(ValueError, match="overlaps"):
        store.get_into_sync("key", np.lib.stride_tricks.as_strided(filled(BLANK, 4), (8,), (0,)))
    with pytest.raises(ValueTooLargeError):
        store.get_into_sync("key", np.empty(0, "u1"))


@pytest.mark.parametrize("key", ["", "/a", "a/../b", "a//b", "a\0b", "..", "a" * 5000, "a/"])
def test_keys_that_cannot_be(store: UcxStore, key: str) -> None:
    for request in (
        lambda: store.get_sync(key),
        lambda: store.set_sync(key, as_buffer(b"value")),
        lambda: store.delete_sync(key),
        lambda: store.get_into_sync(key, bytearray(10)),
    ):
        with pytest.raises(InvalidKeyError):
            request()
    assert store.get_sync("key") is None
