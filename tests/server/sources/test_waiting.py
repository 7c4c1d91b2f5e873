"""Requests to a source that is slower than they come: what waits does not count as late."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore, WrapperStore

from tests.eventually import nothing_happens_async
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()
COUNT = 768


class Slow(WrapperStore[Store]):
    """Takes its time for each request."""

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self.seconds = seconds

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        await nothing_happens_async(self.seconds)
        return await super().get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer) -> None:
        await nothing_happens_async(self.seconds)
        await super().set(key, value)

    async def exists(self, key: str) -> bool:
        await nothing_happens_async(self.seconds)
        return await super().exists(key)


@asynccontextmanager
async def clients(
    address: str, count: int, timeout: float, local: str
) -> AsyncIterator[list[UcxStore]]:
    """Stores with a connection each."""
    async with AsyncExitStack() as stack:
        stores = []
        for number in range(count):
            store = UcxStore(
                address,
                timeout=timeout,
                local=local,
                network="tcp",
                ucx={"TCP_TX_SEG_SIZE": f"{200 + number}K"},
            )
            stack.callback(store.close)
            stores.append(store)
        yield stores


def failures(results: list[object]) -> list[str]:
    return [str(one) for one in results if isinstance(one, BaseException)]


@pytest.mark.parametrize("local", ["off", "auto"])
def test_gets_that_wait_for_their_turn(local: str) -> None:
    """Half a second for each, 64 at once: the last ones wait for six seconds, with two allowed."""
    behind = MemoryStore()
    values = {f"k{number}": f"value {number}".encode() for number in range(COUNT)}

    async def read(address: str) -> list[object]:
        for key, value in values.items():
            await behind.set(key, PROTOTYPE.buffer.from_bytes(value))
        async with clients(address, 8, 2.0, local) as stores:
            return await asyncio.gather(
                *(
                    stores[number % len(stores)].get(key, PROTOTYPE)
                    for number, key in enumerate(values)
                ),
                return_exceptions=True,
            )

    with Server(Slow(behind, 0.5), source_timeout=2.0) as server:
        found = asyncio.run(read(server.address))
    failed = failures(found)
    assert not failed, f"{len(failed)} of {COUNT} failed: {failed[0]}"
    assert [one.to_bytes() for one in found] == list(values.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("local", ["off", "auto"])
@pytest.mark.parametrize("size", [100, 10_000, 100_000])
def test_sets_that_wait_for_their_turn(size: int, local: str) -> None:
    behind = MemoryStore()

    async def write(address: str) -> list[object]:
        async with clients(address, 1, 2.0, local) as [store]:
            return await asyncio.gather(
                *(
                    store.set(
                        f"k{number}", PROTOTYPE.buffer.from_bytes(bytes([number % 256]) * size)
                    )
                    for number in range(COUNT)
                ),
                return_exceptions=True,
            )

    with Server(Slow(behind, 0.5), source_timeout=2.0, write_budget="8MiB") as server:
        failed = failures(asyncio.run(write(server.address)))
    assert not failed, f"{len(failed)} of {COUNT} failed: {failed[0]}"
    for number in range(COUNT):
        value = behind.get_sync(f"k{number}")
        assert value is not None
        assert value.to_bytes() == bytes([number % 256]) * size


def test_only_a_source_that_answers_is_waited_for() -> None:
    """What waits behind requests without an answer fails soon after these."""

    async def read(address: str) -> list[object]:
        async with clients(address, 1, 30.0, "off") as [store]:
            return await asyncio.gather(
                *(store.getsize(f"k{number}") for number in range(COUNT)), return_exceptions=True
            )

    with Server(Slow(MemoryStore(), 3600), source_timeout=1.0) as server:
        begun = time.monotonic()
        found = asyncio.run(read(server.address))
        assert time.monotonic() - begun < 15
    assert all(isinstance(one, StorageError) for one in found)
    texts = failures(found)
    assert any("no answer within 1 s" in text for text in texts)
    assert any("has answered nothing for 1 s" in text for text in texts)


def test_a_client_waits_no_longer_than_its_own_time_for_one_that_does_not_move() -> None:
    async def read(address: str) -> object:
        async with clients(address, 1, 1.0, "off") as [store]:
            [result] = await asyncio.gather(store.get("k", PROTOTYPE), return_exceptions=True)
            return result

    with Server(Slow(MemoryStore(), 3600), source_timeout=20.0) as server:
        begun = time.monotonic()
        result = asyncio.run(read(server.address))
        assert time.monotonic() - begun < 10
    assert "nothing came for 'k' within 1 s" in str(result)


def test_new_values_of_different_keys_do_not_wait_for_each_other() -> None:
    async def write(address: str) -> list[object]:
        async with clients(address, 1, 10.0, "off") as [store]:
            return await asyncio.gather(
                *(
                    store.set_if_not_exists(f"k{number}", PROTOTYPE.buffer.from_bytes(b"v"))
                    for number in range(32)
                ),
                return_exceptions=True,
            )

    with Server(Slow(MemoryStore(), 0.25), source_timeout=4.0) as server:
        assert not failures(asyncio.run(write(server.address)))
