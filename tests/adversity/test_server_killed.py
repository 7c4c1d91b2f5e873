"""The server is killed: every request fails in bounded time, and lets go of its memory."""

import asyncio
import gc
import re
import weakref

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype

from tests.adversity.conftest import OpenStore, StartServer
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
    DEADLINE,
    LARGE,
    MEDIUM,
    VALUE,
    Background,
    Bytes,
    Repeated,
    begin_to_read,
    filled,
    partly_filled,
    read_forever,
    until_begun,
)
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import ChangeLostError, ConnectError, ServerLostError, ServerRestartedError, UcxStore

PROTOTYPE = default_buffer_prototype()


def work(store: UcxStore) -> None:
    """Use the native client in every way, so that it also does any work that is still pending."""
    for number in range(20):
        store.set_sync(f"small/{number}", as_buffer(bytes(1000)))
        assert store.get_sync(f"small/{number}") is not None
    out = filled(BLANK, MEDIUM)
    assert store.get_into_sync("other", out) == MEDIUM
    assert (out == 3).all()


def stays(out: Bytes, store: UcxStore) -> bool:
    """Tell whether `out` stays as it is while the native client works on."""
    before = out.copy()
    work(store)
    return np.array_equal(out, before)


def read(store: UcxStore, out: Bytes) -> Background:
    return Background(lambda: store.get_into_sync("key", out))


def write(store: UcxStore, source: Bytes) -> Background:
    return Background(lambda: store.set_sync("key", cpu.Buffer.from_array_like(source)))


# ---- in mid-transfer ----


def test_while_a_value_is_read(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = read_forever(store, out)
    until_begun(out)
    server.process.kill()
    error, message = reading.failure()
    assert error is ServerLostError
    assert server.place in message
    assert partly_filled(out)
    assert stays(out, other)


def test_while_a_stopped_server_owes_a_value(
    server: RemoteServer, store: UcxStore, other: UcxStore
) -> None:
    store.set_sync("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = read_forever(store, out)
    until_begun(out)
    server.process.stop()
    assert reading.running
    work(other)
    server.process.kill()
    assert reading.failure()[0] is ServerLostError
    assert stays(out, other)


async def test_while_a_value_is_awaited(
    server: RemoteServer, store: UcxStore, other: UcxStore
) -> None:
    await store.set("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = await begin_to_read(store, out)
    server.process.kill()
    with pytest.raises(ServerLostError, match=server.place):
        await asyncio.wait_for(reading, DEADLINE)
    assert await asyncio.to_thread(stays, out, other)


def test_while_a_value_is_written(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    source = filled(VALUE)
    gone = weakref.ref(source)
    writing = write(store, source)
    before = server.process.resident
    eventually(lambda: server.process.resident > before + LARGE // 8)
    server.process.kill()
    error, message = writing.failure()
    assert error is ChangeLostError
    assert server.place in message
    work(other)
    assert (source == VALUE).all()
    del source, writing
    gc.collect()
    assert gone() is None
    work(other)


def test_while_many_threads_transfer(
    server: RemoteServer, store: UcxStore, other: UcxStore
) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    outs = [filled(BLANK, MEDIUM) for _ in range(6)]
    value = as_buffer(filled(VALUE, MEDIUM))
    transfers = [read_forever(store, out) for out in outs]
    transfers += [
        Repeated(lambda name=f"{number}": store.set_sync(name, value)) for number in range(2)
    ]
    transfers.append(Repeated(lambda: store.get_sync("key")))
    eventually(lambda: all(transfer.rounds for transfer in transfers))
    until_begun(*outs)
    server.process.kill()
    errors = set()
    for transfer in transfers:
        error, message = transfer.failure()
        errors.add(error)
        assert server.place in message
    # Also for a reader that was between two requests, and fails to connect.
    assert errors <= {ServerLostError, ChangeLostError}
    before = [out.copy() for out in outs]
    work(other)
    assert all(map(np.array_equal, outs, before))


def test_while_many_requests_are_awaited(server: RemoteServer, store: UcxStore) -> None:
    async def read(number: int) -> None:
        while True:
            await store.get("key", PROTOTYPE)
            await store.set(f"{number}", as_buffer(bytes(10_000)))

    async def main() -> list[BaseException | None]:
        await store.set("key", as_buffer(filled(VALUE, MEDIUM // 10)))
        readers = [asyncio.create_task(read(number)) for number in range(30)]
        await store.set("warm", as_buffer(filled(VALUE, MEDIUM // 10)))
        server.process.kill()
        return await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), DEADLINE)

    errors = asyncio.run(main())
    assert len(errors) == 30
    assert {type(error) for error in errors} <= {ServerLostError, ChangeLostError}
    assert all(server.place in str(error) for error in errors)


def test_while_an_array_is_read(server: RemoteServer, store: UcxStore) -> None:
    shape = (3000, 3000)
    array = zarr.create_array(
        store, shape=shape, chunks=(300, 300), dtype="f8", compressors=None, fill_value=-1.0
    )
    array[...] = np.ones(shape)

    def read() -> None:
        assert (array[...] == 1).all()  # what is missing would be -1

    reading = Repeated(read)
    eventually(lambda: reading.rounds)
    server.process.kill()
    error, message = reading.failure()
    assert error is ServerLostError
    assert server.place in message


# ---- between requests ----


def test_before_the_first_request(server: RemoteServer, open_store: OpenStore) -> None:
    store = open_store(server, connect_timeout=1.0)  # a server that it never met is waited for
    server.process.kill()
    request = Background(lambda: store.get_sync("key"))
    error, message = request.failure()
    assert error is ConnectError
    assert server.place in message


def test_a_failed_attempt_holds_no_memory(server: RemoteServer, open_store: OpenStore) -> None:
    store = open_store(server, connect_timeout=1.0)
    server.process.kill()
    out = filled(BLANK, MEDIUM)
    gone = weakref.ref(out)
    gc.disable()  # it must go by itself
    try:
        attempt = read(store, out)
        assert attempt.failure()[0] is ConnectError
        del out
        assert gone() is None
    finally:
        gc.enable()


async def test_while_idle(server: RemoteServer, store: UcxStore) -> None:
    await store.set("key", as_buffer(b"value"))
    server.process.kill()
    for _ in range(2):
        with pytest.raises(ServerLostError, match=re.escape(server.place)):
            await asyncio.wait_for(store.get("key"), DEADLINE)
    with pytest.raises(ServerLostError, match=re.escape(server.place)):
        store.set_sync("key", as_buffer(b"other"))


def test_an_idle_client_notices(server: RemoteServer, store: UcxStore) -> None:
    store.set_sync("key", as_buffer(b"value"))
    assert store.stats()["lanes"]
    server.process.kill()
    eventually(lambda: not store.stats()["lanes"], DEADLINE)


def test_another_server_at_the_same_place(
    server: RemoteServer, store: UcxStore, start_server: StartServer
) -> None:
    store.set_sync("key", as_buffer(b"value"))
    server.process.kill()
    eventually(lambda: not store.stats()["lanes"])
    start_server(bind=server.place)
    with pytest.raises(ServerRestartedError, match=re.escape(server.place)):
        store.get_sync("key")
    store.accept_restarted_sync()
    assert store.get_sync("key") is None
    store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
    out = filled(BLANK, MEDIUM)
    assert store.get_into_sync("key", out) == MEDIUM
    assert (out == VALUE).all()


def test_again_and_again(
    server: RemoteServer, store: UcxStore, start_server: StartServer, other: UcxStore
) -> None:
    """Killed in mid-transfer each time, and a new one starts at the same place."""
    for _ in range(4):
        store.set_sync("key", as_buffer(filled(VALUE, MEDIUM)))
        out = filled(BLANK, MEDIUM)
        reading = read_forever(store, out)
        until_begun(out)
        server.process.kill()
        assert reading.failure()[0] is ServerLostError
        work(other)
        server = start_server(bind=server.place)
        store.accept_restarted_sync()
