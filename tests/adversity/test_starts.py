"""One of several servers has restarted before a process comes that knows only the address."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import zarr

from tests.adversity.conftest import PATIENCE, OpenStore, StartServer, Ucx, any_transport
from tests.adversity.scripts import Script
from tests.adversity.servers import RemoteServer
from tests.adversity.test_several_servers import key_on
from tests.adversity.transfers import Background
from tests.conftest import address_of
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import ConnectError, ServerLostError, ServerRestartedError, UcxStore
from ucxstore.cluster.agreement import Agreement
from ucxstore.cluster.placement import Placement

pytestmark = pytest.mark.usefixtures("retried_soon")

VALUES = np.arange(60)

# Reads chunk by chunk, and prints what each comes to.
READ = """
import zarr
array = zarr.open_array(store, path="a", mode="r")
def look(i):
    try:
        return int(array[i])
    except ConnectionError as error:
        return f"{type(error).__name__} {error}"
"""
PRINT_ALL = "print(*map(look, range(60)), sep='\\n')"


def make_array(store: UcxStore) -> None:
    zarr.create_array(store, name="a", data=VALUES, chunks=(1,), fill_value=-1)


def write_elsewhere(address: str, ucx: Ucx) -> None:
    code = "import zarr; zarr.create_array(store, name='a', data=np.arange(60), chunks=(1,), "
    with Script(address, ucx, code + "fill_value=-1)") as script:
        script.end()


def read_elsewhere(address: str, ucx: Ucx, code: str = READ + PRINT_ALL) -> list[str]:
    with Script(address, ucx, code) as script:
        return script.end().splitlines()


def expect_refused(lines: list[str], place: str) -> None:
    """Some chunks are what they were, the others are the restarted server's."""
    refused = f"ServerRestartedError {place}: the server has restarted"
    held = [number for number, line in zip(VALUES, lines, strict=True) if line == str(number)]
    assert sum(line.startswith(refused) for line in lines) == len(VALUES) - len(held) > 0
    assert held


def number_on(own: list[RemoteServer], wanted: RemoteServer) -> int:
    """Return which of the array's chunks is on a server."""
    placement = Placement([server.place for server in own])
    places = placement.servers_of([f"a/c/{number}" for number in VALUES])
    return places.index(own.index(wanted))


@any_transport
def test_processes_that_come_later(
    own: list[RemoteServer], start_server: StartServer, ucx: Ucx, open_store: OpenStore
) -> None:
    address, place = address_of(own), own[1].place
    write_elsewhere(address, ucx)
    relies = zarr.open_array(open_store(address), path="a", mode="r")
    assert (relies[:] == VALUES).all()
    lost = number_on(own, own[1])
    own[1].process.kill()
    code = f"print(look({lost})); input(); eventually(lambda: 'Restarted' in str(look({lost})))\n"
    with Script(address, ucx, READ + code + PRINT_ALL) as early:
        assert place in early.line()  # it has come while the server was away
        own[1] = start_server(bind=place)
        early.say("\n")
        expect_refused(early.end().splitlines(), place)
    expect_refused(read_elsewhere(address, ucx), place)
    # One process accepts the loss, and so do all that come after it.
    fills = read_elsewhere(address, ucx, "store.accept_restarted_sync()\n" + READ + PRINT_ALL)
    assert fills == read_elsewhere(address, ucx)
    assert fills[lost] == "-1"
    assert all(line in {str(number), "-1"} for number, line in enumerate(fills))
    with pytest.raises(ServerRestartedError, match=place):
        relies[:]


@pytest.mark.parametrize("ucx", [{}], ids=["shared-memory"])
def test_all_have_restarted(
    own: list[RemoteServer], start_server: StartServer, ucx: Ucx, open_store: OpenStore
) -> None:
    """Nothing old is left that could mix with new chunks, so new processes may use all servers."""
    address = address_of(own)
    relies = open_store(address)
    make_array(relies)
    for server in own:
        server.process.kill()
    for position, server in enumerate(own):
        own[position] = start_server(bind=server.place)
        key = key_on(own, own[position])
        eventually(lambda key=key: is_refused(relies, key))
    write_elsewhere(address, ucx)
    assert read_elsewhere(address, ucx) == [str(number) for number in VALUES]


def found(store: UcxStore, key: str) -> bytes | None:
    """Return a value; ``None`` also where its server is not there."""
    with suppress(ConnectionError):
        value = store.get_sync(key)
        return None if value is None else value.to_bytes()
    return None


def is_refused(store: UcxStore, key: str) -> bool:
    with pytest.raises((ServerLostError, ConnectError)) as failure:
        store.get_sync(key)
    return failure.type is ServerRestartedError


@pytest.mark.parametrize("ucx", [{}], ids=["shared-memory"])
def test_only_the_restarted_one_is_there_at_first(
    own: list[RemoteServer],
    start_server: StartServer,
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = address_of(own)
    with open_store(address) as store:
        make_array(store)
    own[1].process.kill()
    own[1] = start_server(bind=own[1].place)
    for other in (own[0], own[2]):
        other.process.stop()
    store = open_store(address, connect_timeout=3)
    key = f"a/c/{number_on(own, own[1])}"
    # Nothing there tells of what was lost, so it is not used before the others have told.
    with pytest.raises(ConnectError, match="they keep no record of a set of servers yet"):
        store.get_sync(key)
    for other in (own[0], own[2]):
        other.process.go_on()
    eventually(lambda: found(store, "a/zarr.json") is not None)
    assert is_refused(store, key)


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "stops"])
def test_a_server_goes_while_the_record_is_made(
    own: list[RemoteServer],
    start_server: StartServer,
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,
) -> None:
    going = own[1].process
    keep = Agreement.keep

    def go_first(self: Agreement, *arguments: Any) -> Any:
        monkeypatch.setattr(Agreement, "keep", keep)
        going.kill() if ends else going.stop()
        return keep(self, *arguments)

    monkeypatch.setattr(Agreement, "keep", go_first)
    store = open_store(address_of(own), connect_timeout=5)
    keys = [key_on(own, server) for server in own]
    attempt = Background(lambda: store.set_sync(keys[0], as_buffer(b"value")))
    error, message = attempt.failure(PATIENCE)
    assert issubclass(error, ConnectError)
    assert own[1].place in message
    if ends:
        own[1] = start_server(bind=own[1].place)
        with open_store(address_of(own)) as other:
            # Where one of the others has kept the record by then, the lost one belongs to it.
            with suppress(ServerRestartedError):
                other.set_sync(keys[1], as_buffer(b"value"))
            other.set_sync(keys[0], as_buffer(b"value"))
            assert found(other, keys[0]) == b"value"
        return
    going.go_on()
    eventually(lambda: can_set(store, keys[1]))
    for key in keys:
        store.set_sync(key, as_buffer(b"value"))
        assert found(store, key) == b"value"


def can_set(store: UcxStore, key: str) -> bool:
    with suppress(ConnectionError):
        store.set_sync(key, as_buffer(b"value"))
        return True
    return False
