"""Measurements of the way to a server by ``ucxstore doctor``: some seconds at the most."""

import socket
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ucxstore.address import HostPort
from ucxstore.errors import ConnectError, ReadOnlyServerError, UcxStoreError
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import cpu

_PINGS = 200
_REPEATS = 5

# Bytes of the value that is moved. It takes about a quarter of a second, and is at most as large
# as this, which is beyond all caches.
_LEAST = 1 << 20
_MOST = 64 << 20
_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Way:
    """The way to a server, as it is now.

    Attributes
    ----------
    lanes : list of str
        The lanes that UCX chose.
    same_host : bool
        Whether the server's address is one of this machine (or container).
    round_trip : float
        Seconds, the median of many.
    write, read, copy : float or None
        Bytes a second: of a value sent and received, and of ``np.copyto`` into the same memory,
        for comparison; ``None`` at a server that takes no writes.
    nbytes : int
        Bytes of that value.
    """

    lanes: list[str]
    same_host: bool
    round_trip: float
    write: float | None = None
    read: float | None = None
    copy: float | None = None
    nbytes: int = 0


def is_this_host(server: HostPort, timeout: float) -> bool:
    """Tell whether a server has an address of this machine: then both ends of a connection do.

    Raises
    ------
    ConnectError
        If there is no way to it.
    """
    try:
        with socket.create_connection((server.host, server.port), timeout) as sock:
            return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError as error:
        raise ConnectError(f"cannot connect to {server}: {error}") from error


def measure(store: UcxStore, *, same_host: bool) -> Way:
    """Measure round trips and, where the server lets it, a value under a key of its own."""
    store.ping_sync()
    trips = [_seconds(store.ping_sync) for _ in range(_PINGS)]
    lanes = store.stats()["lanes"]
    way = Way(lanes=lanes, same_host=same_host, round_trip=statistics.median(trips))
    key = f"ucxstore-doctor-{uuid.uuid4().hex}"
    try:
        first = np.zeros(_LEAST, np.uint8)
        seconds = _seconds(lambda: store.set_sync(key, cpu.Buffer.from_array_like(first)))
        nbytes = int(min(max(_LEAST / seconds * _SECONDS, _LEAST), _MOST))
        source = np.zeros(nbytes, np.uint8)
        target = np.zeros(nbytes, np.uint8)
        value = cpu.Buffer.from_array_like(source)
        return Way(
            lanes=lanes,
            same_host=same_host,
            round_trip=way.round_trip,
            write=_rate(lambda: store.set_sync(key, value), nbytes),
            read=_rate(lambda: store.get_into_sync(key, target), nbytes),
            copy=_rate(lambda: np.copyto(target, source), nbytes),
            nbytes=nbytes,
        )
    except ReadOnlyServerError:
        return way
    finally:
        with suppress(UcxStoreError):
            store.delete_sync(key)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return max(time.perf_counter() - start, 1e-9)


def _rate(action: Callable[[], object], nbytes: int) -> float:
    return nbytes / statistics.median(_seconds(action) for _ in range(_REPEATS))
