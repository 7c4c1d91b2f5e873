"""Clients that ask for much at once: the others get their turn, and a grant ends when it ends."""

import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore, WrapperStore

from tests.adversity.greedy import raw
from tests.adversity.greedy.raw import RawClient
from tests.eventually import eventually, eventually_async
from tests.values import as_buffer, keys_of
from ucxstore import Secret, UcxStore
from ucxstore.server import Server

SECRET = "a secret of the server"

LISTINGS = 3000
# So many names that a listing takes some milliseconds.
NAMES = 4000


def test_others_get_their_turn_beside_thousands_of_listings(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    for number in range(NAMES):
        (tmp_path / "large" / str(number)).touch()
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "key").write_bytes(b"value")
    with Server(tmp_path, local=True) as server, RawClient(server.address, timeout=120) as greedy:
        answered = 0

        def read() -> None:
            nonlocal answered
            while (message := greedy.receive()) is not None:
                answered += message.kind == raw.REPLY and message.status != raw.GOING_ON
                if answered == LISTINGS:
                    return

        def ask() -> None:
            with suppress(OSError):  # at the end
                for _ in range(LISTINGS):
                    greedy.request(raw.LIST, raw.listing("large/"))

        threads = [threading.Thread(target=work) for work in (read, ask)]
        for thread in threads:
            thread.start()
        eventually(lambda: answered > 0)
        with RawClient(server.address, timeout=120) as honest:
            for _ in range(3):
                before = answered
                reply = honest.answer(honest.request(raw.MEASURE, raw.measure("small/")))
                assert reply is not None
                assert reply.status == raw.OK
                assert answered - before < LISTINGS / 10
        greedy.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


class Held(WrapperStore[MemoryStore]):
    """Lists nothing below "mine/slow/", and writes nothing there, until it is let go."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked = 0
        self.let_go = False

    async def _wait(self) -> None:
        self.asked += 1
        await eventually_async(lambda: self.let_go, pause=0.01)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        if prefix.startswith("mine/slow"):
            await self._wait()
        async for name in super().list_prefix(prefix):
            yield name

    async def set(self, key: str, value: Buffer) -> None:
        if key == "mine/victims/0":
            await self._wait()
        await super().set(key, value)


@pytest.mark.parametrize("change", ["remove_prefix", "remove", "set"])
def test_a_change_that_waits_beyond_its_grant_is_not_made(change: str) -> None:
    """It waits behind another change of the same key."""
    values = MemoryStore()
    store = Held(values)
    keys = [f"mine/victims/{number}" for number in range(100)]
    for key in keys:
        sync(values.set(key, as_buffer(b"value")))
    seconds = 3
    with (
        Server(store, local=True, secret=SECRET) as server,
        UcxStore(server.address, secret=SECRET, timeout=60) as honest,
    ):
        writing = threading.Thread(target=honest.set_sync, args=(keys[0], as_buffer(b"honest")))
        writing.start()
        eventually(lambda: store.asked)
        grant = Secret(SECRET).grant("mine/", expires=f"{seconds}s")
        ends = time.time() + seconds + 1
        with RawClient(server.address, grant, timeout=60) as greedy:
            if change == "set":
                number = 1000
                greedy.value(keys[0].encode(), b"another", request=number)
            elif change == "remove":
                number = greedy.request(raw.REMOVE, raw.keys(keys), count=len(keys))
            else:
                number = greedy.request(raw.REMOVE_PREFIX, raw.text("mine/victims/"))
            assert greedy.answer(greedy.request(raw.PING)) is not None  # it has been read
            eventually(lambda: time.time() > ends)
            store.let_go = True
            reply = greedy.answer(number)
            assert reply is not None
            assert (reply.status, reply.body[:10]) == (raw.DENIED, b"was refuse")
        writing.join()
        assert sorted(sync(keys_of(honest, "mine/victims/"))) == sorted(keys)
        found = sync(values.get(keys[0], default_buffer_prototype()))
        assert found is not None
        assert found.to_bytes() == b"honest"


def test_listings_that_come_after_the_end_of_a_grant_are_not_told() -> None:
    store = Held(MemoryStore())
    sync(store.set("mine/slow/key", as_buffer(b"value")))
    seconds = 2
    with Server(store, local=True, secret=SECRET) as server:
        grant = Secret(SECRET).grant("mine/", expires=f"{seconds}s")
        ends = time.time() + seconds + 1
        with RawClient(server.address, grant, timeout=60) as client:
            number = client.request(raw.LIST, raw.listing("mine/slow/"))
            eventually(lambda: store.asked)
            eventually(lambda: time.time() > ends)
            store.let_go = True
            reply = client.answer(number)
            assert reply is not None
            assert reply.status == raw.DENIED
            assert b"has expired" in reply.body
