"""Rechunk an array in the memory of many Dask workers: all of them read from all of them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import psutil
import zarr
from distributed import Client, LocalCluster

from benchmarks.children import answer
from benchmarks.process import descriptors, proportional_bytes
from ucxstore.dask import Deployment, deploy

_START_SECONDS = 180
_LOOK_SECONDS = 0.5

# Of the servers, and of the stores. Without the local plane, as between hosts.
_WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tcp": ({"local": False}, {"local": "off", "network": "tcp"}),
    "ucx": ({"local": False, "ucx": {"TLS": "tcp"}}, {"local": "off", "network": "ucx"}),
    "local": ({"local": True}, {"local": "auto"}),
}


type Moment = dict[str, int]
"""What all workers have at one moment.

Its `connections` are those over TCP between two of the servers' processes, other than Dask's own;
`descriptors` is of the process that has most; `memory` are the proportional sets of all.
"""


def main(way: str, workers: int, side: int, slabs: int, idle_seconds: float) -> Any:
    """Rechunk a square array from rows to columns, in slabs; return seconds and moments.

    `way` is "tcp" or "ucx", without the local plane, or "local".
    """
    of_server, of_store = _WAYS[way]
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers, timeout=_START_SECONDS)
        with deploy(client, memory="4GiB", **of_server) as deployed:
            client.run(_warm_up)
            watch = _Watch(client)
            before, sessions = watch.look(), [_sessions(deployed)]
            with watch.running():
                times = _rechunk(deployed, of_store, side, slabs)
                end = watch.look()
            peak = watch.most
            sessions.append(_sessions(deployed))
            time.sleep(idle_seconds)
            idle = watch.look()
            sessions.append(_sessions(deployed))
    return {
        "seconds": np.diff(times).tolist(),
        "moments": {"before": before, "peak": peak, "end": end, "idle": idle},
        "sessions": dict(zip(("before", "end", "idle"), sessions, strict=True)),
    }


class _Watch:
    """Look at the workers' processes, once or all the time.

    Parameters
    ----------
    client : Client

    Attributes
    ----------
    most : Moment
        The greatest figures of all looks.
    """

    def __init__(self, client: Client) -> None:
        found = client.run(_process_and_port)
        self._processes = [psutil.Process(pid) for pid, _ in found.values()]
        self._of_dask = {port for _, port in found.values()}
        self.most: Moment = {}

    def look(self) -> Moment:
        now = {
            "connections": self._connections(),
            "descriptors": max(descriptors(process.pid) for process in self._processes),
            "memory": sum(proportional_bytes(process.pid) for process in self._processes),
        }
        self.most = {name: max(figure, self.most.get(name, 0)) for name, figure in now.items()}
        return now

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look all the time, in a thread."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_SECONDS):
                self.look()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _connections(self) -> int:
        ends = [
            (one.laddr, one.raddr)
            for process in self._processes
            for one in process.net_connections("tcp")
            if one.status == psutil.CONN_ESTABLISHED
        ]
        found = set(ends)
        return (
            sum(
                (there, here) in found and not self._of_dask & {here.port, there.port}
                for here, there in ends
            )
            // 2
        )


def _process_and_port(dask_worker: Any) -> tuple[int, int]:
    """Return the process of a worker, and the port at which Dask reaches it."""
    return psutil.Process().pid, int(dask_worker.address.rpartition(":")[2])


def _sessions(deployed: Deployment) -> int:
    """Return how many sessions all servers have, also those with other processes."""
    return deployed.stats().connected


def _warm_up() -> float:
    """Let a worker import what its tasks need; it does not connect."""
    from ucxstore import UcxStore

    assert UcxStore
    return float(zarr.create_array({}, data=np.ones((2, 2)))[:].sum())


def _rechunk(deployed: Deployment, options: dict[str, Any], side: int, slabs: int) -> list[float]:
    """Write slabs of rows and read slabs of columns; return the moments in between."""
    width = side // slabs
    store = deployed.store("rechunk", **options)
    pieces = zarr.create_array(
        store,
        name="pieces",
        shape=(side, side),
        chunks=(width, width),
        dtype="u4",
        compressors=None,
    )
    times = [time.perf_counter()]
    _numbers(side, (width, side)).store(pieces, lock=False)
    times.append(time.perf_counter())
    columns = side, width
    wrong = da.from_zarr(pieces, chunks=columns) != _numbers(side, columns)
    if wrong.any().compute():
        raise AssertionError("the data came out wrong")
    times.append(time.perf_counter())
    return times


def _numbers(side: int, chunks: tuple[int, int]) -> da.Array:
    """Number the elements of an array. All differ, so a misplaced one is found."""
    return da.map_blocks(
        _number,
        chunks=da.core.normalize_chunks(chunks, (side, side)),
        dtype="u4",
        meta=np.empty((0, 0), "u4"),
        side=side,
    )


def _number(side: int, block_info: Any = None) -> npt.NDArray[np.uint32]:
    (top, bottom), (left, right) = block_info[None]["array-location"]
    rows = np.arange(top, bottom, dtype=np.uint32)[:, None]
    return rows * np.uint32(side) + np.arange(left, right, dtype=np.uint32)


if __name__ == "__main__":
    answer(main)
