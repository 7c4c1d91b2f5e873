"""The one server of a store comes back, without what it held or with it."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.errors import ArrayNotFoundError

from tests.adversity.conftest import OpenStore, StartServer, Ucx
from tests.adversity.scripts import Script
from tests.adversity.servers import RemoteServer
from tests.eventually import eventually
from ucxstore import ServerRestartedError, UcxStore

VALUES = np.arange(10_000).reshape(100, 100)


def make_array(store: UcxStore) -> zarr.Array:
    return zarr.create_array(store, name="a", data=VALUES, chunks=(10, 100), fill_value=-1)


def start_again(
    server: RemoteServer, store: UcxStore, start_server: StartServer, root: str | Path
) -> None:
    server.process.kill()
    eventually(lambda: not store.stats()["lanes"])
    start_server(root, bind=server.place)


async def test_chunks_are_never_fill_values(
    start_server: StartServer, open_store: OpenStore, ucx: Ucx, tmp_path: Path
) -> None:
    server = start_server()
    store = open_store(server)
    array = make_array(store)
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(array))
    start_again(server, store, start_server, "memory://")
    for each in (array, pickle.loads(pickled.read_bytes())):
        for _ in range(2):
            with pytest.raises(ServerRestartedError, match=server.place):
                each[...]
            with pytest.raises(ServerRestartedError, match=server.place):
                each[5] = 0
    for other in (store, store.with_read_only(True)):
        with pytest.raises(ServerRestartedError, match=server.place):
            await other.get("a/c/0/0")
        with pytest.raises(ServerRestartedError, match=server.place):
            other.get_sync("a/c/0/0")
    # A process that has never met the server that is gone.
    code = f"""
import pathlib, pickle
array = pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes())
try:
    print(array[:])
except ServerRestartedError as error:
    print(error)
"""
    with Script(server.address, ucx, code) as script:
        assert script.end().startswith(f"{server.place}: the server has restarted")


def test_what_begins_anew_relies_on_nothing(
    start_server: StartServer, open_store: OpenStore
) -> None:
    server = start_server()
    store = open_store(server)
    array = make_array(store)
    start_again(server, store, start_server, "memory://")
    anew = open_store(server)
    with pytest.raises(ArrayNotFoundError):
        zarr.open_array(anew, path="a", mode="r")
    with pytest.raises(ServerRestartedError):
        array[...]
    store.accept_restarted_sync()
    assert (array[...] == -1).all()
    array[...] = VALUES
    copy = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(copy[...], VALUES)


def test_a_directory_has_lost_nothing(
    start_server: StartServer, open_store: OpenStore, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "data")
    store = open_store(server)
    array = make_array(store)
    start_again(server, store, start_server, tmp_path / "data")
    np.testing.assert_array_equal(array[...], VALUES)


@pytest.mark.parametrize("ucx", [{}], ids=["shared-memory"])
@pytest.mark.parametrize("begun", [True, False], ids=["read before", "only opened"])
def test_an_array_at_a_url(
    start_server: StartServer, ucx: Ucx, tmp_path: Path, begun: bool
) -> None:
    """zarr's store pickles its file system, which pickles the identities that it knows."""
    server = start_server()
    zarr.create_array(f"{server.address}/a", data=VALUES, fill_value=-1)
    array = zarr.open_array(f"{server.address}/a", mode="r")
    assert not begun or (array[...] == VALUES).all()
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(array))
    server.process.kill()
    start_server(bind=server.place)

    def is_refused() -> bool:
        with pytest.raises(ConnectionError, match=server.place) as failure:
            array[...]
        return failure.type is ServerRestartedError

    eventually(is_refused)
    code = f"""
import pathlib, pickle
array = pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes())
again = pickle.loads(pickle.dumps(array))
for one in (array, again, array):
    try:
        print(one[:])
    except ServerRestartedError as error:
        print(error)
"""
    with Script(server.address, ucx, code) as script:
        lines = script.end().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{server.place}: the server has restarted") for line in lines)
