"""Describe the machine, and wait until it is idle."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from ucxstore.base import ucx_library as _ucx

# A part of all cores. Our own idle servers and clients use a thousandth.
_IDLE_BELOW = 0.05
_WINDOW_SECONDS = 1.0


def wait_until_idle(patience: float) -> str:
    """Wait for up to `patience` seconds until the machine is idle; return its load as text."""
    deadline = time.monotonic() + patience
    busy = _busy_fraction()
    if busy >= _IDLE_BELOW and patience > 0:
        print(f"waiting for an idle machine ({_describe(busy)})", file=sys.stderr)
    while busy >= _IDLE_BELOW and time.monotonic() < deadline:
        busy = _busy_fraction()
    if busy < _IDLE_BELOW:
        return _describe(busy)
    return f"NOT IDLE after {patience:g} s: {_describe(busy)}"


def describe() -> dict[str, str]:
    ucx = _ucx.load()
    return {
        "processor": f"{_processor()}, {os.cpu_count()} CPUs, {_memory() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "huge pages": _huge_pages(),
        "Python": platform.python_version(),
        **{name: version(name) for name in ("ucxstore", "zarr", "numpy", "memray")},
        "UCX": f"{ucx.version} ({ucx.origin})",
        **{name: value for name, value in sorted(os.environ.items()) if name.startswith("UCX")},
    }


def _busy_fraction() -> float:
    before = _ticks()
    time.sleep(_WINDOW_SECONDS)
    total, idle = (b - a for a, b in zip(before, _ticks(), strict=True))
    return 1 - idle / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Return all ticks of all cores, and the idle ones, which include waiting for disks."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return sum(ticks), ticks[3] + ticks[4]


def _describe(busy: float) -> str:
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{busy:.0%} busy, load {load}"


def _processor() -> str:
    for name, value in _pairs("/proc/cpuinfo"):
        if name == "model name":
            return value
    return platform.processor() or "unknown processor"


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _huge_pages() -> str:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = path.read_text().partition("[")[2].partition("]")[0] if path.exists() else ""
    return chosen or "unknown"


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()
