"""Listings of many pages, and the prefixes that they take."""

import pytest
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

from ucxstore import UcxStore

# Their listing takes two replies, and from an object store many requests.
MANY = 9_000


async def fill(store: UcxStore | MemoryStore, keys: list[str]) -> None:
    value = cpu.Buffer.from_bytes(b"12")
    await store._set_many((key, value) for key in keys)


async def test_many_pages(ucx_store: UcxStore) -> None:
    keys = [f"array/with/a/long/name/c/{i // 100}/{i % 100}" for i in range(MANY)]
    await fill(ucx_store, keys)
    assert sorted([key async for key in ucx_store.list()]) == sorted(keys)
    folder = "array/with/a/long/name/c"
    names = [name async for name in ucx_store.list_dir(folder)]
    assert sorted(names, key=int) == [str(i) for i in range(MANY // 100)]
    assert [key async for key in ucx_store.list_prefix(f"{folder}/17/9")] == [
        f"{folder}/17/9",
        *(f"{folder}/17/9{i}" for i in range(10)),
    ]
    assert await ucx_store.getsize_prefix(folder) == 2 * MANY
    await ucx_store.delete_dir(f"{folder}/17")
    assert len([key async for key in ucx_store.list()]) == MANY - 100
    await ucx_store.clear()
    assert await ucx_store.is_empty("")


KEYS = ["zarr.json", "a/zarr.json", "a/c/0/0", "a/c/0/1", "ab/zarr.json", "a.b/.zarray", "b/é"]


@pytest.mark.parametrize(
    "asked", ["", "/", "a", "a/", "a/c", "a/c/0/1", "ab/", "a.", "no", "a//", "../", "b", "a/../b/"]
)
async def test_prefixes_mean_what_they_mean_to_zarr(ucx_store: UcxStore, asked: str) -> None:
    model = MemoryStore()
    await fill(ucx_store, KEYS)
    await fill(model, KEYS)
    for ask in (lambda store: store.list_prefix(asked), lambda store: store.list_dir(asked)):
        expected = sorted([key async for key in ask(model)])
        assert sorted([key async for key in ask(ucx_store)]) == expected
    assert await ucx_store.is_empty(asked) == await model.is_empty(asked)
    assert await ucx_store.getsize_prefix(asked) == await model.getsize_prefix(asked)
    await ucx_store.delete_dir(asked)
    await model.delete_dir(asked)
    left = sorted([key async for key in model.list()])
    assert sorted([key async for key in ucx_store.list()]) == left


async def test_a_store_sees_nothing_outside_its_prefix(address: str) -> None:
    outer = UcxStore(address)
    await fill(outer, ["in/a", "in/b/c", "inside", "out"])
    inner = UcxStore(f"{address}/in")
    assert sorted([key async for key in inner.list()]) == ["a", "b/c"]
    assert sorted([name async for name in inner.list_dir("")]) == ["a", "b"]
    assert [key async for key in inner.list_prefix("b")] == ["b/c"]
    await inner.clear()
    assert sorted([key async for key in outer.list()]) == ["inside", "out"]
