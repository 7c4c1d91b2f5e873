"""``z[:]`` of an array in a grid of raw chunks, which are strided in the result."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    DEFAULTS,
    LOCAL_DEFAULT,
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    OURS,
    WARM_COPY,
    copies,
    local_reads,
    our_reads,
    ours,
)
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY

_OF_FUSED = at_least(1.5)
_OF_DEFAULT = at_least(3)
_OF_WARM_COPY = WARM_COPY, at_least(0.87)  # within 15 % of its time
_OF_COPY = COPY, at_least(1)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, Stored(GRID_CHUNK))
    with our_reads(folder, values, Stored(GRID_CHUNK)) as (reads, notes):
        times = interleave(
            [*copies(values), *reads, *local_reads(folder, values)], rounds=scale.rounds
        )
    lines = [
        times_as_fast(times, name, against, bound, counts=name in DEFAULTS)
        for against, bound in ((LOCAL_FUSED, _OF_FUSED), (LOCAL_DEFAULT, _OF_DEFAULT))
        for name in OURS
    ]
    lines += [times_as_fast(times, name, LOCAL_RECYCLED) for name in DEFAULTS]
    # What each is compared to puts its result into the same kind of memory.
    for memory, (copy, bound) in {"recycled": _OF_WARM_COPY, "fresh": _OF_COPY}.items():
        lines += [
            times_as_fast(times, ours(way, "memory", memory), copy, bound, counts=way is LOCAL)
            for way in (LOCAL, SHARED_MEMORY)
        ]
    chunks = " x ".join(str(scale.side // side) for side in GRID_CHUNK)
    return Row(
        name="grid",
        title=f"{scale.nbytes / 1e6:g} MB raw in {chunks} chunks, z[:]",
        lines=lines,
        times=times,
        notes=notes,
    )
