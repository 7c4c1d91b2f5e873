"""Servers in the workers of a cluster in which no worker is killed."""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import cloudpickle
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, Worker, futures_of, wait

from tests.backdoor import options_of
from tests.dask.conftest import SECONDS, bytes_held_in
from tests.eventually import eventually
from ucxstore import (
    AuthenticationError,
    ConnectError,
    EvictedError,
    ScratchEndedError,
    StorageError,
    UcxStore,
)
from ucxstore.dask import Deployment, deploy, locality
from ucxstore.dask.plugin import (
    METRIC,
    ServerPlugin,
    check_mark,
    make_mark,
    remove_mark,
)
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.stores.channel_store import keyspace_of

SHAPE = (400, 300)
CHUNKS = (50, 60)


def some_values(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(5).random(shape, dtype="f4")


def make_array(store: UcxStore, name: str = "a", **options: object) -> zarr.Array:
    settings = {"compressors": None, **options}
    return zarr.create_array(
        store, name=name, shape=SHAPE, chunks=CHUNKS, dtype="f4", fill_value=-1, **settings
    )


def each_server(deployed: Deployment, store: UcxStore) -> dict[str, UcxStore]:
    """Return a store of each worker's server alone, by worker, with the prefix of `store`."""
    prefix = keyspace_of(store).prefix.rstrip("/")
    return {
        worker: UcxStore(f"{address}/{prefix}", secret=store.secret)
        for worker, address in deployed.addresses.items()
    }


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_an_array_is_stored_and_read(client: Client, kind: str, tmp_path: Path) -> None:
    storage = "memory://" if kind == "memory" else tmp_path / "shared"
    values = some_values()
    with deploy(client, storage, memory="64MiB", create=kind != "memory") as deployed:
        store = deployed.store("scratch/run", strict=True)
        assert sorted(store.servers) == list(store.servers)
        assert {f"ucx://{server}" for server in store.servers} == set(deployed.addresses.values())
        z = make_array(store)
        da.from_array(values, chunks=(100, 120)).store(z, lock=False)
        np.testing.assert_array_equal(z[...], values)
        assert store.stats()["lanes"] == ["tcp"]
        found = da.from_zarr(zarr.open_array(deployed.store("scratch/run"), path="a", mode="r"))
        np.testing.assert_array_equal(found.compute(), values)
        for single in each_server(deployed, store).values():
            assert single.get_sync("a/zarr.json") is not None
    if kind == "directory":
        left = zarr.open_array(tmp_path / "shared/scratch/run/a", mode="r")
        np.testing.assert_array_equal(left[...], values)
        names = sorted(each.name for each in (tmp_path / "shared").iterdir())
        assert names == ["scratch"]


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_workers_of_one_host_need_no_ucx(client: Client, kind: str, tmp_path: Path) -> None:
    storage = "memory://" if kind == "memory" else tmp_path / "shared"
    values = some_values()
    with deploy(client, storage, memory="64MiB", create=kind != "memory") as deployed:
        store = deployed.store("run", strict=True, local="auto")
        z = make_array(store)
        da.from_array(values, chunks=(100, 120)).store(z, lock=False)
        np.testing.assert_array_equal(z[...], values)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        assert store.stats()["lanes"] == ["local"]


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_scratch_space_is_in_the_memory_of_the_workers(
    client: Client, kind: str, tmp_path: Path
) -> None:
    storage = "memory://" if kind == "memory" else tmp_path / "shared"
    values = some_values()
    with deploy(client, storage, memory="64MiB", create=kind != "memory") as deployed:
        with deployed.scratch("1MB", strict=True) as scratch:
            z = make_array(scratch.store("step"))
            da.from_array(values, chunks=(100, 120)).store(z, lock=False)
            np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
            held = client.run(bytes_held_in)
            assert sum(held.values()) > values.nbytes
            assert all(0 < each < values.nbytes for each in held.values())
        assert not any(client.run(bytes_held_in).values())
        with pytest.raises(ScratchEndedError, match=scratch.name):
            da.from_zarr(z).compute()
        assert kind == "memory" or not [each for each in Path(storage).iterdir() if each.is_dir()]


def test_tasks_on_any_worker_use_the_store(client: Client) -> None:
    def read(store: UcxStore) -> tuple[str, bytes, dict[str, str]]:
        z = zarr.open_array(store, path="a", mode="r")
        return repr(store), z[...].tobytes(), dict(os.environ)

    with deploy(client) as deployed:
        store = deployed.store()
        values = some_values()
        make_array(store)[...] = values
        secret = store.secret.reveal()
        shown = [repr(deployed), repr(store), repr(options_of(store)), repr(store.secret)]
        for worker in deployed.addresses:
            task = client.submit(read, store, workers=[worker], pure=False)
            name, data, environment = task.result(timeout=SECONDS)
            assert data == values.tobytes()
            shown += [name, repr(environment)]
        assert secret not in pickle.dumps(store)
        assert not [text for text in shown if secret.decode() in text]


def connections(dask_worker: Worker) -> int:
    """Count the connections that the servers in a worker have ever had."""
    plugins = [each for each in dask_worker.plugins.values() if isinstance(each, ServerPlugin)]
    return sum(plugin._server.stats()["sessions"] for plugin in plugins)


def test_tasks_of_a_worker_share_its_connections(client: Client) -> None:
    def read(store: UcxStore) -> float:
        return float(zarr.open_array(store, path="a", mode="r")[...].sum())

    with deploy(client) as deployed:
        store = deployed.store()
        make_array(store)[...] = 1
        made = []
        for _ in range(2):
            for worker in deployed.addresses:
                task = client.submit(read, store, workers=[worker], pure=False)
                assert task.result(timeout=SECONDS) == 400 * 300
            made.append(sum(client.run(connections).values()))
        assert made == [6, 6]  # of three processes to two servers


@pytest.mark.parametrize("layout", ["raw", "zstd", "shards"])
def test_locality_puts_tasks_where_the_chunks_are(client: Client, layout: str) -> None:
    options: dict[str, dict[str, object]] = {
        "raw": {},
        "zstd": {"compressors": "auto"},
        "shards": {"shards": (100, 120)},
    }
    values = some_values()
    with deploy(client) as deployed:
        store = deployed.store("here")
        z = make_array(store, **options[layout])
        z[...] = values
        chunks = z.shards or z.chunks
        x = locality(da.from_zarr(z, chunks=chunks), client)
        blocks = x.persist(optimize_graph=False)
        wait(blocks, timeout=SECONDS)
        places = client.who_has(futures_of(blocks))
        servers = each_server(deployed, store)
        ran = set()
        for i, j in np.ndindex(*x.numblocks):
            key = f"a/c/{i}/{j}"
            holding = [w for w, single in servers.items() if single.get_sync(key) is not None]
            assert places[x.name, i, j] == tuple(holding)
            ran.update(holding)
        assert ran == set(servers)
        np.testing.assert_array_equal(x.compute(optimize_graph=False), values)
        np.testing.assert_array_equal(x.compute(), values)
        total = (x + 1).sum(dtype="f8").compute(optimize_graph=False)
        assert total == pytest.approx((values + 1).sum(dtype="f8"))


def test_locality_of_blocks_of_many_chunks(client: Client) -> None:
    with deploy(client) as deployed:
        store = deployed.store()
        z = make_array(store)
        x = locality(da.from_zarr(z, chunks=(150, 300)), client)
        workers = x.dask.layers[x.name].annotations["workers"]
        servers = each_server(deployed, store)
        z[...] = some_values()
        for block, rows in enumerate((range(3), range(3, 6), range(6, 8))):
            keys = [f"a/c/{i}/{j}" for i in rows for j in range(5)]
            held = {
                worker: sum(single.get_sync(key) is not None for key in keys)
                for worker, single in servers.items()
            }
            (chosen,) = workers((x.name, block, 0))
            assert held[chosen] == max(held.values())


def test_servers_that_encrypt(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "off")
    with deploy(client, encrypt=True) as deployed:
        store = deployed.store(encrypt=True)
        z = make_array(store)
        z[...] = some_values()
        assert (da.from_zarr(z).compute() == some_values()).all()
        assert store.stats()["encrypted"]


def test_locality_is_refused(client: Client) -> None:
    with deploy(client) as deployed:
        x = da.from_zarr(make_array(deployed.store()))
        with pytest.raises(ValueError, match="not read straight from a zarr array"):
            locality(x + 1, client)
        with pytest.raises(ValueError, match="not read straight from a zarr array"):
            locality(da.from_array(some_values()), client)
        with pytest.raises(ValueError, match="not in a UcxStore"):
            locality(da.from_zarr(make_array({})), client)


def test_memory_is_bounded_and_shown(client: Client) -> None:
    with deploy(client, memory="1 MiB") as deployed:
        store = deployed.store()
        held = np.zeros(200_000, "u1")
        for key in range(10):
            try:
                store.set_sync(f"c/{key}", as_buffer(held))
            except StorageError as error:
                assert "of 1048576 bytes of memory" in str(error)  # noqa: PT017
                assert f"c/{key}" in str(error)  # noqa: PT017
        with pytest.raises(StorageError, match="no room for 2000000 bytes"):
            store.set_sync("large", as_buffer(np.zeros(2_000_000, "u1")))
        sizes = [int(single_bytes(single)) for single in each_server(deployed, store).values()]
        assert max(sizes) <= 1 << 20
        assert sum(sizes) >= 5 * held.size

        def shown() -> list[int]:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            return sorted(worker["metrics"].get(METRIC, -1) for worker in workers)

        eventually(lambda: shown() == sorted(sizes))
    eventually(lambda: shown() == [-1, -1])


def test_a_full_memory_evicts(client: Client) -> None:
    with deploy(client, memory="4 MiB", when_full="evict") as deployed:
        store = deployed.store()
        for key in range(100):
            store.set_sync(f"c/{key}", as_buffer(np.full(200_000, key, "u1")))
        lost = 0
        for key in range(100):
            try:
                found = store.get_sync(f"c/{key}")
            except EvictedError:
                lost += 1
            else:
                assert found is not None
                assert found.to_bytes() == bytes([key]) * 200_000
        assert 50 < lost < 90


def test_a_full_memory_spills(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "spilled"
    values = np.random.default_rng(1).random((400, 300))
    with deploy(client, memory="1 MiB", when_full=f"spill:{folder}") as deployed:
        for name in "abcdef":
            array = make_array(deployed.store(), name)
            array[:] = values
        for name in "abcdef":
            read = zarr.open_array(deployed.store(), path=name, mode="r")
            np.testing.assert_array_equal(read[:], values.astype("f4"))
        assert len(list(folder.iterdir())) == 2, "each worker has a folder of its own"
        assert list(folder.glob("*/*.ucxstore-spilled"))
    eventually(lambda: not list(folder.glob("*/*.ucxstore-spilled")))


def single_bytes(store: UcxStore) -> int:
    return zarr.core.sync.sync(store.getsize_prefix(""))


def as_buffer(values: np.ndarray) -> zarr.core.buffer.cpu.Buffer:
    return zarr.core.buffer.cpu.Buffer.from_array_like(values)


def what_is_there(dask_worker: Worker) -> Counter[str]:
    """Count a worker's threads of ours, its listening sockets, and its plugins."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("ucxstore")]
    threads += [
        name
        for task in Path("/proc/self/task").iterdir()
        if (name := (task / "comm").read_text().strip()).startswith("ucx")
    ]
    inodes = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return Counter([*threads, *listening, *dask_worker.plugins])


def left(client: Client, before: Mapping[str, Counter[str]]) -> list[str]:
    """Return what is on workers that was not there before, where threads may just have ended."""
    now = client.run(what_is_there)
    return [what for worker, found in now.items() for what in found - before[worker]]


def test_close_leaves_nothing(client: Client) -> None:
    before = client.run(what_is_there)
    with deploy(client) as deployed:
        addresses = deployed.addresses
        store = deployed.store()
        make_array(store)[...] = 1
        assert left(client, before)
        store.close()
    deployed.close()

    def nothing_is_left() -> bool:
        with suppress(FileNotFoundError):  # of a thread that ends while it is looked at
            return not left(client, before)
        return False

    eventually(nothing_is_left)
    for address in addresses.values():
        host, _, port = address.removeprefix("ucx://").partition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
    with pytest.raises(ConnectError, match="is closed"):
        deployed.store()
    late = UcxStore(str(store), secret=store.secret, connect_timeout=5)
    with pytest.raises(ConnectError):
        late.get_sync("a/zarr.json")


def test_two_deployments_are_apart(client: Client) -> None:
    with deploy(client) as one, deploy(client) as other:
        assert not set(one.addresses.values()) & set(other.addresses.values())
        address = next(iter(one.addresses.values()))
        with pytest.raises(AuthenticationError):
            UcxStore(address, secret=other.store().secret).get_sync("a")
        one.close()
        make_array(other.store())[...] = 1


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_in_threads(workers: int) -> None:
    with (
        LocalCluster(n_workers=workers, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, timeout=SECONDS) as client,
        deploy(client) as deployed,
    ):
        values = some_values()
        z = make_array(deployed.store())
        da.from_array(values, chunks=CHUNKS).store(z, lock=False)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        assert len(deployed.addresses) == workers


def test_a_cluster_without_workers_is_refused() -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, timeout=SECONDS) as client,
        pytest.raises(ValueError, match="no worker yet"),
    ):
        deploy(client)


def test_what_cannot_start_leaves_nothing(client: Client, tmp_path: Path) -> None:
    plugins = client.run(what_is_there)
    with pytest.raises(ValueError, match="storage: 'ftp://host'"):
        deploy(client, "ftp://host")
    with pytest.raises(ValueError, match="freshness: only an object store"):
        deploy(client, tmp_path, freshness=3)
    with pytest.raises(ValueError, match="block_size: 1 is less"):
        deploy(client, "s3://bucket", block_size=1)
    with pytest.raises(ValueError, match="storage: 's3://bucket' cannot be opened"):
        deploy(client, "s3://bucket", storage_options={"region": "r", "nonsense": "x"})
    with pytest.raises(ValueError, match="memory"):
        deploy(client, memory=0)
    with pytest.raises(ValueError, match="threads"):
        deploy(client, threads=0)
    with pytest.raises(TypeError, match="socket: deploy sets it itself"):
        deploy(client, socket="s")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        deploy(client, file / "below", create=True)
    with pytest.raises(FileNotFoundError, match="no such directory; --create"):
        deploy(client, tmp_path / "missing")
    with pytest.raises(ValueError, match=r"^create: only a directory can be created$"):
        deploy(client, create=True)
    with pytest.raises(ValueError, match=r"^when_full: 'evict:a': the keys of a deployment"):
        deploy(client, when_full="evict:a")
    with pytest.raises(ValueError, match=r"^when_full: only memory:// has this option"):
        deploy(client, tmp_path, when_full="evict")
    assert client.run(what_is_there) == plugins


def test_another_directory_of_that_name_is_refused(tmp_path: Path) -> None:
    make_mark(str(tmp_path), "ucxstore-1")
    check_mark(str(tmp_path), "ucxstore-1", "tcp://worker")
    remove_mark(str(tmp_path), "ucxstore-1")
    with pytest.raises(ValueError, match=r"storage: .*tcp://worker is not the directory"):
        check_mark(str(tmp_path), "ucxstore-1", "tcp://worker")


def test_the_secret_is_known_by_name() -> None:
    secret = DeploymentSecret.hold("ucxstore-2", b"a secret text")
    for dumps in (cloudpickle.dumps, pickle.dumps):
        pickled = dumps(secret)
        assert b"secret text" not in pickled
        assert pickle.loads(pickled).reveal() == b"a secret text"
    assert repr(secret) == "Secret(of ucxstore-2)"
    del secret
    late = pickle.loads(pickled)
    with pytest.raises(AuthenticationError, match="no server of the deployment ucxstore-2"):
        late.reveal()
    again = DeploymentSecret.hold("ucxstore-2", b"a secret text")
    assert late.reveal() == again.reveal()


@pytest.mark.parametrize("missing", ["dask", "distributed"])
def test_without_dask(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import ucxstore.dask"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240
    )
    assert "ImportError: ucxstore.dask needs Dask" in found.stderr
    assert 'pip install "ucxstore[dask]"' in found.stderr
