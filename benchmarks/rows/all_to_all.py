"""A rechunk in the memory of many Dask workers: connections, descriptors, memory and time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.children import run
from benchmarks.result import Line, Row, below, figure
from benchmarks.scale import Scale

_WAYS = {
    "tcp": "TCP without UCX",
    "ucx": "UCX over TCP",
    "local": "local",
}
_UNITS = {"connections": "connections", "descriptors": "descriptors", "memory": "GB"}
_NAMES = {
    "connections": "connections between workers",
    "descriptors": "descriptors of a worker",
    "memory": "memory of all workers",
}
_GB = 1e9


def measure(scale: Scale, folder: Path) -> Row:
    found = {
        name: run(
            "all_to_all",
            way=way,
            workers=scale.spread_workers,
            side=scale.spread_side,
            slabs=scale.spread_slabs,
            idle_seconds=scale.spread_idle_seconds,
        )
        for way, name in _WAYS.items()
    }
    piece = 4 * (scale.spread_side // scale.spread_slabs) ** 2
    return Row(
        name="all-to-all",
        title=f"Dask rechunk of {4 * scale.spread_side**2 / _GB:.2g} GB in the memory of "
        f"{scale.spread_workers} workers, by {scale.spread_slabs**2:,} pieces of "
        f"{piece / 1e3:.0f} kB",
        lines=[line for name, one in found.items() for line in _lines(name, one, scale)],
        notes=[
            f"idle: {scale.spread_idle_seconds:g} s after the end",
            *(f"{name}: sessions of the servers: {one['sessions']}" for name, one in found.items()),
        ],
    )


def _lines(name: str, found: Any, scale: Scale) -> Iterator[Line]:
    for stage, seconds in zip(("written", "read"), found["seconds"], strict=True):
        yield figure(f"{name}: {stage}", [seconds], "s")
    # Of a worker's connections to itself and to a few others; each to each are the square of it.
    few = below(2 * scale.spread_workers)
    for what, unit in _UNITS.items():
        for moment, figures in found["moments"].items():
            value = figures[what] / (_GB if unit == "GB" else 1)
            rests = what == "connections" and moment == "idle" and scale.spread_rests
            yield figure(f"{name}: {_NAMES[what]}, {moment}", [value], unit, few if rests else None)
