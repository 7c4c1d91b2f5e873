"""`locality`: run the tasks that read chunks on the workers that hold them."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import dask
import dask.array as da
import zarr
from dask.array.core import slices_from_chunks
from dask.array.optimization import optimize as dasks_own
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, get_client

from ucxstore.base import process
from ucxstore.base.address import HostPort
from ucxstore.cluster.placement import Placement
from ucxstore.dask.deployment import workers_of_servers
from ucxstore.stores.channel_store import keyspace_of
from ucxstore.stores.store import UcxStore

type AnyArray = zarr.Array[Any]

# An annotation of our own: Dask fuses layers with equal annotations, and cannot join functions.
_MARK = "ucxstore"

_setting = process.lock()


def locality(array: da.Array, client: Client | None = None) -> da.Array:
    """Let the tasks that read a Dask array's blocks prefer the workers that hold their chunks.

    For a block with many chunks, it is the worker that holds most of them. Other workers may still
    take the task, so no task waits for a worker that has left.

    Dask would drop that preference when it optimizes a graph, since it fuses the tasks that read
    with those that follow. So this call sets Dask's configuration ``array_optimize`` in this
    process: in graphs with such a preference, layers are fused and unneeded tasks are left out, but
    tasks are not fused one by one. Other graphs are optimized as before.

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
    >>> x.mean().compute()  # doctest: +SKIP
    """
    source = _source_of(array)
    _keep_preferences()
    workers = workers_of_servers(get_client() if client is None else client)
    preferred = _preferred_workers(array, source, workers)
    layers = dict(array.dask.layers)
    reading = layers[array.name] = copy.copy(layers[array.name])
    reading.annotations = {
        # The scheduler calls this. It may not have this package, so use a method of dict.
        "workers": preferred.get,
        "allow_other_workers": True,
        _MARK: "locality",
    }
    graph = HighLevelGraph(layers, array.dask.dependencies)
    return da.Array(graph, array.name, array.chunks, meta=array)


def _keep_preferences() -> None:
    """Let Dask optimize graphs with a preference in a way that keeps it."""
    with _setting:
        usual = dask.config.get("array_optimize", dasks_own)
        if not hasattr(usual, _MARK):
            dask.config.set(array_optimize=_Optimizer(usual))


class _Optimizer:
    """An optimizer that leaves graphs without a preference to the usual one.

    The scheduler runs it, and may not have this package. A nanny gives Dask's configuration to its
    worker. So it pickles itself as the code of a function, which is what both get.
    """

    def __init__(self, usual: Any) -> None:
        self._optimize = _optimizer(usual, _MARK)
        setattr(self, _MARK, True)

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        return self._optimize(graph, keys, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (cloudpickle.dumps(self._optimize),)


def _optimizer(usual: Any, mark: str) -> Callable[..., Any]:
    # It imports what it needs, and refers to nothing of this module.
    def optimize(graph: Any, keys: Any, **options: Any) -> Any:
        from dask.blockwise import fuse_roots, optimize_blockwise
        from dask.core import flatten

        layers = getattr(graph, "layers", {}).values()
        if not any(mark in (layer.annotations or {}) for layer in layers):
            return usual(graph, keys, **options) if usual else graph
        # As Dask's own, but for the last step, which makes one layer of all.
        names = list(flatten(keys if isinstance(keys, list | set) else [keys]))
        graph = fuse_roots(optimize_blockwise(graph, keys=names), keys=names)
        return graph.cull(set(names))

    setattr(optimize, mark, True)
    return optimize


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
    array: da.Array, source: AnyArray, workers: dict[HostPort, list[str]]
) -> dict[tuple[str | int, ...], list[str]]:
    """Map the keys of the tasks to the workers that hold most of what they read."""
    store = source.store
    assert isinstance(store, UcxStore)
    servers = store.servers
    lost = frozenset(i for i, server in enumerate(servers) if server not in workers)
    if len(lost) == len(servers):
        return {}
    placement = Placement([str(server) for server in servers])
    prefix = keyspace_of(store).prefix + (f"{source.path}/" if source.path else "")
    preferred: dict[tuple[str | int, ...], list[str]] = {}
    chunks = source.shards or source.chunks
    blocks = itertools.product(*map(range, array.numblocks))
    for block, selection in zip(blocks, slices_from_chunks(array.chunks), strict=True):
        coordinates = _chunks_of(selection, chunks)
        keys = [prefix + source.metadata.encode_chunk_key(each) for each in coordinates]
        if keys:
            ((most, _),) = Counter(placement.servers_of(keys, lost)).most_common(1)
            preferred[array.name, *block] = workers[servers[most]]
    return preferred


def _chunks_of(selection: Sequence[slice], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return the coordinates of the chunks that a block overlaps."""
    return itertools.product(
        *(
            range(part.start // size, math.ceil(part.stop / size))
            for part, size in zip(selection, chunks, strict=True)
        )
    )
