"""Values: reading, reading into, writing, and what is refused."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype

from tests.backdoor import Backdoor
from tests.values import as_buffer
from ucxstore import InvalidKeyError, UcxStore, ValueTooLargeError
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()


@pytest.fixture(params=["async", "sync"])
def get_into(request: pytest.FixtureRequest, ucx_store: UcxStore) -> Callable[..., Any]:
    def ask(*args: Any) -> Any:
        if request.param == "sync":
            return ucx_store.get_into_sync(*args)
        return asyncio.run(ucx_store.get_into(*args))

    return ask


# ---- get_into ----


@pytest.mark.parametrize(
    "out",
    [
        np.zeros(24, "u1"),
        np.zeros(3, "f8"),
        np.zeros((2, 3), "f4"),
        np.zeros((2, 3), "f4", order="F"),
        np.zeros((4, 9), "f4")[::2, 1:8:3],
        np.zeros(6, "f4")[::-1],
        np.zeros((2, 5, 3), "u2")[:, 1:3, :],
        np.zeros(24, "M8[ns]").view("u1")[:24],
        np.zeros(3, [("a", "<i4"), ("b", "<f4")]),
        np.zeros((), "V24"),
    ],
    ids=lambda out: f"{out.dtype}{out.shape}{out.strides}",
)
def test_get_into_fills_items_in_c_order(
    ucx_store: UcxStore, get_into: Callable[..., Any], out: np.ndarray
) -> None:
    value = bytes(range(out.nbytes))
    ucx_store.set_sync("key", as_buffer(value))
    assert get_into("key", out) == len(value)
    assert out.tobytes() == value


@pytest.mark.parametrize("make", [bytearray, lambda n: memoryview(bytearray(n))])
def test_get_into_any_buffer(
    ucx_store: UcxStore, get_into: Callable[..., Any], make: Callable[[int], Any]
) -> None:
    out = make(4)
    ucx_store.set_sync("key", as_buffer(b"data"))
    assert get_into("key", out) == 4
    assert bytes(out) == b"data"


def test_get_into_touches_nothing_but_out(
    ucx_store: UcxStore, get_into: Callable[..., Any]
) -> None:
    whole = np.full((300, 400), -1, "i4")
    out = whole[10:290:3, 5:395:2]
    value = np.arange(out.size, dtype="i4").reshape(out.shape)
    ucx_store.set_sync("key", as_buffer(value.tobytes()))
    expected = whole.copy()
    expected[10:290:3, 5:395:2] = value
    assert get_into("key", out) == value.nbytes
    np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize(
    ("byte_range", "part"),
    [
        (RangeByteRequest(2, 5), b"cde"),
        (RangeByteRequest(6, 100), b"gh"),
        (RangeByteRequest(50, 100), b""),
        (OffsetByteRequest(5), b"fgh"),
        (OffsetByteRequest(50), b""),
        (SuffixByteRequest(2), b"gh"),
        (SuffixByteRequest(50), b"abcdefgh"),
        (SuffixByteRequest(0), b""),
    ],
)
def test_get_into_a_range(
    ucx_store: UcxStore, get_into: Callable[..., Any], byte_range: Any, part: bytes
) -> None:
    ucx_store.set_sync("key", as_buffer(b"abcdefgh"))
    out = bytearray(b"." * 10)
    assert get_into("key", out, byte_range) == len(part)
    assert bytes(out) == part.ljust(10, b".")


def test_get_into_a_missing_key(get_into: Callable[..., Any]) -> None:
    out = bytearray(b"....")
    assert get_into("missing", out) is None
    assert out == b"...."


def test_get_into_something_too_small(ucx_store: UcxStore, get_into: Callable[..., Any]) -> None:
    ucx_store.set_sync("key", as_buffer(b"abcdefgh"))
    with pytest.raises(ValueTooLargeError, match="key"):
        get_into("key", bytearray(7))
    assert get_into("key", bytearray(7), RangeByteRequest(0, 7)) == 7


def test_get_into_nothing(ucx_store: UcxStore, get_into: Callable[..., Any]) -> None:
    ucx_store.set_sync("empty", as_buffer(b""))
    assert get_into("empty", bytearray()) == 0
    assert get_into("empty", np.zeros((3, 0))) == 0


async def test_many_at_once(ucx_store: UcxStore) -> None:
    values = {f"c/{i}": bytes([i]) * (i * 100) for i in range(50)}
    await ucx_store.set_many((key, as_buffer(value)) for key, value in values.items())
    outs = {key: bytearray(len(value) + 3) for key, value in values.items()}
    requests = [(key, out, None) for key, out in outs.items()]
    requests.insert(7, ("missing", bytearray(4), None))
    requests.append(("c/9", tail := bytearray(5), SuffixByteRequest(5)))
    expected = [len(value) for value in values.values()]
    expected.insert(7, None)
    expected.append(5)
    assert await ucx_store.get_many_into(iter(requests)) == expected
    assert ucx_store.get_many_into_sync(iter(requests)) == expected
    assert tail == b"\t" * 5
    for key, value in values.items():
        assert outs[key] == value + b"\0\0\0"
    assert await ucx_store.get_many_into([]) == []


@pytest.mark.parametrize(
    "out",
    [
        b"read-only",
        "text",
        None,
        [0, 0],
        np.array([0, "references"], object),
        np.zeros(2, [("number", "i8"), ("reference", "O")]),
    ],
    ids=str,
)
def test_outs_that_are_none(ucx_store: UcxStore, get_into: Callable[..., Any], out: object) -> None:
    ucx_store.set_sync("key", as_buffer(b"eight of"))
    with pytest.raises(TypeError):
        get_into("key", out)


def test_the_caller_has_its_memory_again(ucx_store: UcxStore, get_into: Callable[..., Any]) -> None:
    ucx_store.set_sync("key", as_buffer(b"data"))
    out = bytearray(4)
    get_into("key", out)
    out.extend(b" and more")  # fails while anybody has a view of it
    assert out == b"data and more"


# ---- reading ----


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 3_000_000])
async def test_values_of_all_sizes(ucx_store: UcxStore, size: int) -> None:
    value = np.random.default_rng(size).integers(0, 256, size, "u1")
    await ucx_store.set("a/b", cpu.Buffer.from_array_like(value))
    found = await ucx_store.get("a/b", PROTOTYPE)
    assert found is not None
    np.testing.assert_array_equal(found.as_numpy_array(), value)
    assert await ucx_store.getsize("a/b") == size


async def test_scattered_ranges_in_one_request(ucx_store: UcxStore, server: Server) -> None:
    value = np.random.default_rng(0).integers(0, 256, 5_000_000, "u1")
    await ucx_store.set("key", cpu.Buffer.from_array_like(value))
    ranges = [RangeByteRequest(i, i + 100) for i in range(0, 5_000_000, 50_000)]
    wanted = [*ranges, None, SuffixByteRequest(7), OffsetByteRequest(4_999_990)]
    before = server.stats()["bytes_sent"]
    batches = [batch async for batch in ucx_store.get_ranges("key", wanted, prototype=PROTOTYPE)]
    assert server.stats()["bytes_sent"] - before < 5_000_000 + 20_000  # no gaps between them
    (batch,) = batches
    assert [index for index, _ in batch] == list(range(len(wanted)))
    parts = [part.to_bytes() for _, part in batch]
    assert parts[:100] == [value[r.start : r.end].tobytes() for r in ranges]
    assert parts[100:] == [value.tobytes(), value[-7:].tobytes(), value[-10:].tobytes()]
    same = ucx_store.get_ranges_sync("key", wanted, prototype=PROTOTYPE)
    assert [part.to_bytes() for _, part in same] == parts


async def test_ranges_of_a_missing_key(ucx_store: UcxStore) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async for _ in ucx_store.get_ranges("missing", [None], prototype=PROTOTYPE):
            pass
    assert caught.group_contains(FileNotFoundError)
    with pytest.raises(BaseExceptionGroup) as caught:
        ucx_store.get_ranges_sync("missing", [None], prototype=PROTOTYPE)
    assert caught.group_contains(FileNotFoundError)


async def test_no_ranges_at_all(ucx_store: UcxStore) -> None:
    assert [b async for b in ucx_store.get_ranges("missing", [], prototype=PROTOTYPE)] == []
    assert ucx_store.get_ranges_sync("missing", [], prototype=PROTOTYPE) == []
    assert await ucx_store.get_partial_values(PROTOTYPE, []) == []


async def test_partial_values_of_missing_keys(ucx_store: UcxStore) -> None:
    await ucx_store.set("key", as_buffer(b"abc"))
    found = await ucx_store.get_partial_values(
        PROTOTYPE, [("key", None), ("no", None), ("key", SuffixByteRequest(1))]
    )
    assert [part and part.to_bytes() for part in found] == [b"abc", None, b"c"]


@pytest.mark.parametrize("wrong", [(0, 2), 3, "0-2"])
async def test_byte_ranges_of_other_types(ucx_store: UcxStore, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Unexpected byte_range, got"):
        ucx_store.get_sync("key", byte_range=wrong)
    with pytest.raises(TypeError, match=r"Unexpected byte_range, got"):
        await ucx_store.get_into("key", bytearray(3), wrong)


# ---- writing ----


async def test_no_view_is_kept(ucx_store: UcxStore, backdoor: Backdoor, prefix: str) -> None:
    value = np.zeros(1_000_000, "u1")
    await ucx_store.set("a", cpu.Buffer.from_array_like(value))
    value[:] = 1
    ucx_store.set_sync("b", cpu.Buffer.from_array_like(value))
    value[:] = 2
    assert backdoor.get(f"{prefix}/a") == bytes(1_000_000)
    assert backdoor.get(f"{prefix}/b") == b"\1" * 1_000_000


async def test_a_strided_value(ucx_store: UcxStore) -> None:
    value = np.arange(200, dtype="u1")[::2]
    await ucx_store.set("key", cpu.Buffer.from_array_like(value))
    found = await ucx_store.get("key")
    assert found is not None
    assert found.to_bytes() == value.tobytes()


async def test_only_buffers_are_set(ucx_store: UcxStore) -> None:
    message = (
        r"UcxStore.set\(\): `value` must be a Buffer instance. Got an instance of <class 'bytes'>"
    )
    with pytest.raises(TypeError, match=message):
        await ucx_store.set("key", b"bytes")
    with pytest.raises(TypeError, match=message):
        ucx_store.set_sync("key", b"bytes")


def test_one_of_many_wins(address: str) -> None:
    stores = [UcxStore(address) for _ in range(8)]

    def write(index: int) -> None:
        value = as_buffer(bytes([index]) * 5000)
        asyncio.run(stores[index].set_if_not_exists("key", value))

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(write, range(len(stores))))
    winners = [index for index, store in enumerate(stores) if store.stats()["bytes_written"]]
    assert len(winners) == 1
    found = stores[0].get_sync("key")
    assert found is not None
    assert found.to_bytes() == bytes(winners) * 5000


def test_a_new_value_blocking(ucx_store: UcxStore) -> None:
    assert ucx_store.add_sync("key", as_buffer(b"first"))
    assert not ucx_store.add_sync("key", as_buffer(b"the second"))
    found = ucx_store.get_sync("key")
    assert found is not None
    assert found.to_bytes() == b"first"
    assert ucx_store.stats()["bytes_written"] == 5


async def test_many_are_deleted(ucx_store: UcxStore) -> None:
    await ucx_store.set_many([(f"k/{number}", as_buffer(b"")) for number in range(2000)])
    await ucx_store.delete_many([f"k/{number}" for number in range(-10, 1999)])
    await ucx_store.delete_many([])
    assert [key async for key in ucx_store.list()] == ["k/1999"]


async def test_parts_of_one_version(ucx_store: UcxStore) -> None:
    ucx_store.set_sync("key", as_buffer(b"0123456789"))
    found = ucx_store.get_found_sync("key", RangeByteRequest(2, 5))
    assert found is not None
    data, size, version = found
    assert (data.tobytes(), size) == (b"234", 10)
    again = await ucx_store.get_found("key", RangeByteRequest(8, 99), version)
    assert again is not None
    assert (again[0].tobytes(), *again[1:]) == (b"89", 10, version)
    ucx_store.set_sync("key", as_buffer(b"abcdefghij"))
    changed = ucx_store.get_found_sync("key", RangeByteRequest(2, 5), version)
    assert changed is not None
    assert changed[0] is None
    assert changed[2] != version
    assert ucx_store.get_found_sync("nothing", RangeByteRequest(2, 5)) is None
    assert ucx_store.stats()["bytes_read"] == 5


READ_ONLY = "store was opened in read-only mode and does not support writing"


async def test_read_only_stores(ucx_store: UcxStore) -> None:
    await ucx_store.set("a/b", as_buffer(b"value"))
    reader = ucx_store.with_read_only(True)
    for write in (
        reader.set("key", as_buffer(b"")),
        reader.set_if_not_exists("key", as_buffer(b"")),
        reader.set_many([("key", as_buffer(b""))]),
        reader.delete("a/b"),
        reader.delete_many(["a/b"]),
        reader.delete_dir("a"),
        reader.clear(),
    ):
        with pytest.raises(ValueError, match=READ_ONLY):
            await write
    with pytest.raises(ValueError, match=READ_ONLY):
        reader.set_sync("key", as_buffer(b""))
    with pytest.raises(ValueError, match=READ_ONLY):
        reader.add_sync("key", as_buffer(b""))
    with pytest.raises(ValueError, match=READ_ONLY):
        reader.delete_sync("a/b")
    assert await reader.exists("a/b")


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0b", "k" * 2000])
async def test_keys_that_no_server_takes(ucx_store: UcxStore, key: str) -> None:
    for request in (
        ucx_store.set(key, as_buffer(b"")),
        ucx_store.get(key, PROTOTYPE),
        ucx_store.exists(key),
        ucx_store.delete(key),
        ucx_store.get_into(key, bytearray(1)),
    ):
        with pytest.raises(InvalidKeyError):
            await request


async def test_a_missing_size(ucx_store: UcxStore) -> None:
    with pytest.raises(FileNotFoundError, match="a/b"):
        await ucx_store.getsize("a/b")


# ---- as zarr uses it ----


@pytest.mark.filterwarnings("ignore:Consolidated metadata:zarr.errors.ZarrUserWarning")
def test_zarr_opens_it(address: str) -> None:
    store = UcxStore(address)
    group = zarr.open_group(store, mode="w", attributes={"title": "x"})
    array = group.create_array("a", shape=(10, 20), chunks=(5, 20), dtype="f4", compressors=None)
    array[:] = np.arange(200).reshape(10, 20)
    zarr.consolidate_metadata(store)
    again = zarr.open(store=UcxStore(address), mode="r")
    assert again.attrs["title"] == "x"
    np.testing.assert_array_equal(again["a"][3], np.arange(60, 80, dtype="f4"))
    assert again["a"].nbytes_stored() > 800
    del group["a"]
    assert list(zarr.open_group(UcxStore(address), mode="r", use_consolidated=False)) == []
