"""Parts of an array in a grid of raw chunks: a row, a column, points."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.candidates import DEFAULTS, LOCAL_FUSED, OURS, Read, local_reads, our_reads
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Times, interleave

_OF_LOCAL = at_least(4)
_TURN_SECONDS = 0.02


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, Stored(GRID_CHUNK))
    at = np.random.default_rng(7).integers(0, scale.side, (2, scale.points))

    def points(array: Any) -> Any:
        return array[at[0], at[1]]

    reads: dict[str, Read] = {
        "one row": lambda array: array[scale.side // 3],
        "one column": lambda array: array[:, scale.side // 3],
        f"{scale.points:,} points": points,
    }
    lines: list[Line] = []
    times: dict[str, Times] = {}
    for what, read in reads.items():
        with our_reads(folder, values, Stored(GRID_CHUNK), read=read) as (ours_all, notes):
            candidates = [*ours_all, *local_reads(folder, values, read)]
            found = interleave(candidates, scale.rounds, turn_seconds=_TURN_SECONDS)
        named = {f"{what}: {name}": one for name, one in found.items()}
        lines += [
            times_as_fast(
                named,
                f"{what}: {name}",
                f"{what}: {LOCAL_FUSED}",
                _OF_LOCAL,
                counts=name in DEFAULTS,
            )
            for name in OURS
        ]
        times |= named
    return Row(
        name="selections",
        title=f"parts of {scale.nbytes / 1e6:g} MB in raw chunks of 1 MB",
        lines=lines,
        times=times,
        notes=notes,
    )
