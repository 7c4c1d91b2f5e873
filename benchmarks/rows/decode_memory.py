"""Memory of a compressed read beyond the user's array, by memray, for two sizes of arrays."""

import os
from pathlib import Path

import numpy as np
from zarr.codecs import ZstdCodec

from benchmarks.children import run
from benchmarks.data import Stored, put_into_server, smooth_values
from benchmarks.result import Row, below, figure
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.ways import LOCAL, SHARED_MEMORY

_MIB = 1 << 20
_BUDGET = 16 * _MIB

# Python's objects: some hundred bytes for each of a thousand chunks.
_OBJECTS = 2 * _MIB


def measure(scale: Scale, folder: Path) -> Row:
    part = smooth_values(scale.shape)
    scratch = len(os.sched_getaffinity(0)) * 4 * GRID_CHUNK[0] * GRID_CHUNK[1]
    target = below((_BUDGET + scratch + _OBJECTS) / _MIB)
    lines = []
    for way in (LOCAL, SHARED_MEMORY):
        with way.serve("memory://") as server:
            for repeats in (1, 10):
                values = np.tile(part, (repeats, 1))
                location = f"{server.address}/{repeats}"
                put_into_server(location, values, Stored(GRID_CHUNK, ZstdCodec()), **way.of_client)
                task = {"address": location, "client": way.of_client, "budget": _BUDGET}
                found = [run("decode_memory", **task) / _MIB for _ in range(scale.memory_repeats)]
                name = f"zstd, {values.nbytes / 1e6:,.0f} MB, {way.name}"
                lines.append(figure(name, found, "MiB", target))
    return Row(
        name="decode-memory",
        title="memory of a compressed read beyond the array, buffer_budget of 16 MiB",
        lines=lines,
        notes=["target: the budget, a chunk a thread, and 2 MiB for Python's own objects"],
    )
