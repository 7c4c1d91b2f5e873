"""A raw sharded array: all of it, and scattered inner chunks."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.candidates import DEFAULTS, LOCAL_FUSED, OURS, Read, local_reads, our_reads, whole
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.floor import FLOOR, MEMORY_STORE, floors
from benchmarks.result import Line, Row, Target, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Times, interleave

# Inner chunks of 40 kB. A shard of 1 MB has 25; it is as large as the grid's chunks.
_INNER = (100, 100)
_SIDE = 10  # 10 x 10 scattered inner chunks

_EACH = "100 inner chunks, a call each"
_OF_FLOOR = at_least(0.9)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    stored = Stored(_INNER, shards=GRID_CHUNK)
    put_into_folder(folder, values, stored)
    rng = np.random.default_rng(7)
    # Rows and columns of inner chunks.
    picked = [
        np.sort(rng.choice(scale.side // length, _SIDE, replace=False)) * length
        for length in _INNER
    ]
    rows, columns = (
        np.add.outer(starts, np.arange(length)).reshape(-1)
        for starts, length in zip(picked, _INNER, strict=True)
    )

    def together(array: Any) -> Any:
        return array.oindex[rows, columns] if hasattr(array, "oindex") else array[rows][:, columns]

    def one_by_one(array: Any) -> Any:
        return [
            array[row : row + _INNER[0], column : column + _INNER[1]]
            for row in picked[0].tolist()
            for column in picked[1].tolist()
        ]

    reads: dict[str, tuple[Read, Target | None]] = {
        "whole": (whole, at_least(1)),
        "100 inner chunks": (together, at_least(2)),
        _EACH: (one_by_one, None),
    }
    lines: list[Line] = []
    times: dict[str, Times] = {}
    for what, (read, bound) in reads.items():
        with our_reads(folder, values, stored, read=read) as (all_ours, notes):
            candidates = [*all_ours, *local_reads(folder, values, read)]
            if what == _EACH:
                candidates += [*floors(values, stored, read)]
            found = interleave(candidates, rounds=scale.rounds)
        named = {f"{what}: {name}": one for name, one in found.items()}
        lines += [
            times_as_fast(
                named,
                f"{what}: {name}",
                f"{what}: {LOCAL_FUSED}",
                bound,
                counts=name in DEFAULTS,
            )
            for name in OURS
        ]
        times |= named
    # Most of the time is zarr's own, for any store.
    lines += [
        times_as_fast(
            times, f"{_EACH}: {name}", f"{_EACH}: {against}", bound, counts=name == DEFAULTS[0]
        )
        for against, bound in ((FLOOR, _OF_FLOOR), (MEMORY_STORE, None))
        for name in DEFAULTS
    ]
    return Row(
        name="shards",
        title=f"{scale.nbytes / 1e6:g} MB raw in shards of 1 MB, inner chunks of 40 kB",
        lines=lines,
        times=times,
        notes=notes,
    )
