"""`share`: a task's result as a value in a store, which other workers of the host map.

Dask sends the result of a task to the workers that need it: it copies the bytes to a socket, and
from there. A shared array is in the memory of a server. To a worker of the same host Dask sends
where that is, and the worker maps it. To any other process, and to disk, it sends the bytes.
"""

import itertools
import os
import pickle
import threading
import weakref
from contextlib import suppress
from queue import SimpleQueue
from secrets import token_hex
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import get_worker
from distributed.comm.addressing import get_address_host
from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from numpy.lib.mixins import NDArrayOperatorsMixin

from ucxstore.base import process
from ucxstore.base.address import HostPort
from ucxstore.base.errors import StorageError, UcxStoreError
from ucxstore.cluster.placement import Placement
from ucxstore.dask.plugin import servers_in
from ucxstore.stores.channel_store import keyspace_of
from ucxstore.stores.store import UcxStore

# Servers take over values from this size on without a copy. To send fewer bytes takes Dask about as
# long as to connect two processes.
LEAST_BYTES = 1 << 20

# Where a store keeps shared arrays, below its prefix.
_FOLDER = "shared"


class SharedArray(np.ndarray[Any, Any]):
    """An array over a value in a store, which it owns: the value is deleted with the array.

    `share` makes it. An array that is computed from it, or a part of it, is as any other. It cannot
    be written to.
    """

    _owned: "_Owned | None" = None  # none of arrays that are made from this one

    def __array_wrap__(
        self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        """Let functions of numpy return plain arrays."""
        return array[()] if return_scalar else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.array(self, subok=False).__reduce__()


class LostArray(NDArrayOperatorsMixin):
    """Stands in for a shared array that is gone: any use of it raises.

    An error while Dask reads a message would leave its worker waiting for ever
    (dask/distributed#6705).

    Parameters
    ----------
    why : str
        Names the key of the value.
    """

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise UcxStoreError(self._why)

    __array__ = __array_ufunc__ = __array_function__ = _fail
    __getitem__ = __setitem__ = __len__ = __iter__ = __bool__ = __buffer__ = _fail

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__array_interface__":
            raise AttributeError(name)
        return self._fail()

    def __reduce__(self) -> Any:
        return LostArray, (self._why,)

    def __repr__(self) -> str:
        return f"LostArray({self._why!r})"


class _Owned:
    """A value in a store, which is deleted when this goes.

    Parameters
    ----------
    store : UcxStore
    key : str
    """

    def __init__(self, store: UcxStore, key: str) -> None:
        self.store = store
        self.key = key
        finalizer = weakref.finalize(self, _deleter.delete, store, key, os.getpid())
        finalizer.atexit = False  # the space of the values ends, or the server does


class _Deleter:
    """Delete values in a thread: arrays go on any thread, such as an event loop's."""

    def __init__(self) -> None:
        self._lock = process.lock()
        self._leave_to_parent()
        process.in_child(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a forked child: the parent's arrays are not the child's to delete."""
        self._queue: SimpleQueue[tuple[UcxStore, str]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=[self._queue], name="ucxstore-shared", daemon=True
                )
                self._thread.start()

    def delete(self, store: UcxStore, key: str, pid: int) -> None:
        """Have a value deleted soon, if this process is the one that put it there."""
        if os.getpid() == pid:
            self._queue.put((store, key))

    def _run(self, queue: "SimpleQueue[tuple[UcxStore, str]]") -> None:
        while True:
            store, key = queue.get()
            with suppress(UcxStoreError):  # its space has ended, or its server has gone
                store.delete_sync(key)
            del store


_deleter = _Deleter()


def share[Array: npt.NDArray[Any]](store: UcxStore, array: Array) -> Array | SharedArray:
    """Put an array into a store, so that Dask passes it on by reference.

    Call it at the end of a task, on what the task returns. Tasks that use the result, in a worker
    of the same host, find an array that is mapped, and that cannot be written to. Other hosts,
    and Dask's spilling to disk, get the bytes, as of any array.

    The value is deleted once Dask has released the result where it was made. A task that has mapped
    it by then keeps the memory. To a task that comes later, such as after the loss of the server,
    each use of the result raises `UcxStoreError`, which names the key.

    Parameters
    ----------
    store : UcxStore
        Best a store of a deployment's scratch space (`Deployment.scratch`). In a worker with one of
        its servers the value goes to that server.
    array : ndarray
        Without objects. One of less than 1 MiB is returned as it is.

    Returns
    -------
    ndarray
        With the same values.

    Raises
    ------
    TypeError
        If its elements are objects.
    StorageError
        If the store has no room for it.

    Examples
    --------
    >>> def load(store, path):
    ...     return share(store, np.load(path))
    >>> with deployed.scratch("4GiB") as scratch:  # doctest: +SKIP
    ...     loaded = client.submit(load, scratch.store(), path)
    ...     sums = client.map(lambda i, x: x[i].sum(), range(10), x=loaded)
    """
    if array.dtype.hasobject:
        raise TypeError(f"array: elements of {array.dtype} are no bytes that others can map")
    if array.nbytes < LEAST_BYTES:
        return array
    key = _new_key(store)
    with store.allocate_sync(key, array.nbytes) as memory:
        np.copyto(memory.view(array.dtype, array.shape), array)
        memory.commit_sync()
    _deleter.start()
    owned = _Owned(store, key)
    shared = _map(store, key, array.dtype, array.shape).view(SharedArray)
    shared._owned = owned
    return shared


def _new_key(store: UcxStore) -> str:
    """Return a key that nobody uses, at the server of this worker if it has one of the store's."""
    keys = (f"{_FOLDER}/{token_hex(16)}" for _ in itertools.count())
    here = [str(server) for server in store.servers if server in _servers_here()]
    if not here or len(store.servers) == 1:
        return next(keys)
    placement = Placement([str(server) for server in store.servers])
    mine = store.servers.index(HostPort.parse(here[0]))
    prefix = keyspace_of(store).prefix
    return next(key for key in keys if placement.servers_of([prefix + key]) == [mine])


def _servers_here() -> set[HostPort]:
    try:
        worker = get_worker()
    except ValueError:  # not in a task
        return set()
    return {running.server for running in servers_in(worker).values()}


def _map(
    store: UcxStore, key: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Return the array of a value, mapped if it can be."""
    view = store.view_sync(key)
    if view is None:
        raise StorageError(
            f"{key!r} is gone: the task's result that it was has been released, or lost with its "
            "worker"
        )
    return view.array.view(dtype).reshape(shape)


# ---- Dask's serialization ----


@dask_serialize.register(SharedArray)  # type: ignore[untyped-decorator]
def _serialize(array: SharedArray, context: dict[str, Any] | None = None) -> Any:
    owned = array._owned
    if owned is None or not _is_for_this_host(context):
        header, frames = serialize_numpy_ndarray(np.asarray(array), context)
        return {"bytes": header}, frames
    reference = owned.store, owned.key, array.dtype, array.shape
    return {"reference": pickle.dumps(reference)}, []


@dask_deserialize.register(SharedArray)  # type: ignore[untyped-decorator]
def _deserialize(header: dict[str, Any], frames: list[Any]) -> "npt.NDArray[Any] | LostArray":
    if "reference" in header:
        try:
            return _map(*pickle.loads(header["reference"]))
        except UcxStoreError as error:
            return LostArray(f"the result of a task cannot be read: {error}")
    array: npt.NDArray[Any] = deserialize_numpy_ndarray(header["bytes"], frames)
    return array


def _is_for_this_host(context: dict[str, Any] | None) -> bool:
    """Tell whether a message goes to another process of this host, and not to disk."""
    try:
        assert context is not None
        ends = context["sender"]["address"], context["recipient"]["address"]
        here, there = map(get_address_host, ends)
    except (AssertionError, KeyError, TypeError, ValueError):
        return False
    return here == there
