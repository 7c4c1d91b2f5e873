"""A server's memory beyond the mapped file while it serves a large value from a directory."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.process import unshared_bytes
from benchmarks.result import Line, Row, below, figure
from benchmarks.scale import Scale
from benchmarks.ways import WAYS, Way

_BEYOND = below(64)  # MiB

_MIB = 1 << 20
_KEY = "value"
_PARTS = 16
_SAMPLING_SECONDS = 0.0005


def measure(scale: Scale, folder: Path) -> Row:
    part = np.random.default_rng(0).integers(0, 256, scale.served_bytes // _PARTS, np.uint8)
    with (folder / _KEY).open("wb") as file:
        for _ in range(_PARTS):
            file.write(part.data)
    lines, notes = [], []
    for way in WAYS:
        line, note = _serve(way, folder, part, scale)
        lines.append(line)
        notes.append(note)
    return Row(
        name="server-memory",
        title=f"memory of a server that serves {scale.served_bytes / 2**30:g} GiB from a directory",
        lines=lines,
        notes=notes,
    )


def _serve(way: Way, folder: Path, part: npt.NDArray[np.uint8], scale: Scale) -> tuple[Line, str]:
    out = np.zeros((_PARTS, part.size), np.uint8)
    peaks, samples = [], 0
    with way.serve(folder) as server:
        before = unshared_bytes(server.pid)  # no client yet
        with way.open(server.address) as store:
            for _ in range(scale.memory_repeats):
                out.fill(0)
                with _sampling(server.pid) as seen:
                    received = store.get_into_sync(_KEY, out)
                if received != out.nbytes or not (out == part).all():
                    raise AssertionError("the data came back wrong")
                peaks.append((max(seen) - before) / _MIB)
                samples += len(seen)
            way.check(store)
    line = figure(f"server's peak beyond the file, {way.name}", peaks, "MiB", _BEYOND)
    return (
        line,
        f"{way.name}: {samples} samples in {len(peaks)} reads, the highest {max(peaks):.1f} MiB",
    )


@contextmanager
def _sampling(pid: int) -> Iterator[list[int]]:
    """Sample the memory of a process in a thread; the read in the main thread releases the GIL."""
    seen = [unshared_bytes(pid)]
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            seen.append(unshared_bytes(pid))
            time.sleep(_SAMPLING_SECONDS)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
        seen.append(unshared_bytes(pid))
