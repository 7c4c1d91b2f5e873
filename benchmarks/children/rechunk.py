"""Rechunk a zarr array with Dask, by way of intermediate pieces in a store, or without any."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import zarr
from distributed import Client, LocalCluster
from obstore.store import S3Store
from zarr.abc.store import Store
from zarr.storage import LocalStore, ObjectStore

from benchmarks import process
from benchmarks.children import answer
from benchmarks.ways import LOCAL, SHARED_MEMORY
from profiles.s3 import s3_server
from ucxstore import UcxStore
from ucxstore.dask import deploy

type Shape = tuple[int, ...]

_START_SECONDS = 60

_WAYS = {"local scratch": LOCAL, "scratch": SHARED_MEMORY}


def main(
    location: str | None, folder: str, chunks: list[list[int]], shape: list[int], workers: int
) -> Any:
    """Rechunk an array in `folder`; return the seconds of both stages, and bytes of memory.

    `location` is where the pieces are stored: "local scratch" or "scratch" (in the workers' memory,
    which others on this host see, or get by UCX's shared memory), "directory" or "S3". With "parts"
    there are none: the tasks of the only stage read parts of the source's chunks. With None, make
    the source array instead.
    """
    source_chunks, target_chunks = map(tuple, chunks)
    piece = tuple(map(min, source_chunks, target_chunks))
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers, timeout=_START_SECONDS)
        if location is None:
            return _make_source(Path(folder), tuple(shape), source_chunks)
        with _pieces_in(location, client, Path(folder)) as (store, servers, note):
            straight = location == "parts"
            whole = store.at("") if straight and isinstance(store, UcxStore) else LocalStore(folder)
            source = zarr.open_array(whole, path="source", mode="r")
            target = _make_array(LocalStore(folder), "target", source.shape, target_chunks)
            pieces = source if straight else _make_array(store, "pieces", source.shape, piece)
            _warm_up(store, client)
            os.sync()
            pids = [*client.run(os.getpid).values(), *servers]
            for pid in pids:
                process.reset_peak(pid)
            times = [time.perf_counter()]
            if not straight:
                da.from_zarr(source).store(pieces, lock=False)
            times.append(time.perf_counter())
            da.from_zarr(pieces, chunks=target_chunks).store(target, lock=False)
            times.append(time.perf_counter())
            peak = sum(map(process.peak_bytes, pids))
            if (da.from_zarr(target) != _numbers(target)).any().compute():
                raise AssertionError(f"{location}: the data came out wrong")
    return {"seconds": np.diff(times).tolist(), "peak": peak, "note": note}


@contextmanager
def _pieces_in(
    location: str, client: Client, folder: Path
) -> Iterator[tuple[Store, list[int], str]]:
    """Yield a store for the pieces, the ids of its server processes, and a note about it."""
    if location in _WAYS:
        way = _WAYS[location]
        with (
            deploy(client, memory="3GiB", **way.of_server) as deployed,
            deployed.scratch(quota="3GiB", strict=True, **way.of_client) as scratch,
        ):
            store = scratch.store()
            yield store, [], ""
            way.check(store)
    elif location == "parts":
        with deploy(client, str(folder), memory="16MiB", **LOCAL.of_server) as deployed:
            store = deployed.store("pieces", strict=True, **LOCAL.of_client)
            yield store, [], ""
            LOCAL.check(store)
    elif location == "directory":
        yield LocalStore(folder / "pieces"), [], ""
    else:
        with s3_server(folder / "s3") as server:
            bucket = S3Store(
                server.bucket,
                endpoint=server.endpoint,
                region=server.region,
                access_key_id=server.access_key,
                secret_access_key=server.secret_key,
                client_options={"allow_http": True},
                virtual_hosted_style_request=False,
            )
            pids = [] if server.pid is None else [server.pid]
            yield ObjectStore(bucket), pids, server.description


def _make_source(folder: Path, shape: Shape, chunks: Shape) -> None:
    source = _make_array(LocalStore(folder), "source", shape, chunks)
    _numbers(source).store(source, lock=False)


def _make_array(store: Store, name: str, shape: Shape, chunks: Shape) -> Any:
    return zarr.create_array(
        store, name=name, shape=shape, chunks=chunks, dtype="u4", compressors=None
    )


def _numbers(like: Any) -> da.Array:
    """Number the elements of an array. All differ, so a misplaced one is found."""
    return da.map_blocks(
        _number,
        like.shape,
        chunks=da.core.normalize_chunks(like.chunks, like.shape),
        dtype=like.dtype,
        meta=np.empty((0,) * like.ndim, like.dtype),
    )


def _number(shape: Shape, block_info: Any = None) -> npt.NDArray[np.uint32]:
    numbers = np.zeros((), np.uint32)
    for length, (start, stop) in zip(shape, block_info[None]["array-location"], strict=True):
        numbers = numbers[..., None] * np.uint32(length) + np.arange(start, stop, dtype=np.uint32)
    return numbers


def _warm_up(store: Store, client: Client) -> None:
    """Let each worker import what it needs, and connect."""
    small = _make_array(store, "small", (64, 64), (1, 64))
    da.ones((64, 64), chunks=(1, 64), dtype="u4").store(small, lock=False)
    client.run(_read, small)


def _read(array: Any) -> None:
    array[:]


if __name__ == "__main__":
    answer(main)
