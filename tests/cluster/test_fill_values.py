"""No value is read as missing because a server has another storage, name or place than before."""

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.conftest import address_of, place_of
from tests.eventually import eventually
from ucxstore import ServerRestartedError, UcxStore
from ucxstore.server import Server

pytestmark = pytest.mark.usefixtures("retried_soon")

VALUES = np.arange(10_000)

type Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def start_one(storage: str | Path = "memory://", at: str = "127.0.0.1:0") -> Server:
            create = storage != "memory://"
            return stack.enter_context(Server(storage, at, create=create))

        yield start_one


@pytest.fixture(params=["memory", "directory"])
def three(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> list[Server]:
    memory = request.param == "memory"
    return [start("memory://" if memory else tmp_path / str(number)) for number in range(3)]


def port_of(server: Server) -> str:
    return server.address.rpartition(":")[2]


def write(address: str) -> None:
    with UcxStore(address) as store:
        zarr.create_array(store, name="a", data=VALUES, chunks=(100,), fill_value=-1)


def read(address: str, **options: float) -> np.ndarray:
    with UcxStore(address, **options) as store:
        return zarr.open_array(store, path="a", mode="r")[...]  # type: ignore[return-value]


def read_chunks(store: UcxStore) -> tuple[int, list[str]]:
    """Read chunk by chunk: each has its values, or raises. Return how many do, and the errors."""
    array = zarr.open_array(store, path="a", mode="r")
    held, errors = 0, []
    for at in range(0, len(VALUES), 100):
        try:
            found = array[at : at + 100]
        except ConnectionError as error:
            errors.append(str(error))
        else:
            np.testing.assert_array_equal(found, VALUES[at : at + 100])
            held += 1
    return held, errors


def named(servers: Sequence[Server], hosts: Sequence[str]) -> str:
    places = [f"{host}:{port_of(one)}" for host, one in zip(hosts, servers, strict=True)]
    return f"ucx://{','.join(places)}"


# ---- another storage ----


def unmount(directory: Path) -> Path:
    """Put an empty directory in the place of another one, as where nothing is mounted."""
    kept = directory.with_suffix(".kept")
    directory.rename(kept)
    directory.mkdir()
    return kept


def test_one_server_of_a_directory_that_is_not_mounted(start: Start, tmp_path: Path) -> None:
    server = start(tmp_path / "data")
    write(server.address)
    with UcxStore(server.address) as store:
        array = zarr.open_array(store, path="a", mode="r")
        assert (array[:100] == VALUES[:100]).all()
        pickled = pickle.dumps(array)
        server.close()
        kept = unmount(tmp_path / "data")
        empty = start(tmp_path / "data", place_of(server))
        # Its metadata may come back from somewhere, and then its chunks would be fill values.
        eventually(lambda: "expected the storage" in failure(lambda: array[...]))
        assert "expected the storage" in failure(lambda: pickle.loads(pickled)[...])
        assert "expected the storage" in failure(lambda: store.get_sync("a/c/0"))
        empty.close()
        shutil.rmtree(tmp_path / "data")
        kept.rename(tmp_path / "data")
        start(tmp_path / "data", place_of(server))
        eventually(lambda: not failure(lambda: array[...]))
        np.testing.assert_array_equal(array[...], VALUES)


def failure(action: Callable[[], object]) -> str:
    try:
        action()
    except ConnectionError as error:
        return str(error)
    return ""


def test_one_of_several_directories_that_is_not_mounted(start: Start, tmp_path: Path) -> None:
    servers = [start(tmp_path / str(number)) for number in range(3)]
    address = address_of(servers)
    write(address)
    for server in servers:
        server.close()
    unmount(tmp_path / "1")
    again = [start(tmp_path / str(n), place_of(server)) for n, server in enumerate(servers)]
    with UcxStore(address) as store:
        held, errors = read_chunks(store)
    assert held > 0
    assert len(errors) > 0
    assert all(place_of(again[1]) in error for error in errors)
    assert all(again[1].identity.hex() in error for error in errors)
    assert all(servers[1].identity.hex() in error for error in errors)


def test_all_directories_are_not_mounted(start: Start, tmp_path: Path) -> None:
    """A client that was there before notices; one that comes now can know of nothing."""
    servers = [start(tmp_path / str(number)) for number in range(2)]
    address = address_of(servers)
    write(address)
    with UcxStore(address) as store:
        assert read_chunks(store) == (100, [])
        array = zarr.open_array(store, path="a", mode="r")
        for number, server in enumerate(servers):
            server.close()
            unmount(tmp_path / str(number))
            start(tmp_path / str(number), place_of(server))
        eventually(lambda: is_restarted(lambda: array[...]))


def is_restarted(action: Callable[[], object]) -> bool:
    with pytest.raises(ConnectionError) as caught:
        action()
    return caught.type is ServerRestartedError


# ---- some of the servers, others, more ----


@pytest.mark.parametrize("count", [1, 2])
def test_an_address_that_names_some_of_the_servers(three: list[Server], count: int) -> None:
    write(address_of(three))
    for first in range(3):
        some = [three[(first + n) % 3] for n in range(count)]
        with pytest.raises(ConnectionError, match="their set has 3: expected") as caught:
            read(address_of(some))
        for server in three:
            assert server.identity.hex() in str(caught.value)
        with UcxStore(address_of(some)) as store:
            for use in (
                lambda store=store: store.get_sync("a/c/0"),
                lambda store=store: store.set_sync("a/c/0", store_value()),
            ):
                with pytest.raises(ConnectionError, match="their set has 3"):
                    use()
    np.testing.assert_array_equal(read(address_of(three)), VALUES)


def store_value() -> zarr.core.buffer.Buffer:
    return zarr.core.buffer.cpu.Buffer.from_bytes(b"value")


def test_an_address_with_one_more_server(three: list[Server], start: Start) -> None:
    write(address_of(three))
    with pytest.raises(ConnectionError, match="names 4 servers, and their set has 3"):
        read(address_of([*three, start()]))


def test_a_foreign_server_in_the_place_of_one(three: list[Server], start: Start) -> None:
    write(address_of(three))
    foreign = start()
    with UcxStore(address_of([*three[:2], foreign])) as store:
        held, errors = read_chunks(store)
    assert held > 0
    assert errors
    assert all(f"expected the storage {three[2].identity.hex()}" in one for one in errors)
    assert all(place_of(foreign) in one for one in errors)


def test_a_server_of_another_set(three: list[Server], start: Start) -> None:
    others = [start(), start()]
    write(address_of(three))
    write(address_of(others))
    with pytest.raises(ConnectionError, match="belong to different sets of servers"):
        read(address_of([*three[:2], others[0]]))


def test_one_storage_twice(three: list[Server]) -> None:
    twice = f"{address_of(three)[:-1]},localhost:{port_of(three[0])}"
    with pytest.raises(ConnectionError, match="have the same storage"):
        read(twice)
    write(address_of(three))
    with pytest.raises(ConnectionError, match="have the same storage"):
        read(twice)


# ---- other names ----

LOCAL, NAME = "127.0.0.1", "localhost"


@pytest.mark.parametrize(
    "hosts",
    [(NAME, NAME, NAME), (LOCAL, NAME, LOCAL), (NAME, LOCAL, NAME)],
    ids=["all", "one", "two"],
)
def test_other_names_of_the_same_servers(three: list[Server], hosts: Sequence[str]) -> None:
    write(address_of(three))
    np.testing.assert_array_equal(read(named(three, hosts)), VALUES)
    np.testing.assert_array_equal(read(named(three[::-1], hosts)), VALUES)
    # And the other way round: with the names of the first client all goes on.
    with UcxStore(named(three[1:] + three[:1], hosts)) as store:
        zarr.open_array(store, path="a")[...] = VALUES * 2
    np.testing.assert_array_equal(read(address_of(three)), VALUES * 2)


def test_another_order(three: list[Server]) -> None:
    write(address_of(three))
    np.testing.assert_array_equal(read(address_of(three[::-1])), VALUES)


def test_directories_that_have_moved(start: Start, tmp_path: Path) -> None:
    servers = [start(tmp_path / str(number)) for number in range(3)]
    write(address_of(servers))
    for server in servers:
        server.close()
    for number in range(3):
        (tmp_path / str(number)).rename(tmp_path / f"moved-{number}")
    moved = [start(tmp_path / f"moved-{number}") for number in (1, 2, 0)]
    np.testing.assert_array_equal(read(address_of(moved)), VALUES)


def test_lost_servers_under_other_names(three: list[Server]) -> None:
    """Who is who is found out as they come back."""
    write(address_of(three))
    three[0].close()
    with UcxStore(named(three, (NAME,) * 3)) as store:
        held, errors = read_chunks(store)
        assert held > 0
        assert errors
        assert all(port_of(three[0]) in error for error in errors)


def test_two_that_come_later_under_other_names(start: Start, tmp_path: Path) -> None:
    servers = [start(tmp_path / str(number)) for number in range(3)]
    write(address_of(servers))
    for server in servers[:2]:
        server.close()
    with UcxStore(named(servers, (NAME,) * 3)) as store:
        held, errors = read_chunks(store)
        assert held
        assert errors
        # Each comes back where the other one was.
        start(tmp_path / "0", f"{LOCAL}:{port_of(servers[1])}")
        start(tmp_path / "1", f"{LOCAL}:{port_of(servers[0])}")
        eventually(lambda: read_chunks(store) == (100, []))


# ---- sets that are new, and those of earlier versions ----


def test_what_earlier_versions_have_written(start: Start, tmp_path: Path) -> None:
    """The first client takes it over where it is, and then names do not matter any more."""
    servers = [start(tmp_path / str(number)) for number in range(3)]
    address = address_of(servers)
    write(address)
    for number, server in enumerate(servers):
        server.close()
        for file in (tmp_path / str(number)).glob(".ucxstore-*"):
            file.unlink()
    before = [start(tmp_path / str(n), place_of(server)) for n, server in enumerate(servers)]
    np.testing.assert_array_equal(read(address), VALUES)
    np.testing.assert_array_equal(read(named(before, (NAME,) * 3)), VALUES)
    for server in before:
        server.close()
    again = [start(tmp_path / str(number)) for number in range(3)]
    assert [one.identity for one in again] == [one.identity for one in before]
    np.testing.assert_array_equal(read(address_of(again)), VALUES)


def test_a_set_without_a_record_needs_all_servers_once(start: Start) -> None:
    servers = [start(), start()]
    servers[1].close()
    with pytest.raises(ConnectionError, match="they keep no record of a set of servers yet"):
        read(address_of(servers), connect_timeout=3)


def test_a_member_that_lacks_the_record_gets_it(start: Start, tmp_path: Path) -> None:
    """As where the first client was killed half-way."""
    servers = [start(tmp_path / str(number)) for number in range(3)]
    write(address_of(servers))
    for number, server in enumerate(servers):
        server.close()
        if number != 1:
            (tmp_path / str(number) / ".ucxstore-cluster").unlink()
    again = [start(tmp_path / str(number)) for number in range(3)]
    np.testing.assert_array_equal(read(address_of(again)), VALUES)
    records = {(tmp_path / str(number) / ".ucxstore-cluster").read_bytes() for number in range(3)}
    assert len(records) == 1


def test_directories_that_are_only_read(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(tmp_path / str(n), create=True)) for n in range(2)]
        write(address_of(servers))
        places = [place_of(server) for server in servers]
    for number in range(2):
        for file in (tmp_path / str(number)).glob(".ucxstore-*"):
            file.unlink()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(tmp_path / str(n), at, read_only=True))
            for n, at in enumerate(places)
        ]
        np.testing.assert_array_equal(read(address_of(servers)), VALUES)
        np.testing.assert_array_equal(read(named(servers, (NAME,) * 2)), VALUES)
        with pytest.raises(ConnectionError, match="their set has 2"):
            read(servers[0].address)
        assert not list(tmp_path.glob("*/.ucxstore-*"))


# ---- losses ----


def test_a_loss_is_accepted_for_all_clients_to_come(three: list[Server], start: Start) -> None:
    write(address_of(three))
    lost = three[1]
    lost.close()
    new = start(at=place_of(lost))
    with UcxStore(address_of(three)) as store:
        held, errors = read_chunks(store)
        assert held
        assert all(new.identity.hex() in error for error in errors)
        store.accept_restarted_sync()
        array = zarr.open_array(store, path="a")
        found = array[...]
        assert set(np.unique(found == VALUES)) == {False, True}
        assert ((found == VALUES) | (found == -1)).all()
        array[...] = VALUES
        array.attrs["again"] = True
    for names in ((LOCAL,) * 3, (NAME, LOCAL, NAME)):
        np.testing.assert_array_equal(read(named([three[0], new, three[2]], names)), VALUES)
    # The lost one has no place any more, should it come back.
    with UcxStore(address_of(three)) as store:
        assert store.get_sync("a/zarr.json") is not None


def test_a_server_that_is_refused_can_be_lost_again(three: list[Server], start: Start) -> None:
    write(address_of(three))
    place = place_of(three[2])
    three[2].close()
    with UcxStore(address_of(three)) as store:
        for _ in range(3):
            new = start(at=place)
            eventually(lambda: new.identity.hex() in "".join(read_chunks(store)[1]))  # noqa: B023
            new.close()
            with pytest.raises(ConnectionError):
                zarr.open_array(store, path="a", mode="r")[...]


# ---- servers that share their values ----


def test_servers_that_should_share_a_directory_and_do_not(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "one", shared=True, create=True) as one,
        Server(tmp_path / "two", shared=True, create=True) as two,
        pytest.raises(ConnectionError, match="have different storages") as caught,
    ):
        read(address_of([one, two]))
    assert one.identity.hex() in str(caught.value)
    assert two.identity.hex() in str(caught.value)


def test_one_that_comes_back_with_another_directory_does_not_stand_in(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(tmp_path / "data", shared=True, create=True))
            for _ in range(2)
        ]
        assert servers[0].identity == servers[1].identity
        write(address_of(servers))
        store = stack.enter_context(UcxStore(address_of(servers)))
        assert read_chunks(store) == (100, [])
        servers[0].close()
        wrong = stack.enter_context(
            Server(tmp_path / "x", place_of(servers[0]), shared=True, create=True)
        )
        eventually(lambda: read_chunks(store) == (100, []) and wrong.sessions > 0)
        assert read_chunks(store) == (100, [])
        assert wrong.stats()["gets"] == 0
