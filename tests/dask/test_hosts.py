"""One server a host: its workers share it, and tasks use that of their own host."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import requests
import zarr
from distributed import Client, LocalCluster, get_worker

from tests.dask.conftest import SECONDS, cluster_of, hosts_of
from tests.eventually import eventually
from tests.values import read, write
from ucxstore import (
    ClusterError,
    Secret,
    ServerLostError,
    ServerRestartedError,
    StorageError,
    UcxStore,
)
from ucxstore.dask import Deployment, deploy, locality
from ucxstore.server import Server

HOSTS = ("127.0.0.1", "127.0.0.2")
SHAPE = (400, 400)


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Client]:
    """Two workers on each of two hosts, none of which is killed."""
    with hosts_of(*HOSTS, *HOSTS) as client:
        yield client


def processes_of(deployed: Deployment) -> list[int]:
    """Return the processes of a deployment's hosts."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            command = (one / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if any(deployed.name in part for part in command):
            found.append(int(one.name))
    return found


def folders() -> set[Path]:
    """Return the folders of servers that workers of this host share."""
    return set(Path(tempfile.gettempdir()).glob(f"ucxstore-*-{os.getuid()}-*"))


def holds(condition: Callable[[], object]) -> None:
    eventually(condition, SECONDS, 0.05)


def array_in(store: UcxStore) -> tuple[zarr.Array, np.ndarray]:
    values = np.random.default_rng(3).random(SHAPE, dtype="f4")
    z = zarr.create_array(store, name="a", shape=SHAPE, chunks=(100, 100), dtype="f4")
    z[...] = values
    return z, values


def equals(z: zarr.Array, values: np.ndarray) -> tuple[str, bool]:
    """Compare in a task; return the address that the task's store has, too."""
    return str(z.store), bool((z[...] == values).all())


def in_each(client: Client, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Call a function in a task on each worker."""
    workers = list(client.nthreads())
    futures = [
        client.submit(function, *args, workers=[worker], pure=False, allow_other_workers=False)
        for worker in workers
    ]
    return dict(zip(workers, client.gather(futures), strict=True))


def test_the_workers_of_a_host_share_a_server() -> None:
    with cluster_of(3) as client, deploy(client, memory="64MiB", per="host") as deployed:
        assert len(deployed.addresses) == 3
        assert len(set(deployed.addresses.values())) == 1
        (pid,) = processes_of(deployed)
        assert pid not in {os.getpid(), *client.run(os.getpid).values()}
        z, values = array_in(deployed.store("x"))
        assert all(same for _, same in in_each(client, equals, z, values).values())
        holds(lambda: deployed.stats().gets)
        stats = deployed.stats()
        assert stats.servers == 1
        assert stats.memory_limit_bytes == 64 << 20
        assert stats.memory_bytes > 0
        assert stats["sets"] >= 17
        assert sum(worker.sets > 0 for worker in stats.workers.values()) == 1
        assert deployed.dashboard_link is not None
        page = requests.get(deployed.dashboard_link, timeout=SECONDS).text
        assert "1 servers" in page
        assert deployed.addresses.popitem()[1].removeprefix("ucx://") in page
        name = deployed.name
    holds(lambda: not processes_of(deployed))
    assert not [one for one in folders() if one.name.startswith(name)]


def test_a_task_uses_the_server_of_its_host(two_hosts: Client) -> None:
    with Server("memory://") as up, UcxStore(f"{up.address}/run") as direct:
        _, values = array_in(direct)
        nbytes = sum(len(read(direct, f"a/c/{i}/{j}") or b"") for i in range(4) for j in range(4))
        with deploy(two_hosts, f"{up.address}/run") as deployed:
            assert len(set(deployed.addresses.values())) == 2
            near = zarr.open_array(deployed.store(), path="a", mode="r")
            assert str(near.store).count(",") == 1  # here, no host is near
            before = up.stats()["bytes_sent"]
            for _ in range(3):
                for worker, (address, same) in in_each(two_hosts, equals, near, values).items():
                    assert same
                    assert address == deployed.addresses[worker]
            fetched = up.stats()["bytes_sent"] - before
            assert 2 * nbytes <= fetched < 2.2 * nbytes  # each host has asked for each chunk once
            np.testing.assert_array_equal(near[...], values)

            # What tasks write reaches the source, and the other host.
            out = zarr.create_array(
                deployed.store(), name="b", shape=SHAPE, chunks=(100, 100), dtype="f4"
            )
            da.from_array(values, chunks=(200, 100)).store(out, lock=False)
            again = zarr.open_array(direct, path="b", mode="r")
            np.testing.assert_array_equal(again[...], values)
            for turn in range(3):
                out[...] = values + turn
                assert all(
                    same for _, same in in_each(two_hosts, equals, out, values + turn).values()
                )
            assert (locality(da.from_zarr(near), two_hosts) == values).all().compute()
        holds(lambda: not processes_of(deployed))


def test_in_memory_the_hosts_are_one_set(two_hosts: Client) -> None:
    with deploy(two_hosts, memory="64MiB", per="host") as deployed:
        store = deployed.store("x")
        assert len(store.servers) == 2
        z, values = array_in(store)
        found = in_each(two_hosts, equals, z, values)
        assert {address for address, _ in found.values()} == {str(store)}
        assert all(same for _, same in found.values())
        with deployed.scratch(quota="8MB") as scratch:
            array_in(scratch.store("y"))
        assert (locality(da.from_zarr(z), two_hosts) == values).all().compute()


def test_scratch_space_beside_a_source(two_hosts: Client) -> None:
    """It is in the memory of all hosts, and so tasks use all of their servers."""
    with Server("memory://") as up, deploy(two_hosts, up.address) as deployed:
        with deployed.scratch(quota="8MB") as scratch:
            z, values = array_in(scratch.store("y"))
            found = in_each(two_hosts, equals, z, values)
        assert all(same and "," in address for address, same in found.values())


def test_the_secret_of_the_source(two_hosts: Client, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret that is long enough")
    file.chmod(0o600)
    with Server("memory://", secret=Secret.from_file(file)) as up:
        before = folders()
        with pytest.raises(StorageError, match="secret"):
            deploy(two_hosts, up.address)
        holds(lambda: folders() <= before)
        options = {"secret_file": str(file)}
        for per in ("host", "worker"):
            with deploy(two_hosts, up.address, per=per, storage_options=options) as deployed:
                write(deployed.store(), per, b"1")
                assert len(set(deployed.addresses.values())) == (2 if per == "host" else 4)
    with pytest.raises(ValueError, match="per: 'rack' is neither 'worker' nor 'host'"):
        deploy(two_hosts, per="rack")


def kill_worker(client: Client, deployed: Deployment) -> None:
    """Kill a worker, and wait until its nanny has replaced it."""
    before = deployed.addresses
    lost = min(before)
    os.kill(client.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
    holds(lambda: len(after := deployed.addresses) == len(before) and lost not in after)


def test_workers_restart_and_the_server_stays() -> None:
    with cluster_of(2) as client, deploy(client, per="host") as deployed:
        store = deployed.store("x")
        z, values = array_in(store)
        (pid,) = processes_of(deployed)
        kill_worker(client, deployed)
        client.restart(timeout=SECONDS)
        holds(lambda: len(deployed.addresses) == 2)
        assert processes_of(deployed) == [pid]
        assert deployed.store("x") == store
        assert all(same for _, same in in_each(client, equals, z, values).values())
        # The counters of the server are told by another worker now.
        holds(lambda: deployed.stats()["sets"])


def test_a_server_that_is_lost_is_started_anew() -> None:
    with (
        Server("memory://") as up,
        cluster_of(2) as client,
        deploy(client, up.address) as deployed,
    ):
        z, values = array_in(deployed.store())
        address = set(deployed.addresses.values())
        (pid,) = processes_of(deployed)
        os.kill(pid, signal.SIGKILL)
        holds(lambda: (now := processes_of(deployed)) and now != [pid])
        holds(lambda: _reads(client, z, values))
        assert set(deployed.addresses.values()) == address
        with deploy(client, per="host") as other:  # whose values are lost with it
            in_memory, _ = array_in(other.store("x"))
            (pid,) = processes_of(other)
            os.kill(pid, signal.SIGKILL)
            holds(lambda: (now := processes_of(other)) and now != [pid])
            # Lost at first, and then another storage, which has none of the values.
            holds(lambda: _raises(ServerRestartedError, lambda: in_memory[...]))
            holds(lambda: _raises(ClusterError, lambda: other.store("x")))


def _reads(client: Client, z: zarr.Array, values: np.ndarray) -> bool:
    try:
        return all(same for _, same in in_each(client, equals, z, values).values())
    except Exception:
        return False


def _raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except (ClusterError, ServerLostError) as error:
        return isinstance(error, kind)
    return False


@pytest.mark.full
def test_hosts_come_and_go() -> None:
    """As adaptive scaling has it: a server ends some time after the last worker of its host."""
    with (
        Server("memory://") as up,
        cluster_of(1) as client,
        deploy(client, up.address) as deployed,
    ):
        z, values = array_in(deployed.store())
        (pid,) = processes_of(deployed)
        client.cluster.scale(3)
        holds(lambda: len(deployed.addresses) == 3)
        assert processes_of(deployed) == [pid]
        assert all(same for _, same in in_each(client, equals, z, values).values())
        client.cluster.scale(0)
        holds(lambda: not client.nthreads())
        holds(lambda: processes_of(deployed) == [])
        client.cluster.scale(2)
        holds(lambda: len(client.nthreads()) == 2 and len(deployed.addresses) == 2)
        (again,) = processes_of(deployed)
        assert again != pid
        anew = zarr.open_array(deployed.store(), path="a", mode="r")
        assert all(same for _, same in in_each(client, equals, anew, values).values())


def test_workers_in_threads_of_one_process() -> None:
    with (
        Server("memory://") as up,
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, timeout=SECONDS) as client,
    ):
        with deploy(client, up.address) as deployed:
            z, values = array_in(deployed.store())
            assert len(processes_of(deployed)) == 1
            assert all(same for _, same in in_each(client, equals, z, values).values())
            assert client.submit(lambda: get_worker().address).result() in deployed.addresses
        holds(lambda: not processes_of(deployed))
