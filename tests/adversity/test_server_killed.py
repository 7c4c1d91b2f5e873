"""The server is killed: every request fails in bounded time, and lets go of its memory."""

import numpy as np
import pytest

from tests.adversity.conftest import OpenStore, StartServer
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
    VALUE,
    Bytes,
    Repeated,
    as_buffer,
    filled,
    partly_filled,
    wipe,
)
from tests.eventually import eventually
from ucxstore import ServerLostError, UcxStore

SMALL = 40_000_000


@pytest.fixture
def other(start_server: StartServer, open_store: OpenStore) -> UcxStore:
    """A store on another server, which shares the native client with the one that is lost."""
    store = open_store(start_server())
    store.set_sync("other", as_buffer(filled(3, SMALL)))
    return store


def work(store: UcxStore) -> None:
    """Have the native client do all it does, so that whatever it still meant to write is written."""
    out = filled(BLANK, SMALL)
    for number in range(20):
        store.set_sync(f"small/{number}", as_buffer(bytes(1000)))
        assert store.get_sync(f"small/{number}") is not None
    assert store.get_into_sync("other", out) == SMALL
    assert (out == 3).all()


def untouched(out: Bytes, store: UcxStore) -> bool:
    """Tell whether `out` stays as it is while the native client works on."""
    before = out.copy()
    work(store)
    return np.array_equal(out, before)


def read_forever(store: UcxStore, out: Bytes, key: str = "large") -> Repeated:
    def read() -> None:
        wipe(out)
        assert store.get_into_sync(key, out) == out.size

    return Repeated(read)


def test_while_a_value_is_read(server: RemoteServer, store: UcxStore, other: UcxStore) -> None:
    store.set_sync("large", as_buffer(filled(VALUE)))
    out = filled(BLANK)
    reading = read_forever(store, out)
    eventually(lambda: partly_filled(out))
    server.process.kill()
    reading.mark()
    error, message = reading.failure()
    assert error is ServerLostError
    assert server.place in message
    assert partly_filled(out)
    assert untouched(out, other)
