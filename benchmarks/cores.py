"""The distance between the machine's cores just now.

What goes over shared memory passes from one core's cache to another's. On a virtual machine the
host moves cores about: within one cache a line's round trip takes some 100 ns, across caches 500,
and every figure for shared memory follows it.
"""

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".cpp")
_LIBRARY = Path("build", "bench-cores.so")


def distance() -> str:
    """Return the round trip of a cache line between two cores, for people."""
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
