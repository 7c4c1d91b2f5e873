"""A store of several servers is one store: zarr's own tests of it, and where values are."""

import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import sync

from tests.backdoor import MemoryBackdoor
from tests.conftest import address_of
from tests.stores.contract import UcxStoreTests
from tests.values import as_buffer
from ucxstore import AddressError, ClusterError, ServerRestartedError, UcxStore
from ucxstore.cluster.placement import Placement
from ucxstore.server import Server


@pytest.fixture(scope="module")
def backdoors(three_servers: list[Server]) -> Iterator[dict[str, MemoryBackdoor]]:
    """A way past the store to each server, by its ``host:port``."""
    doors = {server.address.removeprefix("ucx://"): server for server in three_servers}
    opened = {place: MemoryBackdoor(server.address) for place, server in doors.items()}
    yield opened
    for door in opened.values():
        door.__exit__(None, None, None)


@pytest.fixture
def address(three_servers: list[Server], prefix: str) -> str:
    return address_of(three_servers, prefix)


def home_of(backdoors: Mapping[str, MemoryBackdoor], key: str) -> str:
    places = list(backdoors)
    (index,) = Placement(places).servers_of([key])
    return places[index]


class TestUcxStoreOfThree(UcxStoreTests):
    @pytest.fixture(autouse=True)
    def _past_the_store(self, backdoors: dict[str, MemoryBackdoor], prefix: str) -> None:
        self.backdoors = backdoors
        self.prefix = prefix

    async def set(self, store: UcxStore, key: str, value: Buffer) -> None:
        full = f"{self.prefix}/{key}"
        everywhere = key.endswith("zarr.json")
        for place in self.backdoors if everywhere else [home_of(self.backdoors, full)]:
            self.backdoors[place].set(full, value.to_bytes())

    async def get(self, store: UcxStore, key: str) -> Buffer:
        full = f"{self.prefix}/{key}"
        value = self.backdoors[home_of(self.backdoors, full)].get(full)
        assert value is not None
        return cpu.Buffer.from_bytes(value)


def identities_of(store: UcxStore) -> Any:
    """Return the identities that a store knows of its servers."""
    return store._identities.known


async def names(listing: Any) -> list[str]:
    return [name async for name in listing]


def test_chunks_are_on_one_server_and_metadata_on_all(
    address: str, prefix: str, backdoors: dict[str, MemoryBackdoor]
) -> None:
    store = UcxStore(address, strict=True)
    x = np.arange(400.0).reshape(20, 20)
    z = zarr.create_array(store, name="a", shape=x.shape, chunks=(2, 2), dtype="f8")
    z[:] = x
    used = set()
    for i in range(10):
        for j in range(10):
            key = f"{prefix}/a/c/{i}/{j}"
            holders = [place for place, door in backdoors.items() if door.get(key) is not None]
            assert holders == [home_of(backdoors, key)]
            used.update(holders)
    assert used == set(backdoors)
    stored = {door.get(f"{prefix}/a/zarr.json") for door in backdoors.values()}
    assert len(stored) == 1
    assert None not in stored
    stats = store.stats()
    assert stats["servers"].keys() == backdoors.keys()
    assert all(server["requests"] > 0 for server in stats["servers"].values())
    assert all(server["failovers"] == 0 for server in stats["servers"].values())
    assert len(stats["lanes"]) == len(set(stats["lanes"])) > 0


def test_the_order_of_servers_in_the_address_does_not_matter(
    three_servers: list[Server], prefix: str
) -> None:
    x = np.arange(400)
    zarr.create_array(UcxStore(address_of(three_servers, prefix)), data=x, chunks=(10,))
    other = UcxStore(address_of(three_servers[::-1], prefix))
    np.testing.assert_array_equal(zarr.open_array(other)[:], x)


def test_metadata_that_one_server_lacks_is_found(
    address: str, prefix: str, backdoors: dict[str, MemoryBackdoor]
) -> None:
    """A server that has restarted, and was accepted, has no metadata."""
    store = UcxStore(address)
    out = np.zeros(5, "u1")
    for number, lacking in enumerate(backdoors):
        key = f"{number}/zarr.json"
        for place, door in backdoors.items():
            if place != lacking:
                door.set(f"{prefix}/{key}", b"value")
        assert store.get_sync(key).to_bytes() == b"value"
        assert sync(store.exists(key))
        assert sync(store.getsize(key)) == 5
        assert store.get_into_sync(key, out) == 5
        assert out.tobytes() == b"value"
        assert sync(names(store.list_dir(str(number)))) == ["zarr.json"]
    assert store.get_sync("nowhere/zarr.json") is None
    assert not sync(store.exists("nowhere/zarr.json"))


@pytest.mark.parametrize("key", ["zarr.json", "c/0"])
def test_what_is_there_is_kept_by_set_if_not_exists(
    key: str, address: str, prefix: str, backdoors: dict[str, MemoryBackdoor]
) -> None:
    store = UcxStore(address)
    sync(store.set_if_not_exists(key, as_buffer(b"first")))
    sync(store.set_if_not_exists(key, as_buffer(b"second")))
    held = [door.get(f"{prefix}/{key}") for door in backdoors.values()]
    assert [value for value in held if value is not None] == [b"first"] * (
        3 if key == "zarr.json" else 1
    )


def test_listings_are_the_union(address: str, prefix: str) -> None:
    store = UcxStore(address)
    # Of several pages at each server.
    keys = sorted(
        [f"{'long name ' * 20}{n % 7}/c/{n}" for n in range(3000)]
        + [f"{n}/zarr.json" for n in range(40)]
        + ["zarr.json"]
    )
    sync(store.set_many([(key, as_buffer(b"12345")) for key in keys]))
    assert sync(names(store.list())) == keys
    assert sync(names(store.list_prefix("1"))) == [key for key in keys if key.startswith("1")]
    assert sync(names(store.list_dir(""))) == sorted({key.split("/")[0] for key in keys})
    folder = f"{'long name ' * 20}3"
    inside = sorted(key.removeprefix(f"{folder}/c/") for key in keys if key.startswith(folder))
    assert sync(names(store.list_dir(f"{folder}/c"))) == inside
    assert sync(store.getsize_prefix("")) == 5 * len(keys)
    assert not sync(store.is_empty(folder))
    sync(store.delete_dir(folder))
    assert sync(store.is_empty(folder))
    assert sync(names(store.list())) == [key for key in keys if not key.startswith(folder)]
    sync(store.clear())
    assert sync(store.is_empty(""))


def test_many_requests_at_once(address: str) -> None:
    store = UcxStore(address)
    keys = [f"c/{n}" for n in range(500)] + ["zarr.json"]
    sync(store.set_many([(key, as_buffer(key.encode())) for key in keys]))
    wanted = [*keys, "c/none", "none/zarr.json"]
    found = sync(
        store.get_partial_values(default_buffer_prototype(), [(key, None) for key in wanted])
    )
    assert [None if value is None else value.to_bytes() for value in found] == [
        *(key.encode() for key in keys),
        None,
        None,
    ]
    outs = [np.zeros(len(key), "u1") for key in wanted]
    sizes = store.get_many_into_sync(list(zip(wanted, outs, [None] * len(wanted), strict=True)))
    assert sizes == [*map(len, keys), None, None]
    assert [out.tobytes() for out in outs[: len(keys)]] == [key.encode() for key in keys]


def test_copies_and_pickles(address: str) -> None:
    store = UcxStore(address)
    store.set_sync("c/0", as_buffer(b"value"))
    for other in (pickle.loads(pickle.dumps(store)), store.with_read_only(True)):
        assert other == store.with_read_only(other.read_only)
        assert other.get_sync("c/0").to_bytes() == b"value"
        assert identities_of(other) == identities_of(store)
        assert len(identities_of(other).met) == 3


def test_scratch_space_has_no_part_in_the_record() -> None:
    with (
        Server("memory://") as one,
        Server("memory://") as other,
        UcxStore(address_of([one, other])) as store,
        store.scratch_sync("1MiB") as scratch,
    ):
        scratch.store().accept_restarted_sync()
        with UcxStore(one.address) as alone:
            assert alone.get_sync("c/0") is None
        assert store.get_sync("c/0") is None
        with UcxStore(one.address) as alone, pytest.raises(ClusterError, match="their set has 2"):
            alone.get_sync("c/0")


# ---- servers that share what they serve ----


@pytest.fixture
def shared_servers(tmp_path: Path) -> Iterator[list[Server]]:
    servers = [Server(tmp_path / "data", shared=True, create=True) for _ in range(3)]
    yield servers
    for server in servers:
        server.close()


@pytest.mark.parametrize("count", [1, 2])
def test_identities_that_were_never_met_are_relied_on(count: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("memory://")) for _ in range(count)]
        store = UcxStore(address_of(servers))
        told = [server.identity for server in servers]
        store.rely_on(dict(zip(store.servers, told, strict=True)))
        pickled = pickle.dumps(store)
        placement = Placement([str(server) for server in store.servers])
        key = next(
            key for key in map("c/{}".format, range(1000)) if placement.servers_of([key]) == [0]
        )
        store.set_sync(key, cpu.Buffer.from_bytes(b"value"))
        assert store.get_sync(key) is not None
        store.close()
        servers[0].close()
        stack.enter_context(Server("memory://", bind=str(store.servers[0])))
        with pickle.loads(pickled) as unpickled:
            with pytest.raises(ServerRestartedError, match=str(store.servers[0])):
                unpickled.get_sync(key)
            unpickled.accept_restarted_sync()
            assert unpickled.get_sync(key) is None


def test_shared_servers_divide_the_work(shared_servers: list[Server], tmp_path: Path) -> None:
    store = UcxStore(address_of(shared_servers), local="off")  # what is seen is no get
    x = np.arange(10_000.0)
    z = zarr.create_array(store, shape=x.shape, chunks=(100,), dtype="f8", compressors=None)
    z[:] = x
    np.testing.assert_array_equal(z[::3], x[::3])
    assert all(server.stats()["gets"] > 10 for server in shared_servers)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "data", mode="r")[:], x)
    assert sync(names(store.list_dir(""))) == ["c", "zarr.json"]
    assert len(sync(names(store.list()))) == 101
    assert sync(store.getsize_prefix("c")) == x.nbytes
    sync(store.delete_dir("c"))
    assert sync(store.is_empty("c"))


def test_servers_in_processes_of_their_own_say_that_they_share(tmp_path: Path) -> None:
    spawned = [Server.spawn(tmp_path / "data", shared=True, create=True) for _ in range(2)]
    store = UcxStore(address_of(spawned))
    keys = [f"c/{n}" for n in range(20)]
    sync(store.set_many([(key, as_buffer(key.encode())) for key in keys]))
    os.kill(spawned[0].pid, signal.SIGKILL)
    assert [store.get_sync(key).to_bytes() for key in keys] == [key.encode() for key in keys]
    for server in spawned:
        server.close()


def test_servers_that_disagree_are_refused(
    shared_servers: list[Server], memory_server: Server
) -> None:
    store = UcxStore(address_of([shared_servers[0], memory_server]))
    with pytest.raises(ClusterError, match="one store cannot have both"):
        store.get_sync("c/0")
    with pytest.raises(ClusterError, match="one store cannot have both"):
        sync(store.exists("c/0"))


def test_memory_of_its_own_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="shared: "):
        Server("memory://", shared=True)


def test_what_is_kept_in_copies_is_measured_once(address: str) -> None:
    with UcxStore(address) as store:
        values = {"zarr.json": b"{}", "c/0": b"123", "c/1": b"4567", "sub/zarr.json": b"{ }"}
        for key, value in values.items():
            store.set_sync(key, as_buffer(value))
        assert sync(store.measure()) == (4, 12)
        assert sync(store.measure("sub")) == (1, 3)
        assert sync(store.measure("absent")) == (0, 0)


def test_servers_answer_together_and_count_apart(address: str) -> None:
    with UcxStore(address) as store:
        store.ping_sync()
        assert set(store.stats()["servers"]) == set(address.split("/")[2].split(","))
        with pytest.raises(AddressError, match="use the address of each"):
            sync(store.server_stats())
