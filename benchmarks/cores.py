"""Measure the distance between two cores: the round trip of a cache line.

Shared memory moves data from one core's cache to another's. The host of a virtual machine moves its
cores. Within one cache the round trip takes some 100 ns, between caches 500 ns. All figures for
shared memory depend on it.
"""

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".cpp")
_LIBRARY = Path("build", "bench-cores.so")


def distance() -> str:
    """Return the round trip of a cache line between two cores, as readable text."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        return "one core"
    return f"cores {_library().round_trip_ns(*processors[:2]):.0f} ns apart"


@cache
def _library() -> ctypes.CDLL:
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-pthread"]
    _LIBRARY.parent.mkdir(exist_ok=True)
    subprocess.run([*command, str(_SOURCE), "-o", str(_LIBRARY)], check=True)
    library = ctypes.CDLL(str(_LIBRARY.resolve()))
    library.round_trip_ns.restype = ctypes.c_double
    return library
