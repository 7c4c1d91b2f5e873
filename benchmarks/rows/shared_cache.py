"""Four Dask workers read an array in S3: directly, and through one shared cache."""

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster
from obstore.store import S3Store
from zarr.codecs import BloscCodec
from zarr.storage import ObjectStore

from benchmarks.data import Values, smooth_values
from benchmarks.latency import delayed
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import Times
from benchmarks.ways import LOCAL, SHARED_MEMORY, Way
from profiles.s3 import S3Server, s3_server
from ucxstore.dask import Deployment, deploy

_WORKERS = 4
_LATENCY = 20  # milliseconds
# With small chunks, most of the time is spent waiting for the network; with larger ones it is not.
_SMALL, _LARGER = (125, 125), (250, 250)
_BLOCK = (2000, 2000)  # of a task: with smaller blocks, Dask's own time would dominate
_CODEC = BloscCodec(cname="lz4")  # 7 GB/s, so that the codec does not dominate

_WALKS = 2000

_WAYS = (LOCAL, SHARED_MEMORY)

_DIRECT = "{}: ObjectStore on obstore"
_OURS = "{}: shared cache, {}, {} pass"
_PASSES = {"first": at_least(1), "second": at_least(5), "third": at_least(5)}


def measure(scale: Scale, folder: Path) -> Row:
    # The array repeats the same random walks; no candidate takes advantage of that.
    times_over = math.ceil(scale.cluster_side / _WALKS)
    values = np.tile(smooth_values((_WALKS, _WALKS)), (times_over, times_over))
    right = folder / "values.npy"
    np.save(right, values)
    lines: list[Line] = []
    times: dict[str, Times] = {}
    notes: list[str] = []
    for chunk in (_SMALL, _LARGER):
        what = f"chunks of {4e-3 * math.prod(chunk):g} kB"
        part = folder / what.replace(" ", "-")
        found, note = _measure(values, right, chunk, scale.cluster_rounds, part)
        times |= {name.format(what, *rest): one for (name, *rest), one in found.items()}
        lines += [
            times_as_fast(
                times,
                _OURS.format(what, way.name, name),
                _DIRECT.format(what),
                target,
                counts=chunk == _SMALL,
            )
            for way in _WAYS
            for name, target in _PASSES.items()
        ]
        notes.append(f"{what}: {note}")
    return Row(
        name="shared-cache",
        title=f"{values.nbytes / 1e6:g} MB in S3, {_LATENCY} ms away, by {_WORKERS} Dask workers",
        lines=lines,
        times=times,
        notes=notes,
    )


def _measure(
    values: Values, right: Path, chunk: tuple[int, int], rounds: int, folder: Path
) -> tuple[dict[tuple[str, ...], Times], str]:
    """Return the times of each candidate, and a note about the array."""
    folder.mkdir()
    passes = [(_OURS, way.name, name) for way in _WAYS for name in _PASSES]
    times: dict[tuple[str, ...], Times] = {key: Times() for key in ((_DIRECT,), *passes)}
    config = {"distributed.worker.memory.terminate": False, "scheduler": None}
    with (
        s3_server(folder / "s3") as s3,
        delayed(s3.endpoint, _LATENCY, folder) as endpoint,
        dask.config.set(config),
        LocalCluster(n_workers=_WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(_WORKERS, timeout=60)
        array = zarr.create_array(
            _object_store(s3, s3.endpoint),
            shape=values.shape,
            chunks=chunk,
            dtype=values.dtype,
            compressors=_CODEC,
        )
        array[...] = values
        stored = math.fsum(entry["size"] for page in array.store.store.list() for entry in page)

        def direct() -> None:
            store = _object_store(s3, endpoint)
            times[_DIRECT,].seconds.append(_time(lambda: store, right))

        def ours(way: Way) -> None:
            url = f"s3://{s3.bucket}"
            options = {"storage_options": _options(s3, endpoint), **way.of_server}
            with deploy(client, url, memory="1GiB", **options) as deployed:
                for name in _PASSES:
                    times[_OURS, way.name, name].seconds.append(_pass(deployed, way, right))

        _time(lambda: _object_store(s3, s3.endpoint), right)  # imports
        for number in range(rounds):
            candidates = [direct, *(functools.partial(ours, way) for way in _WAYS)]
            for candidate in candidates if number % 2 else reversed(candidates):
                candidate()
    return times, f"{s3.description}; {values.nbytes / stored:.1f} to 1"


def _pass(deployed: Deployment, way: Way, right: Path) -> float:
    store = deployed.store(strict=True, **way.of_client)
    seconds = _time(lambda: store, right)
    way.check(store)
    return seconds


def _options(s3: S3Server, endpoint: str) -> dict[str, str]:
    return {
        "endpoint": endpoint,
        "region": s3.region,
        "access_key_id": s3.access_key,
        "secret_access_key": s3.secret_key,
    }


def _object_store(s3: S3Server, endpoint: str) -> ObjectStore:
    options = _options(s3, endpoint)
    return ObjectStore(S3Store(s3.bucket, **options, client_options={"allow_http": True}))


def _time(open_store: Callable[[], Any], right: Path) -> float:
    """Time a pass over the array; the tasks that read it compare every bit."""
    start = time.perf_counter()
    array = zarr.open_array(open_store(), mode="r", zarr_format=3)
    x = da.from_zarr(array, chunks=_BLOCK)
    same = x.map_blocks(_is_right, right, chunks=(1, 1), dtype=bool, meta=np.empty((0, 0), bool))
    if not same.all().compute():
        raise AssertionError(f"{array.store}: the data came back wrong")
    return time.perf_counter() - start


@functools.cache
def _mapped(path: Path) -> Any:
    return np.load(path, mmap_mode="r")


def _is_right(block: Any, right: Path, block_info: Any) -> Any:
    selection = tuple(slice(*each) for each in block_info[0]["array-location"])
    values = _mapped(right)[selection]
    return np.array([[np.array_equal(block.view("u4"), values.view("u4"))]])
