"""A raw sharded array: all of it, and scattered inner chunks; over shared memory."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.candidates import LOCAL_FUSED, OURS, Read, local_reads, our_reads, ours, whole
from benchmarks.data import put_into_folder, random_values
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Times, interleave

# Inner chunks of 40 kB, of which a shard of 1 MB, as the grid's chunks, has 25.
_INNER = (100, 100)
_SCATTERED = 100


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, _INNER, shards=GRID_CHUNK)
    inner = scale.side // _INNER[0]
    picked = np.random.default_rng(7).choice(inner * inner, _SCATTERED, replace=False)

    def scattered(array: Any) -> Any:
        return [
            array[
                row * _INNER[0] : (row + 1) * _INNER[0],
                column * _INNER[1] : (column + 1) * _INNER[1],
            ]
            for row, column in (divmod(int(one), inner) for one in picked)
        ]

    reads: dict[str, tuple[Read, float]] = {
        "whole": (whole, 1),
        f"{_SCATTERED} inner chunks": (scattered, 2),
    }
    lines: list[Line] = []
    times: dict[str, Times] = {}
    target = ours("memory", "recycled")
    for what, (read, bound) in reads.items():
        with our_reads(folder, values, _INNER, {}, shards=GRID_CHUNK, read=read) as (all_ours, _):
            found = interleave([*all_ours, *local_reads(folder, values, read)], rounds=scale.rounds)
        named = {f"{what}: {name}": one for name, one in found.items()}
        lines += [
            times_as_fast(
                named,
                f"{what}: {name}",
                f"{what}: {LOCAL_FUSED}",
                at_least(bound),
                counts=name == target,
            )
            for name in OURS
        ]
        times |= named
    return Row(
        name="shards",
        title=f"{scale.nbytes / 1e6:g} MB raw in shards of 1 MB, inner chunks of 40 kB",
        lines=lines,
        times=times,
    )
