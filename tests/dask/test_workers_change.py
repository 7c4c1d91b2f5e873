"""Workers are killed, come back, and join."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, Worker

from tests.dask.conftest import SECONDS
from tests.eventually import eventually
from ucxstore import ClusterError, Scratch, ServerLostError, UcxStore
from ucxstore.dask import Deployment, deploy, locality

SHAPE = (200, 200)


def write(store: UcxStore, values: np.ndarray) -> zarr.Array:
    z = zarr.create_array(
        store, name="a", shape=SHAPE, chunks=(20, 20), dtype="f4", fill_value=-1, compressors=None
    )
    z[...] = values
    return z


def some_values() -> np.ndarray:
    return np.random.default_rng(7).random(SHAPE, dtype="f4")


def holds(condition: Callable[[], bool]) -> None:
    eventually(condition, SECONDS, 0.05)


def kill_one(client: Client, deployed: Deployment) -> str:
    """Kill a worker, wait until its nanny has replaced it; return the address of its server."""
    before = deployed.addresses
    lost = min(before)
    os.kill(client.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
    holds(lambda: len(after := deployed.addresses) == len(before) and lost not in after)
    return before[lost].removeprefix("ucx://")


def test_what_a_killed_worker_held_raises(frail: Client) -> None:
    values = some_values()
    with deploy(frail) as deployed:
        store = deployed.store()
        z = write(store, values)
        place = kill_one(frail, deployed)
        with pytest.raises(ServerLostError, match=place):
            z[...]
        with pytest.raises(ServerLostError, match=place):
            da.from_zarr(z).compute()
        with pytest.raises(ServerLostError, match=place):
            locality(da.from_zarr(z), frail).compute()
        found = 0
        for i in range(0, SHAPE[0], 20):
            for j in range(0, SHAPE[1], 20):
                chunk = slice(i, i + 20), slice(j, j + 20)
                try:
                    np.testing.assert_array_equal(z[chunk], values[chunk])
                except ServerLostError:
                    continue
                found += 1
        assert 0 < found < 100
        # What the remaining workers hold is not taken for the whole array.
        with pytest.raises(ClusterError, match=f"missing with its values are {place}, and new are"):
            deployed.store()
        with pytest.raises(ClusterError, match=f"missing with its values are {place}"):
            deployed.store("below")
        anew = deployed.store(accept_changed=True)
        assert deployed.store() == anew
        assert place not in str(anew)
        with pytest.raises(FileNotFoundError):
            zarr.open_array(anew, path="a", mode="r")
        np.testing.assert_array_equal(da.from_zarr(write(anew, values)).compute(), values)


def test_a_worker_that_is_leaving_is_no_failure(frail: Client) -> None:
    """It has ended its plugins already, and is still asked to end them."""

    def ours(dask_worker: Worker) -> list[str]:
        return [name for name in dask_worker.plugins if name.startswith("ucxstore")]

    async def leave(dask_worker: Worker) -> None:
        for name in ours(dask_worker):
            await dask_worker.plugins.pop(name).teardown(dask_worker)

    with deploy(frail) as deployed:
        leaving = min(deployed.addresses)
        frail.run(leave, workers=[leaving])
        assert leaving not in deployed.addresses
    assert set(map(len, frail.run(ours).values())) == {0}


def test_a_directory_loses_nothing(frail: Client, tmp_path: Path) -> None:
    values = some_values()
    with deploy(frail, tmp_path / "shared", create=True) as deployed:
        z = write(deployed.store("x"), values)
        kill_one(frail, deployed)
        np.testing.assert_array_equal(z[...], values)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        near = locality(da.from_zarr(z), frail)
        np.testing.assert_array_equal(near.compute(), values)
        z[...] = values + 1
        again = zarr.open_array(deployed.store("x"), path="a", mode="r")
        np.testing.assert_array_equal(again[...], values + 1)
    assert not list((tmp_path / "shared").glob(".ucxstore-*.partial"))


def test_a_worker_joins_and_one_leaves(frail: Client) -> None:
    values = some_values()
    with deploy(frail) as deployed:
        store = deployed.store()
        z = write(store, values)
        frail.cluster.scale(3)
        holds(lambda: len(deployed.addresses) == 3)
        assert deployed.store() == store  # with its values, at the servers that it began with
        np.testing.assert_array_equal(zarr.open_array(deployed.store(), path="a")[...], values)
        anew = deployed.store("wide", accept_changed=True)
        assert len(anew.servers) == 3
        assert set(store.servers) < set(anew.servers)
        np.testing.assert_array_equal(z[...], values)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        (joined,) = set(deployed.addresses.values()) - {f"ucx://{s}" for s in store.servers}
        write(anew, values)
        assert anew.stats()["servers"][joined.removeprefix("ucx://")]["requests"] > 0
        wide = zarr.open_array(anew, path="a", mode="r")
        np.testing.assert_array_equal(da.from_zarr(wide).compute(), values)
        before = set(deployed.addresses.values())
        frail.cluster.scale(2)
        holds(lambda: len(deployed.addresses) == 2)
        (left,) = before - set(deployed.addresses.values())
        with pytest.raises(ServerLostError, match=left.removeprefix("ucx://")):
            wide[...]
        with pytest.raises(ClusterError, match=left.removeprefix("ucx://")):
            deployed.store("wide")
        assert len(deployed.store("wide", accept_changed=True).servers) == 2


def test_a_step_is_computed_anew_if_a_worker_is_killed(frail: Client) -> None:
    """A worker is killed when its first half is done: its chunks are lost with it."""
    values = some_values()
    attempts = []
    source = da.from_array(values, chunks=(20, 200))

    def step(scratch: Scratch) -> np.ndarray:
        attempts.append(scratch.name)
        between = zarr.create_array(
            scratch.store("between"), shape=SHAPE, chunks=(20, 20), dtype="f4", compressors=None
        )
        source.store(between, lock=False)
        if len(attempts) == 1:
            lost = min(deployed.addresses)
            os.kill(frail.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
        return da.from_zarr(between, chunks=(200, 20)).compute()

    with deploy(frail) as deployed:
        np.testing.assert_array_equal(deployed.retry(step, "4MB"), values)
        assert len(attempts) == 2
        attempts.clear()
        with pytest.raises(ClusterError, match="lost in each of 1 attempts"):
            deployed.retry(step, "4MB", attempts=1)


def test_the_cluster_is_gone_before_the_deployment(frail: Client) -> None:
    deployed = deploy(frail)
    frail.close()
    deployed.close()
