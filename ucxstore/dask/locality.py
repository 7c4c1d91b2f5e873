"""`locality`: run the tasks that read chunks on the workers that hold them."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import dask.array as da
import zarr
from dask.array.core import slices_from_chunks
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, get_client

from ucxstore.address import HostPort
from ucxstore.cluster.placement import Placement
from ucxstore.dask.deployment import workers_of_servers
from ucxstore.store import UcxStore

type AnyArray = zarr.Array[Any]


def locality(array: da.Array, client: Client | None = None) -> da.Array:
    """Let the tasks that read a Dask array's blocks prefer the workers that hold their chunks.

    For a block with many chunks, it is the worker that holds most of them. Other workers may still
    take the task, so no task waits for a worker that has left.

    Dask drops annotations when it fuses tasks: compute with ``optimize_graph=False``.

    Parameters
    ----------
    array : dask.array.Array
        The result of ``dask.array.from_zarr`` for an array in a store of a `Deployment`. Call this
        before any computation on it.
    client : distributed.Client, optional
        The cluster's client; the current one by default.

    Returns
    -------
    dask.array.Array
        The same array, with annotated tasks.

    Raises
    ------
    ValueError
        If it is not read straight from a zarr array in a `UcxStore`.
    TimeoutError
        If the workers do not answer in time.

    Examples
    --------
    >>> x = locality(dask.array.from_zarr(z))  # doctest: +SKIP
    >>> x.mean().compute(optimize_graph=False)  # doctest: +SKIP
    """
    source = _source_of(array)
    workers = workers_of_servers(get_client() if client is None else client)
    preferred = _preferred_workers(array, source, workers)
    layers = dict(array.dask.layers)
    reading = layers[array.name] = copy.copy(layers[array.name])
    reading.annotations = {
        # The scheduler calls this. It may not have this package, so use a method of dict.
        "workers": preferred.get,
        "allow_other_workers": True,
        # A value of our own: Dask fuses layers with equal annotations, and cannot join functions.
        "ucxstore": "locality",
    }
    graph = HighLevelGraph(layers, array.dask.dependencies)
    return da.Array(graph, array.name, array.chunks, meta=array)


def _source_of(array: da.Array) -> AnyArray:
    """Find the zarr array that a Dask array's tasks read from."""
    graph = array.dask
    reading = graph.layers[array.name] if isinstance(graph, HighLevelGraph) else None
    found: list[object] = []
    if isinstance(reading, Blockwise):
        found += [argument for argument, _ in reading.indices]
        for name in graph.dependencies[array.name]:
            found += graph.layers[name].values()
    values = [getattr(each, "value", each) for each in found]
    arrays = [value for value in values if isinstance(value, zarr.Array)]
    if len(arrays) != 1 or arrays[0].shape != array.shape:
        raise ValueError(
            f"array: {array!r} is not read straight from a zarr array, as dask.array.from_zarr does"
        )
    if not isinstance(arrays[0].store, UcxStore):
        raise ValueError(f"array: {arrays[0]!r} is not in a UcxStore")
    return arrays[0]


def _preferred_workers(
    array: da.Array, source: AnyArray, workers: dict[HostPort, str]
) -> dict[tuple[str | int, ...], list[str]]:
    """Map the keys of the tasks to the workers that hold most of what they read."""
    store = source.store
    assert isinstance(store, UcxStore)
    servers = store.servers
    lost = frozenset(i for i, server in enumerate(servers) if server not in workers)
    if len(lost) == len(servers):
        return {}
    placement = Placement([str(server) for server in servers])
    prefix = store._key_prefix + (f"{source.path}/" if source.path else "")
    preferred: dict[tuple[str | int, ...], list[str]] = {}
    chunks = source.shards or source.chunks
    blocks = itertools.product(*map(range, array.numblocks))
    for block, selection in zip(blocks, slices_from_chunks(array.chunks), strict=True):
        coordinates = _chunks_of(selection, chunks)
        keys = [prefix + source.metadata.encode_chunk_key(each) for each in coordinates]
        if keys:
            ((most, _),) = Counter(placement.servers_of(keys, lost)).most_common(1)
            preferred[array.name, *block] = [workers[servers[most]]]
    return preferred


def _chunks_of(selection: Sequence[slice], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return the coordinates of the chunks that a block overlaps."""
    return itertools.product(
        *(
            range(part.start // size, math.ceil(part.stop / size))
            for part, size in zip(selection, chunks, strict=True)
        )
    )
