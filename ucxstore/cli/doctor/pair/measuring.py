"""The steps of a trial, in the process that `child` is: connect, compare values, measure, kill."""

import asyncio
import os
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import zarr

from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import IntegrityError, UcxStoreError
from ucxstore.base.showing import one_line
from ucxstore.base.zarr_compat import cpu
from ucxstore.cli.common.status import CommandError
from ucxstore.cli.doctor.pair.mailbox import Asking
from ucxstore.cli.doctor.pair.trials import MIDDLE, Sizes, Trial, TrialStep, sizes_for
from ucxstore.stores.store import UcxStore

# A measurement is repeated as often as fits into its time, within these bounds; after several
# times its time, it is not repeated any more.
_LEAST_REPEATS = 3
_MOST_REPEATS = 30
_LONGEST = 4

# The share of the time-out that the other host's server may take to start.
_START_SHARE = 0.7

_PINGS = 100
_SMALL = 4096
_MOST_SMALL = 2000
_LEAST_SMALL = 20

# Bytes that the speed is first tried with, until one takes this long.
_PROBES = (64 << 10, 1 << 20, 8 << 20)
_PROBE_SECONDS = 0.05

# Bytes of values that are compared: around UCX's limit of eager messages, of a page, of several
# segments.
_COMPARED = (1, 4095, 4096, 4097, MIDDLE, (1 << 20) + 1, (33 << 20) + 1)

# Bytes of a row: longer and shorter than what scatter lists are used for over TCP.
_ROWS = (4096, 256)


@dataclass
class Bench:
    """A connection that is measured.

    Parameters
    ----------
    host : str
        The other host, as the user has named it.
    trial : Trial
    asking : Asking
        Messages to the other host.
    options : mapping
        Of stores, such as the secret.
    timeout : float
        Of the stores, in seconds.
    seconds : float
        What a measurement takes, about.
    """

    host: str
    trial: Trial
    asking: Asking
    options: Mapping[str, Any]
    timeout: float
    seconds: float
    store: UcxStore | None = None
    sizes: Sizes | None = None

    def connect(self) -> UcxStore:
        """Let the other host start a server for this trial, and make a store of it."""
        trial = self.trial
        answer = self.asking.ask(
            "serve",
            network=trial.network,
            tls=trial.tls,
            progress=trial.progress,
            seconds=self.timeout * _START_SHARE,
        )
        port = answer.integer("port")
        address = Address((HostPort(self.host, port),))
        ucx = {"TLS": trial.tls} if trial.tls else {}
        self.store = UcxStore(
            address, network=trial.network, ucx=ucx, progress=trial.progress, **self.options
        )
        self.store.ping_sync()
        return self.store

    @property
    def connected(self) -> UcxStore:
        """The store, which is connected."""
        return self.connect() if self.store is None else self.store

    @property
    def scaled(self) -> Sizes:
        """The sizes that fit the speed of the connection."""
        if self.sizes is None:
            self.sizes = sizes_for(_probe(self.connected), self.seconds / 2)
        return self.sizes

    def repeat(
        self,
        action: Callable[[], object],
        *,
        least: int = _LEAST_REPEATS,
        most: int = _MOST_REPEATS,
    ) -> list[float]:
        """Repeat an action for the time of a measurement; return the seconds of each run."""
        times: list[float] = []
        taken = 0.0
        while len(times) < most and taken < self.seconds * (1 if len(times) >= least else _LONGEST):
            times.append(_seconds(action))
            taken += times[-1]
        return times

    def seconds_there(self) -> float:
        """Return the seconds of processors that the other host's server has used."""
        return float(self.asking.ask("processors").number("seconds"))


def take_steps(bench: Bench, steps: Sequence[str]) -> Iterator[TrialStep]:
    """Take steps one after another, up to the first that fails, and yield their outcomes."""
    for name in steps:
        try:
            figures = _STEPS[name](bench)
        except (UcxStoreError, CommandError, OSError, MemoryError, ValueError) as error:
            what = f"{type(error).__name__}: {one_line(error)}"
            yield TrialStep(step=name, state="failed", what=what)
            return
        yield TrialStep(step=name, state="ok", figures=figures)


# ---- the steps ----


def _connect(bench: Bench) -> dict[str, Any]:
    begin = time.perf_counter()
    store = bench.connect()
    seconds = time.perf_counter() - begin
    trips = [_seconds(store.ping_sync) for _ in range(_PINGS)]
    stats = store.stats()
    return {
        "seconds": seconds,
        "round_trip_us": statistics.median(trips) * 1e6,
        "lanes": list(stats["lanes"]),
        "integrity": bool(stats["integrity"]),
    }


def _compare_values(bench: Bench) -> dict[str, Any]:
    """Compare values that either host has made, by CRC-32 of zlib, which ucxstore does not use."""
    store = bench.connected
    sizes = [size for size in _COMPARED if size <= max(bench.scaled.large, MIDDLE)]
    theirs = bench.asking.ask("make", sizes=sizes).integers("sums")
    for key, expected in theirs.items():
        _check(key, expected, store.get_sync(key))
    ours: dict[str, int] = {}
    for size in sizes:
        value = os.urandom(size)
        key = f"ours/{size}"
        store.set_sync(key, cpu.Buffer.from_bytes(value))
        ours[key] = zlib.crc32(value)
    found = bench.asking.ask("sum", keys=list(ours)).integers("sums")
    for key, expected in ours.items():
        if found.get(key) != expected:
            raise IntegrityError(f"{key}: the other host has other bytes than were written")
    return {"count": 2 * len(sizes), "largest": max(sizes)}


def _set(bench: Bench) -> dict[str, Any]:
    store, nbytes = bench.connected, bench.scaled.large
    value = cpu.Buffer.from_bytes(_random(nbytes))
    return _measured(bench, nbytes, lambda: store.set_sync("large", value))


def _get(bench: Bench) -> dict[str, Any]:
    store, nbytes = bench.connected, bench.scaled.large
    value = _random(nbytes)
    store.set_sync("large", cpu.Buffer.from_bytes(value))
    target = np.zeros(nbytes, np.uint8)
    figures = _measured(bench, nbytes, lambda: store.get_into_sync("large", target))
    _check("large", zlib.crc32(value), target)
    return figures


def _move_many(bench: Bench) -> dict[str, Any]:
    store, count = bench.connected, bench.scaled.count
    nbytes = count * MIDDLE
    whole = np.frombuffer(_random(nbytes), np.uint8).reshape(count, MIDDLE)
    values = [(f"many/{i}", cpu.Buffer.from_array_like(whole[i])) for i in range(count)]
    target = np.zeros_like(whole)
    into = [(key, target[i], None) for i, (key, _) in enumerate(values)]
    with asyncio.Runner() as runner:
        written = bench.repeat(lambda: runner.run(store.set_many(values)))
    read = bench.repeat(lambda: store.get_many_into_sync(into))
    _check("many", zlib.crc32(whole), target)
    return {
        "count": count,
        "set_gbs": nbytes / statistics.median(written) / 1e9,
        "get_gbs": nbytes / statistics.median(read) / 1e9,
    }


def _get_small(bench: Bench) -> dict[str, Any]:
    store = bench.connected
    value = os.urandom(_SMALL)
    store.set_sync("small", cpu.Buffer.from_bytes(value))
    target = np.zeros(_SMALL, np.uint8)
    times = bench.repeat(
        lambda: store.get_into_sync("small", target), least=_LEAST_SMALL, most=_MOST_SMALL
    )
    _check("small", zlib.crc32(value), target)
    return {
        "count": len(times),
        "p50_us": statistics.median(times) * 1e6,
        "p99_us": float(np.quantile(times, 0.99)) * 1e6,
        "worst_us": max(times) * 1e6,
    }


def _read_into_rows(bench: Bench) -> dict[str, Any]:
    """Read into rows with gaps between them, which must stay; then the same by zarr, both ways."""
    store, nbytes = bench.connected, bench.scaled.strided
    value = _random(nbytes)
    store.set_sync("rows", cpu.Buffer.from_bytes(value))
    figures: dict[str, Any] = {"nbytes": nbytes}
    for width in _ROWS:
        whole = np.zeros((nbytes // width, 2 * width), np.uint8)
        times = bench.repeat(partial(store.get_into_sync, "rows", whole[:, :width]))
        _check(f"rows of {width} bytes", zlib.crc32(value), whole[:, :width])
        if whole[:, width:].any():
            raise IntegrityError(f"bytes between rows of {width} bytes were written to")
        figures[f"gbs_{width}"] = nbytes / statistics.median(times) / 1e9
    data = np.frombuffer(value, np.uint8).reshape(-1, 4096)
    array = zarr.create_array(
        store.at("array"),
        shape=data.shape,
        chunks=(data.shape[0], 2048),
        dtype=data.dtype,
        compressors=None,
        filters=None,
        overwrite=True,
    )
    array[:] = data
    _check("an array in two chunks of columns", zlib.crc32(value), np.asarray(array[:]))
    return figures


def _kill_in_get(bench: Bench) -> dict[str, Any]:
    store, nbytes = bench.connected, bench.scaled.large
    store.set_sync("large", cpu.Buffer.from_bytes(_random(nbytes)))
    target = np.zeros(nbytes, np.uint8)
    return _kill_in(bench, lambda: store.get_into_sync("large", target))


def _kill_in_set(bench: Bench) -> dict[str, Any]:
    store = bench.connected
    value = cpu.Buffer.from_bytes(_random(bench.scaled.large))
    return _kill_in(bench, lambda: store.set_sync("large", value))


_STEPS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "connect": _connect,
    "values": _compare_values,
    "set": _set,
    "get": _get,
    "many": _move_many,
    "small": _get_small,
    "strided": _read_into_rows,
    "kill in get": _kill_in_get,
    "kill in set": _kill_in_set,
}


# ---- tools ----


def _kill_in(bench: Bench, action: Callable[[], object]) -> dict[str, Any]:
    """Let the other host kill the server in the middle of an action that a thread repeats.

    The action must raise one of our errors in time, and this process must be able to go on with a
    new server.
    """
    _ = bench.scaled
    went_well = threading.Event()
    raised: list[tuple[float, Exception]] = []

    def repeat() -> None:
        try:
            while True:
                action()
                went_well.set()
        except Exception as error:
            raised.append((time.monotonic(), error))

    thread = threading.Thread(target=repeat, name="ucxstore-kill", daemon=True)
    thread.start()
    while not went_well.wait(0.1) and thread.is_alive():
        pass  # the action itself ends in time, one way or the other
    if not went_well.is_set():
        raise raised[0][1]
    begin = time.monotonic()
    bench.asking.ask("kill")
    thread.join(bench.timeout)
    if not raised:
        raise CommandError(f"no exception within {bench.timeout:g} s after the server's end")
    when, error = raised[0]
    if not isinstance(error, UcxStoreError):
        raise CommandError(f"not an error of ucxstore: {type(error).__name__}: {error}")
    value = os.urandom(MIDDLE)
    store = bench.connect()
    store.set_sync("after", cpu.Buffer.from_bytes(value))
    _check("after", zlib.crc32(value), store.get_sync("after"))
    return {"seconds": max(when - begin, 0.0), "error": type(error).__name__}


def _measured(bench: Bench, nbytes: int, action: Callable[[], object]) -> dict[str, Any]:
    """Repeat an action that moves a value; return its speeds, and the seconds of processors."""
    action()  # it touches memory that is new, at both ends
    there = bench.seconds_there()
    here = time.process_time()
    times = bench.repeat(action)
    here = time.process_time() - here
    there = bench.seconds_there() - there
    moved = len(times) * nbytes / 1e9
    return {
        "nbytes": nbytes,
        "repeats": len(times),
        "median_gbs": nbytes / statistics.median(times) / 1e9,
        "least_gbs": nbytes / max(times) / 1e9,
        "processor_s_per_gb_here": here / moved,
        "processor_s_per_gb_there": there / moved,
    }


def _probe(store: UcxStore) -> float:
    """Return about how many bytes a second a connection moves."""
    rate = 0.0
    for nbytes in _PROBES:
        value = cpu.Buffer.from_array_like(np.zeros(nbytes, np.uint8))
        seconds = min(_seconds(partial(store.set_sync, "probe", value)) for _ in range(2))
        rate = nbytes / seconds
        if seconds > _PROBE_SECONDS:
            break
    store.delete_sync("probe")
    return rate


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return max(time.perf_counter() - begin, 1e-9)


def _random(nbytes: int) -> bytes:
    return np.random.default_rng().bytes(nbytes)


def _check(what: str, expected: int, found: Any) -> None:
    """Compare a checksum with the one that the bytes have now.

    Raises
    ------
    IntegrityError
        If they differ, or there are no bytes.
    """
    if found is None:
        raise IntegrityError(f"{what}: it is missing")
    data = np.ascontiguousarray(found.as_numpy_array() if isinstance(found, cpu.Buffer) else found)
    if zlib.crc32(data) != expected:
        raise IntegrityError(f"{what}: other bytes have come than were sent")
