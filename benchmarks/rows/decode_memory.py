"""Memory of a compressed read beyond the user's array, by memray, for two sizes of arrays."""

import os
from pathlib import Path

import numpy as np
from zarr.codecs import ZstdCodec

from benchmarks.children import run
from benchmarks.data import Stored, put_into_server, smooth_values
from benchmarks.result import Row, below, figure
from benchmarks.scale import GRID_CHUNK, Scale
from ucxstore import Server

_MIB = 1 << 20
_BUDGET = 16 * _MIB

# Python's objects: some hundred bytes for each of a thousand chunks.
_OBJECTS = 2 * _MIB


def measure(scale: Scale, folder: Path) -> Row:
    part = smooth_values(scale.shape)
    scratch = len(os.sched_getaffinity(0)) * 4 * GRID_CHUNK[0] * GRID_CHUNK[1]
    target = below((_BUDGET + scratch + _OBJECTS) / _MIB)
    lines = []
    with Server.spawn("memory://") as server:
        for repeats in (1, 10):
            values = np.tile(part, (repeats, 1))
            location = f"{server.address}/{repeats}"
            put_into_server(location, values, Stored(GRID_CHUNK, ZstdCodec()))
            found = [
                run("decode_memory", address=location, budget=_BUDGET) / _MIB
                for _ in range(scale.memory_repeats)
            ]
            lines.append(figure(f"zstd, {values.nbytes / 1e6:,.0f} MB", found, "MiB", target))
    return Row(
        name="decode-memory",
        title="memory of a compressed read beyond the array, buffer_budget of 16 MiB",
        lines=lines,
        notes=["target: the budget, a chunk a thread, and 2 MiB for Python's own objects"],
    )
