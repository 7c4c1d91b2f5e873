"""Small clusters, in processes, which are always closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster, Worker

from ucxstore.dask.plugin import bytes_held

SECONDS = 60  # for a cluster to start, and for what is asked of it

_CONFIG = {
    # A task stays where it was put, so that a test can tell where that was.
    "distributed.scheduler.work-stealing": False,
    # From a process that has imported it all; to start a new interpreter takes seconds.
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "20s",
    # For later tests: a client that was closed by hand stays registered here.
    "scheduler": None,
}


@contextmanager
def cluster_of(workers: int, **options: Any) -> Iterator[Client]:
    with (
        dask.config.set(_CONFIG),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", **options
        ) as cluster,
        Client(cluster, timeout=SECONDS, **options) as client,
    ):
        client.wait_for_workers(workers, timeout=SECONDS)
        yield client


@contextmanager
def hosts_of(*workers: str) -> Iterator[Client]:
    """Start a cluster with a worker at each of these addresses, as if each were a host."""
    spec = {
        number: {"cls": Nanny, "options": {"host": host, "nthreads": 1, "dashboard": False}}
        for number, host in enumerate(workers)
    }
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "dashboard_address": ":0", "port": 0},
    }
    with (
        dask.config.set(_CONFIG),
        SpecCluster(workers=spec, scheduler=scheduler) as cluster,
        Client(cluster, timeout=SECONDS) as client,
    ):
        client.wait_for_workers(len(workers), timeout=SECONDS)
        yield client


@pytest.fixture(autouse=True)
def _dasks_own_optimizer() -> Iterator[None]:
    """Undo what `locality` sets in Dask's configuration."""
    yield
    dask.config.config.pop("array_optimize", None)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a cluster in which no worker is killed."""
    with cluster_of(2) as client:
        yield client


@pytest.fixture
def frail() -> Iterator[Client]:
    """A client of a cluster whose workers may be killed, and come back."""
    with cluster_of(2) as client:
        yield client


def bytes_held_in(dask_worker: Worker) -> int:
    """Return the bytes that a worker's server holds, for `Client.run`."""
    return bytes_held(dask_worker)
