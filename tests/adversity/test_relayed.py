"""Somebody in the middle who passes a client on to another server of the same secret."""

import pickle
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.adversity.fake_servers import FakeServer, relays_to
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import ServerRestartedError, UcxStore
from ucxstore.base.secret import Secret
from ucxstore.server import Server

SECRET = "the same secret everywhere"
VALUE = as_buffer(b"value")


class Relay(FakeServer):
    """Pass every new client on to a server, which can be exchanged for another."""

    def __init__(self, server: Server) -> None:
        self.server = server
        super().__init__(lambda sock: relays_to(self.server.address.removeprefix("ucx://"))(sock))

    def switch(self, server: Server) -> None:
        self.server = server
        self.hang_up()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server("memory://", secret=SECRET, local=False)) for _ in range(3)
        ]


def is_untouched(server: Server) -> bool:
    stats = server.stats()
    return stats["gets"] == stats["sets"] == stats["bytes_received"] == stats["bytes_sent"] == 0


def test_is_refused_by_who_has_met_the_right_one(servers: list[Server]) -> None:
    right, other, _ = servers
    with Relay(right) as relay, UcxStore(relay.address, secret=SECRET, timeout=20) as store:
        store.set_sync("key", VALUE)
        relay.switch(other)
        eventually(lambda: not store.stats()["lanes"])
        with pytest.raises(ServerRestartedError, match="expected the storage"):
            store.get_sync("key")  # which is missing there
        with pytest.raises(ServerRestartedError, match="expected the storage"):
            store.set_sync("key", VALUE)
        assert is_untouched(other)
        relay.switch(right)
        eventually(lambda: not store.stats()["lanes"])
        assert store.get_sync("key") is not None


def test_is_refused_by_copies_of_the_store(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, other, _ = servers
    monkeypatch.setenv("UCXSTORE_SECRET", SECRET)
    with Relay(right) as relay, UcxStore(relay.address, secret=Secret.of(SECRET)) as store:
        store.set_sync("key", VALUE)
        pickled = pickle.dumps(store)
        relay.switch(other)
        eventually(lambda: right.sessions == 0)
        eventually(lambda: not store.stats()["lanes"])
        with pickle.loads(pickled) as copy, pytest.raises(ServerRestartedError):
            copy.get_sync("key")
        assert is_untouched(other)


def test_is_refused_by_who_knows_the_set_alone(servers: list[Server]) -> None:
    """The servers' own record says which identities belong together."""
    one, two, foreign = servers
    with Relay(one) as first, Relay(two) as second:
        address = f"ucx://{first.place},{second.place}"
        with UcxStore(address, secret=SECRET) as store:
            for number in range(16):
                store.set_sync(f"key/{number}", VALUE)
        first.switch(foreign)
        eventually(lambda: one.sessions == 0)
        refused: list[str] = []
        with UcxStore(address, secret=SECRET) as anew:
            for number in range(16):
                try:
                    assert anew.get_sync(f"key/{number}") is not None
                except ServerRestartedError as error:
                    refused.append(str(error))
        assert 0 < len(refused) < 16  # of the keys that are placed there
        assert all("expected the storage" in text for text in refused)
        assert is_untouched(foreign)


def test_aliases_do_no_harm(servers: list[Server]) -> None:
    """What counts is who answers, and not by which address."""
    right, *_ = servers
    with Relay(right) as relay, UcxStore(relay.address, secret=SECRET) as store:
        store.set_sync("key", VALUE)
        with UcxStore(right.address, secret=SECRET) as direct:
            assert direct.get_sync("key") is not None
