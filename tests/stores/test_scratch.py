"""Scratch space: shared with other processes, bounded, and gone with its owner."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from tests.cli.command import run
from tests.conftest import address_of
from tests.eventually import eventually
from tests.stopping import stop
from tests.values import keys_of
from ucxstore import (
    ConnectError,
    InvalidKeyError,
    ReadOnlyServerError,
    ScratchEndedError,
    ServerLostError,
    StorageError,
    UcxStore,
)
from ucxstore.base.keys import SCRATCH_FOLDER, is_reserved
from ucxstore.base.native import core
from ucxstore.base.stats import SpaceStats
from ucxstore.server import Server
from ucxstore.stores.scratch import Scratch

HOUR = 3600.0

# An owner in a process of its own: says where its values are, and does as it is told.
OWNER = """
import pickle, sys
from zarr.core.buffer import cpu
from ucxstore import UcxStore
scratch = UcxStore(sys.argv[1]).scratch_sync("1MB", timeout=float(sys.argv[2]))
store = scratch.store()
store.set_sync("c/0", cpu.Buffer.from_bytes(bytes(1000)))
print(pickle.dumps(store).hex(), flush=True)
for line in sys.stdin:
    try:
        print(store.get_sync("c/0"), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""

# Doubles what is in an array of the store that it is given.
DOUBLE = """
import pickle, sys, zarr
z = zarr.open_array(pickle.loads(bytes.fromhex(sys.argv[1])), path="a")
z[:] = 2 * z[:]
"""


def buffer(value: bytes | int) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(bytes(value))


def spaces_at(server: Server) -> list[SpaceStats]:
    with UcxStore(server.address) as store:
        return sync(store.server_stats())["spaces"]


@contextmanager
def owner(server: Server, timeout: float) -> Iterator[tuple[subprocess.Popen[str], UcxStore]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OWNER, server.address, str(timeout)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, pickle.loads(bytes.fromhex(process.stdout.readline()))
        finally:
            process.kill()


@pytest.fixture
def memory() -> core.MemoryStorage:
    return core.MemoryStorage(1_000_000)


@pytest.fixture
def own_server(memory: core.MemoryStorage) -> Iterator[Server]:
    with Server(memory) as server:
        yield server


@pytest.fixture
def scratch(own_server: Server) -> Iterator[Scratch[UcxStore]]:
    with UcxStore(own_server.address).scratch_sync("100kB", HOUR) as scratch:
        yield scratch


def test_arrays_are_shared_with_other_processes(any_address: str) -> None:
    x = np.arange(400.0).reshape(20, 20)
    with UcxStore(any_address, strict=True).scratch_sync("1MB") as scratch:
        store = scratch.store()
        z = zarr.create_array(store, name="a", shape=x.shape, chunks=(5, 5), dtype="f8")
        z[:] = x
        command = [sys.executable, "-c", DOUBLE, pickle.dumps(store).hex()]
        subprocess.run(command, check=True, timeout=240)
        np.testing.assert_array_equal(z[:], 2 * x)
        np.testing.assert_array_equal(zarr.open_array(scratch.store("a"))[3:, ::2], 2 * x[3:, ::2])
        assert sync(store.exists("a/zarr.json"))
        assert not sync(store.exists("b/zarr.json"))
        assert store.strict
        outside = UcxStore(any_address.rpartition("/")[0])
        assert not [key for key in sync(keys_of(outside)) if key.startswith(SCRATCH_FOLDER)]
    for read in (lambda: z[:], lambda: store.get_sync("nothing"), lambda: sync(keys_of(store))):
        with pytest.raises(ScratchEndedError, match=rf"the scratch space '{scratch.name}' has"):
            read()


def test_everything_says_that_it_has_ended(scratch: Scratch[UcxStore]) -> None:
    store = scratch.store("p")
    store.set_sync("c/0", buffer(10))
    scratch.close()
    scratch.close()
    out = np.full(10, 7, "u1")
    requests = [
        lambda: store.get_sync("c/0"),
        lambda: store.get_into_sync("c/0", out),
        lambda: store.set_sync("c/0", buffer(10)),
        lambda: sync(store.set_if_not_exists("c/1", buffer(10))),
        lambda: store.delete_sync("c/0"),
        lambda: sync(store.exists("c/0")),
        lambda: sync(store.delete_dir("")),
        lambda: sync(store.measure("")),
        lambda: sync(store.is_empty("")),
        lambda: sync(keys_of(store)),
        lambda: zarr.open_array(store, mode="r"),
    ]
    for request in requests:
        with pytest.raises(ScratchEndedError):
            request()
    assert (out == 7).all()
    with UcxStore(store.address) as by_address, pytest.raises(ScratchEndedError):
        by_address.get_sync("c/0")


def test_the_quota_is_kept(scratch: Scratch[UcxStore], memory: core.MemoryStorage) -> None:
    store = scratch.store()
    store.set_sync("c/0", buffer(50_000))
    store.set_sync("c/1", buffer(40_000))
    space = f"no room for 20000 bytes.* of 100000 bytes of scratch space '{scratch.name}'"
    with pytest.raises(StorageError, match=rf"'{SCRATCH_FOLDER}{scratch.name}/c/2'.*{space}"):
        store.set_sync("c/2", buffer(20_000))
    assert store.get_sync("c/2") is None
    assert len(store.get_sync("c/1")) == 40_000
    store.delete_sync("c/1")
    store.set_sync("c/2", buffer(20_000))
    store.set_sync("c/0", buffer(10_000))  # the old value's room is given back
    store.set_sync("c/3", buffer(70_000))
    assert memory.held == 100_000
    scratch.close()
    assert memory.held == 0


def test_it_is_within_the_limit_of_the_servers_memory(
    own_server: Server, memory: core.MemoryStorage
) -> None:
    with UcxStore(own_server.address) as store, store.scratch_sync("5MB") as scratch:
        store.set_sync("a", buffer(600_000))
        assert own_server.stats()["scratch_bytes"] == 0
        with pytest.raises(StorageError, match="of 1000000 bytes of memory"):
            scratch.store().set_sync("a", buffer(500_000))
        scratch.store().set_sync("a", buffer(400_000))
        assert own_server.stats()["scratch_bytes"] == 400_000
        assert memory.held == 1_000_000
    assert memory.held == 600_000


def test_spaces_are_apart(own_server: Server, scratch: Scratch[UcxStore]) -> None:
    with UcxStore(own_server.address).scratch_sync("1kB") as other:
        other.store().set_sync("c/0", buffer(b"other"))
        assert scratch.store().get_sync("c/0") is None
        scratch.store().set_sync("c/0", buffer(b"one"))
        sync(other.store().clear())
        assert scratch.store().get_sync("c/0").to_bytes() == b"one"
        shown = {(each["name"], each["bytes"], each["quota"]) for each in spaces_at(own_server)}
        assert shown == {(scratch.name[:8], 3, 100_000), (other.name[:8], 0, 1000)}
        printed = run("stats", own_server.address).stdout
        assert f"{scratch.name[:8]}       3 B    100 kB" in printed
        assert scratch.name not in printed


def test_the_handle_stays_with_its_owner(scratch: Scratch[UcxStore]) -> None:
    with pytest.raises(TypeError, match="pickle a store of it"):
        pickle.dumps(scratch)
    child = os.fork()
    if child == 0:
        scratch.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert scratch.store().get_sync("c/0") is None


def test_a_forgotten_one_is_ended(own_server: Server) -> None:
    scratch = UcxStore(own_server.address).scratch_sync("1kB", HOUR)
    assert len(spaces_at(own_server)) == 1
    del scratch
    gc.collect()
    eventually(lambda: not spaces_at(own_server))


def test_a_process_that_exits_ends_its_own(own_server: Server, memory: core.MemoryStorage) -> None:
    with owner(own_server, HOUR) as (process, _):
        assert memory.held == 1000
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
        assert memory.held == 0


def test_the_space_of_a_killed_owner_ends_by_its_time_out(
    own_server: Server, memory: core.MemoryStorage
) -> None:
    with owner(own_server, 1.5) as (process, store):
        # Its owner renews it all the time.
        eventually(lambda: spaces_at(own_server)[0]["age_s"] > 3, pause=0.1)
        assert len(store.get_sync("c/0")) == 1000
        process.kill()
        process.wait()
        # Other processes that go on reading do not keep it.
        eventually(lambda: _has_ended(store), 15)
        eventually(lambda: memory.held == 0)


def test_a_stopped_owner_is_told_as_all_others(own_server: Server) -> None:
    with owner(own_server, 1.5) as (process, store):
        stop(process.pid)
        eventually(lambda: _has_ended(store), 15)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("read\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ScratchEndedError\n"


def _has_ended(store: UcxStore) -> bool:
    try:
        value = store.get_sync("c/0")
    except ScratchEndedError:
        return True
    assert value is not None
    return False


def test_readers_see_all_or_an_error_when_it_ends(own_server: Server) -> None:
    scratch = UcxStore(own_server.address).scratch_sync("1MB")
    store = scratch.store()
    zarr.create_array(store, data=np.ones(10_000), chunks=(1000,), fill_value=0)
    reading = threading.Barrier(4)
    wrong: list[object] = []

    def read() -> None:
        z = zarr.open_array(pickle.loads(pickle.dumps(store)), mode="r")
        assert (z[:] == 1).all()
        reading.wait(20)
        try:
            while True:
                if not (z[:] == 1).all():
                    wrong.append(z)
                    return
        except ScratchEndedError:
            pass
        except Exception as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    reading.wait(20)
    scratch.close()
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()
    assert not wrong


# ---- where it is offered ----


def test_beside_an_object_store(tmp_path: Path) -> None:
    objects = MemoryStore()
    with Server(objects, scratch_limit="1MB") as server:
        _use(server)
        stored = [str(entry["path"]) for entry in objects.list().collect()]
        assert all(is_reserved(path) for path in stored)
    with Server(tmp_path, read_only=True, scratch_limit="1MB") as server:
        _use(server)
        assert not list(tmp_path.iterdir())
    with Server("memory://", read_only=True, scratch_limit="unlimited") as server:
        _use(server)
        with UcxStore(server.address) as store, pytest.raises(ReadOnlyServerError):
            store.set_sync("k", buffer(1))
    with Server.spawn(tmp_path, scratch_limit=1_000_000) as process:
        store = UcxStore(process.address)
        with store.scratch_sync("2MB") as scratch:
            scratch.store().set_sync("c/0", buffer(900_000))
            with pytest.raises(StorageError, match="of 1000000 bytes of memory"):
                scratch.store().set_sync("c/1", buffer(200_000))


def _use(server: Server) -> None:
    with UcxStore(server.address).scratch_sync("1kB") as scratch:
        z = zarr.create_array(scratch.store(), data=np.arange(10), chunks=(5,))
        z[:3] = 7
        assert z[:].tolist() == [7, 7, 7, 3, 4, 5, 6, 7, 8, 9]
        assert len(sync(keys_of(scratch.store()))) == 3
        sync(scratch.store().delete_dir("c"))
        assert len(sync(keys_of(scratch.store()))) == 1


def test_a_server_without_it_says_so(tmp_path: Path) -> None:
    with (
        Server(tmp_path) as directory,
        Server(core.MemoryStorage(), read_only=True) as fixed,
        Server("memory://") as offering,
    ):
        for address in (directory.address, fixed.address, address_of([offering, directory])):
            with pytest.raises(StorageError, match="offers no scratch space: start it with"):
                UcxStore(address).scratch_sync("1kB")
        eventually(lambda: not spaces_at(offering))  # all or none
    # By options of its own: the connection that the others share may not know its end yet.
    alone = UcxStore(offering.address, ucx={"MAX_EAGER_LANES": 1}, connect_timeout=1.0)
    with pytest.raises(ConnectError):
        alone.scratch_sync("1kB")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"quota": 0}, ValueError, "quota: 0 is less than a byte"),
        ({"quota": "much"}, ValueError, "quota: 'much' is not a size"),
        ({"quota": 1.5}, TypeError, "quota: "),
        ({"quota": 1, "timeout": 0}, ValueError, "timeout: "),
    ],
)
def test_options_that_are_refused(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        UcxStore("ucx://127.0.0.1:1").scratch_sync(**options)


def test_servers_options_that_are_refused() -> None:
    with pytest.raises(ValueError, match="scratch_limit: "):
        Server("memory://", scratch_limit="much")


# ---- several servers ----


@pytest.fixture
def three() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server("memory://")) for _ in range(3)]


def test_several_servers_share_the_values_and_the_quota(three: list[Server]) -> None:
    with UcxStore(address_of(three)).scratch_sync(300_000) as scratch:
        store = scratch.store()
        written = 0
        refusal = None
        while refusal is None:
            try:
                store.set_sync(f"c/{written}", buffer(10_000))
                written += 1
            except StorageError as error:
                refusal = str(error)
        assert "of 200000 bytes of scratch space" in refusal
        assert 20 <= written <= 60
        for number in range(written):
            assert len(store.get_sync(f"c/{number}")) == 10_000
        held = [spaces_at(server)[0]["bytes"] for server in three]
        assert sum(held) == 10_000 * written
        assert min(held) > 0
        assert max(held) == 200_000
    assert not any(spaces_at(server) for server in three)


def test_one_of_several_that_is_lost_or_comes_back_raises(tmp_path: Path) -> None:
    """Also if the servers share what they serve, so that one could stand in for another there."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(tmp_path, shared=True, scratch_limit="unlimited"))
            for _ in range(3)
        ]
        parent = UcxStore(address_of(servers), connect_timeout=30)
        scratch = stack.enter_context(parent.scratch_sync("1MB"))
        store = scratch.store()
        keys = [f"c/{number}" for number in range(30)]
        for key in keys:
            store.set_sync(key, buffer(key.encode()))
        assert list(tmp_path.iterdir()) == []
        place = servers[0].address.removeprefix("ucx://")
        servers[0].close()
        kinds = {key: _kind_of(store, key) for key in keys}
        lost = {key for key, kind in kinds.items() if kind is ServerLostError}
        assert 0 < len(lost) < len(keys)
        assert {kinds[key] for key in keys if key not in lost} == {None}
        stack.enter_context(Server(tmp_path, place, shared=True, scratch_limit="unlimited"))
        for key in lost:
            eventually(lambda key=key: _kind_of(store, key) is ScratchEndedError)
        by_address = UcxStore(store.address)
        assert {_kind_of(by_address, key) for key in lost} == {ScratchEndedError}


def _kind_of(store: UcxStore, key: str) -> type[Exception] | None:
    """Return what reading a value raises; it is never missing, or another one."""
    try:
        value = store.get_sync(key)
    except Exception as error:
        return type(error)
    assert value is not None
    assert value.to_bytes() == key.encode()
    return None


def test_a_space_is_used_by_a_store_over_its_prefix(scratch: Scratch[UcxStore]) -> None:
    root, _, prefix = scratch.store().address.removeprefix("ucx://").partition("/")
    with pytest.raises(InvalidKeyError, match="only the stores of a scratch space"):
        UcxStore(f"ucx://{root}").get_sync(f"{prefix}/c/0")
    assert UcxStore(f"ucx://{root}/{prefix}").get_sync("c/0") is None
