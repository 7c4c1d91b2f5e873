"""The server stands still: requests time out, whatever it does when it goes on."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest
from zarr.core.buffer import cpu

from tests.adversity.conftest import PATIENCE, OpenStore
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
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
from tests.eventually import eventually, nothing_happens
from tests.values import as_buffer
from ucxstore import ConnectError, RequestTimeoutError, ServerLostError, UcxStore

TIMEOUT = 2.0

# From the deadline to the exception: UCX must first let go of the memory.
RELEASE = 20.0


@pytest.fixture
def store(server: RemoteServer, open_store: OpenStore) -> Iterator[UcxStore]:
    yield open_store(server, timeout=TIMEOUT)
    server.process.go_on()  # so that it can end


def work(store: UcxStore) -> None:
    out = filled(BLANK, MEDIUM)
    assert store.get_into_sync("other", out) == MEDIUM
    assert (out == 3).all()


def in_time[T](request: Callable[[], T]) -> T:
    """Repeat a request until it is not the machine that is too slow for `TIMEOUT`."""
    answers: list[T] = []

    def is_answered() -> bool:
        with suppress(RequestTimeoutError):
            answers.append(request())
        return bool(answers)

    eventually(is_answered, PATIENCE)
    return answers[0]


def stopped_in_mid_read(server: RemoteServer, store: UcxStore, out: Bytes) -> Repeated:
    """Return a read into `out` that has begun and goes on no more."""
    reading = read_forever(store, out)
    while True:
        until_begun(out)
        server.process.stop()
        if partly_filled(out):
            reading.mark()
            return reading
        server.process.go_on()


def test_while_a_value_is_read(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = stopped_in_mid_read(server, store, out)
    while reading.running:
        work(other)
    error, message = reading.failure(TIMEOUT + RELEASE)
    assert error is RequestTimeoutError
    assert server.place in message
    assert "'key'" in message
    assert partly_filled(out)
    before = out.copy()
    server.process.go_on()
    # A new connection, the same client.
    assert in_time(lambda: store.get_into_sync("key", filled(BLANK))) == LARGE
    work(other)
    assert np.array_equal(out, before)


async def test_while_a_value_is_awaited(
    server: RemoteServer, store: UcxStore, other: UcxStore
) -> None:
    await store.set("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = await begin_to_read(store, out)
    await asyncio.to_thread(server.process.stop)
    with pytest.raises(RequestTimeoutError, match=server.place):
        await asyncio.wait_for(reading, TIMEOUT + RELEASE)
    before = out.copy()
    server.process.go_on()
    assert await store.getsize("key") == LARGE
    await asyncio.to_thread(work, other)
    assert np.array_equal(out, before)


def test_while_a_value_is_written(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(1)))
    sources = [filled(2), filled(3)]
    writing = Repeated(
        lambda: [store.set_sync("key", cpu.Buffer.from_array_like(source)) for source in sources]
    )
    eventually(lambda: writing.rounds)
    server.process.stop()
    writing.mark()
    error, message = writing.failure(TIMEOUT + RELEASE)
    assert issubclass(error, RequestTimeoutError)
    assert server.place in message
    for source in sources:
        source[:] = 0x77  # it is the caller's again: nobody may read this from it
    work(other)
    server.process.go_on()
    found = in_time(lambda: store.get_sync("key"))
    assert found is not None
    array = found.as_numpy_array()
    assert array[0] in {2, 3}
    assert (array == array[0]).all()


def test_before_a_request(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    server.process.stop()
    requests = [
        Background(lambda: store.get_into_sync("key", out)),
        Background(lambda: store.get_sync("key")),
        Background(lambda: asyncio.run(store.getsize("key"))),
        Background(lambda: asyncio.run(store.set("key", as_buffer(bytes(MEDIUM))))),
    ]
    work(other)
    for request in requests:
        error, message = request.failure(TIMEOUT + RELEASE)
        # UCX had the memory of a write; to get it back, the connection was closed.
        assert issubclass(error, RequestTimeoutError | ServerLostError)
        assert server.place in message
    assert requests[0].error is not None
    server.process.go_on()
    assert in_time(lambda: store.get_sync("key")) is not None
    assert (out == BLANK).all()


def test_one_that_goes_on_in_time(server: RemoteServer, open_store: OpenStore) -> None:
    store = open_store(server, timeout=PATIENCE)
    store.set_sync("key", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = stopped_in_mid_read(server, store, out)
    server.process.go_on()
    rounds = reading.rounds
    eventually(lambda: reading.rounds > rounds)
    with reading:
        pass


def test_while_connecting(server: RemoteServer, open_store: OpenStore) -> None:
    server.process.stop()
    store = open_store(server, connect_timeout=0.3)
    request = Background(lambda: store.get_sync("key"))
    error, message = request.failure(0.3 + RELEASE)
    assert issubclass(error, ConnectError)
    assert re.search(rf"{server.place}.*within 0\.\d+ s", message)
    server.process.go_on()

    def answers() -> bool:
        with suppress(ConnectError):  # again, as 0.3 s are little on a busy machine
            return store.get_sync("key") is None
        return False

    eventually(answers)


def test_one_that_has_much_to_do_is_waited_for(server: RemoteServer, native_clients: None) -> None:
    """With the defaults, for longer than a host may take that is not there."""
    server.process.stop()
    with UcxStore(server.address) as store:
        waiting = Background(lambda: store.get_sync("key"))
        nothing_happens(6)
        assert waiting.running
        server.process.go_on()
        waiting.join(6 + PATIENCE)
        assert waiting.error is None
