"""Measure the connection to a server for ``ucxstore doctor``, in some seconds at most."""

import socket
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ucxstore.address import HostPort
from ucxstore.errors import (
    ConnectError,
    GrantError,
    ReadOnlyServerError,
    StorageError,
    UcxStoreError,
)
from ucxstore.showing import one_line
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import cpu

_PINGS = 200
_REPEATS = 5

# The least and most bytes of the value that is moved, which takes about a quarter of a second. The
# most is larger than all caches of a processor.
_LEAST = 1 << 20
_MOST = 64 << 20
_SECONDS = 0.25

# The share of a server's free memory that the value may take: others write meanwhile, and while it
# is replaced, it is there twice.
_SHARE = 4


@dataclass(frozen=True, kw_only=True)
class Way:
    """The connection to a server: its lanes, and its measurements.

    Attributes
    ----------
    lanes : list of str
        The lanes that UCX chose.
    same_host : bool
        Whether the server's address is one of this machine (or container).
    round_trip : float
        Seconds, the median of many.
    write, read, copy : float or None
        Bytes a second of a value that is written and read, and of ``np.copyto`` into the same
        memory for comparison; ``None`` if no value was moved.
    nbytes : int
        Bytes of the value.
    why_not : str
        Why no value was moved; empty if one was.
    """

    lanes: list[str]
    same_host: bool
    round_trip: float
    write: float | None = None
    read: float | None = None
    copy: float | None = None
    nbytes: int = 0
    why_not: str = ""


def is_this_host(server: HostPort, timeout: float) -> bool:
    """Tell whether a server has an address of this machine.

    If so, both ends of a connection have the same address.

    Raises
    ------
    ConnectError
        If it cannot be reached.
    """
    try:
        with socket.create_connection((server.host, server.port), timeout) as sock:
            return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError as error:
        raise ConnectError(f"cannot connect to {server}: {one_line(error)}") from error


def measure(store: UcxStore, *, same_host: bool, write: bool) -> Way:
    """Measure round trips, and how fast a value is moved.

    Parameters
    ----------
    store : UcxStore
    same_host : bool
        Whether the server's address is one of this machine.
    write : bool
        Whether the value may be written to what is served, under a new key. Else it is written to a
        scratch space, if the server offers one.
    """
    store.ping_sync()
    trips = [_seconds(store.ping_sync) for _ in range(_PINGS)]
    if len(store.servers) == 1:
        # It may be one of a set, which holds but a part of the values: that does not matter here.
        last = {server: one.last for server, one in store._connectors.items()}
        store.rely_on({server: one.welcome.identity for server, one in last.items() if one})
    lanes = store.stats()["lanes"]
    way = Way(lanes=lanes, same_host=same_host, round_trip=statistics.median(trips))
    most = max(_LEAST, min(_MOST, _room(store) // _SHARE))
    if write:
        return _move(store, way, most)
    try:
        with store.scratch_sync(most * _SHARE) as scratch:
            return _move(scratch.store(), way, most)
    except (StorageError, GrantError) as error:
        return replace(way, why_not=f"{error}; --write does without scratch space")


def _room(store: UcxStore) -> int:
    """Return the bytes of memory that the server has left for values, if it has said so."""
    with suppress(UcxStoreError):
        stats = store.server_stats_sync()
        if limit := int(stats["memory_limit"]):
            return limit - int(stats["memory_used"])
    return _SHARE * _MOST


def _move(store: UcxStore, way: Way, most: int) -> Way:
    """Measure a value under a new key, and delete it again.

    If the server has no room for it, a smaller one is moved.
    """
    key = f"ucxstore-doctor-{uuid.uuid4().hex}"
    try:
        first = np.zeros(_LEAST, np.uint8)
        seconds = _seconds(lambda: store.set_sync(key, cpu.Buffer.from_array_like(first)))
        nbytes = int(min(max(_LEAST / seconds * _SECONDS, _LEAST), most))
        while True:
            try:
                return _move_value(store, way, key, nbytes)
            except StorageError:
                if nbytes == _LEAST:
                    raise
                nbytes = max(nbytes // _SHARE, _LEAST)
    except ReadOnlyServerError:
        return replace(way, why_not="the server takes no writes")
    except (StorageError, GrantError) as error:
        return replace(way, why_not=str(error))
    finally:
        with suppress(UcxStoreError):
            store.delete_sync(key)


def _move_value(store: UcxStore, way: Way, key: str, nbytes: int) -> Way:
    source = np.zeros(nbytes, np.uint8)
    target = np.zeros(nbytes, np.uint8)
    value = cpu.Buffer.from_array_like(source)
    return replace(
        way,
        write=_rate(lambda: store.set_sync(key, value), nbytes),
        read=_rate(lambda: store.get_into_sync(key, target), nbytes),
        copy=_rate(lambda: np.copyto(target, source), nbytes),
        nbytes=nbytes,
    )


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return max(time.perf_counter() - start, 1e-9)


def _rate(action: Callable[[], object], nbytes: int) -> float:
    return nbytes / statistics.median(_seconds(action) for _ in range(_REPEATS))
