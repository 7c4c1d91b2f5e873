"""Move values to a server and back for ``ucxstore doctor``, and measure that, in some seconds."""

import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

import numpy as np

from ucxstore.base.errors import (
    GrantError,
    IntegrityError,
    ReadOnlyServerError,
    StorageError,
    UcxStoreError,
    UnknownOutcomeError,
)
from ucxstore.base.showing import size_text
from ucxstore.base.zarr_compat import cpu
from ucxstore.stores.store import UcxStore, connectors_of

_PINGS = 200
_REPEATS = 5

# Bytes of the value that is compared: several pages, and more than fits into one packet.
_SMALL = 64 << 10

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


class NotMovedError(Exception):
    """No value may be moved: the server or the grant does not allow it, or there is no room."""


def rely_on_what_is_there(store: UcxStore) -> None:
    """Let a store take its server as it is.

    It may be one of a set, and hold but a part of the values: that does not matter here.
    """
    last = {server: one.last for server, one in connectors_of(store).items()}
    store.rely_on({server: one.welcome.identity for server, one in last.items() if one})


def move_one_value(store: UcxStore, *, write: bool) -> int:
    """Write a value of random bytes, read and delete it again; return how many bytes it has.

    Parameters
    ----------
    store : UcxStore
    write : bool
        As of `measure`.

    Raises
    ------
    NotMovedError
        If none may be written.
    IntegrityError
        If it comes back changed, or not at all.
    """
    value = os.urandom(_SMALL)
    with _place_for_values(store, _SMALL * _SHARE, write=write) as place, _new_key(place) as key:
        place.set_sync(key, cpu.Buffer.from_bytes(value))
        found = place.get_sync(key)
    if found is None or found.to_bytes() != value:
        raise IntegrityError(f"{store}: a value of {_SMALL} bytes did not come back as it was")
    return _SMALL


def measure(store: UcxStore, *, lanes: list[str], same_host: bool, write: bool) -> Way:
    """Measure round trips, and how fast a value is moved.

    Parameters
    ----------
    store : UcxStore
    lanes : list of str
        The lanes of its connection.
    same_host : bool
        Whether the server's address is one of this machine.
    write : bool
        Whether the value may be written to what is served, under a new key. Else it is written to a
        scratch space, if the server offers one.
    """
    store.ping_sync()
    trips = [_seconds(store.ping_sync) for _ in range(_PINGS)]
    way = Way(lanes=lanes, same_host=same_host, round_trip=statistics.median(trips))
    most = max(_LEAST, min(_MOST, _room(store) // _SHARE))
    try:
        with (
            _place_for_values(store, most * _SHARE, write=write) as place,
            _new_key(place) as key,
        ):
            return _move(place, way, key, most)
    except NotMovedError as error:
        return replace(way, why_not=str(error))


def speed_text(way: Way) -> str:
    """Say how fast a way is."""
    words = f"a round trip takes {way.round_trip * 1e6:.0f} us; "
    if way.write is None or way.read is None or way.copy is None:
        return f"{words}bandwidth not measured: {way.why_not}"
    return (
        f"{words}{size_text(way.write)}/s to the server, {size_text(way.read)}/s from it, in "
        f"values of {size_text(way.nbytes)}; np.copyto makes {size_text(way.copy)}/s"
    )


@contextmanager
def _place_for_values(store: UcxStore, nbytes: int, *, write: bool) -> Iterator[UcxStore]:
    """Yield a store that so many bytes may be written to."""
    try:
        scratch = None if write else store.scratch_sync(nbytes)
    except (StorageError, GrantError) as error:
        raise NotMovedError(f"{error}; --write does without scratch space") from error
    with scratch or nullcontext():
        try:
            yield store if scratch is None else scratch.store()
        except (IntegrityError, UnknownOutcomeError):
            raise
        except ReadOnlyServerError:
            raise NotMovedError("the server takes no writes") from None
        except (StorageError, GrantError) as error:
            raise NotMovedError(str(error)) from error


@contextmanager
def _new_key(store: UcxStore) -> Iterator[str]:
    """Yield a key that nobody has, and delete it at the end."""
    key = f"ucxstore-doctor-{uuid.uuid4().hex}"
    try:
        yield key
    finally:
        with suppress(UcxStoreError):
            store.delete_sync(key)


def _room(store: UcxStore) -> int:
    """Return the bytes of memory that the server has left for values, if it has said so."""
    with suppress(UcxStoreError):
        stats = store.server_stats_sync()
        if limit := int(stats["memory_limit"]):
            return limit - int(stats["memory_used"])
    return _SHARE * _MOST


def _move(store: UcxStore, way: Way, key: str, most: int) -> Way:
    """Measure a value under a new key. If the server has no room for it, a smaller one is moved."""
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
