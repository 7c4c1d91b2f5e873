"""``z[:]`` of an array in a grid of raw chunks, which are strided in the result."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    LOCAL_DEFAULT,
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    OURS,
    copies,
    local_reads,
    our_reads,
    ours,
)
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import interleave

_OF_FUSED = at_least(1.5)
_OF_DEFAULT = at_least(3)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, Stored(GRID_CHUNK))
    with our_reads(folder, values, Stored(GRID_CHUNK), {}) as (reads, lanes):
        times = interleave(
            [*copies(values), *reads, *local_reads(folder, values)], rounds=scale.rounds
        )
    target = ours("memory", "recycled")
    lines = [
        times_as_fast(times, name, against, bound, counts=name == target)
        for against, bound in ((LOCAL_FUSED, _OF_FUSED), (LOCAL_DEFAULT, _OF_DEFAULT))
        for name in OURS
    ]
    lines += [times_as_fast(times, target, against) for against in (LOCAL_RECYCLED, COPY)]
    chunks = " x ".join(str(scale.side // side) for side in GRID_CHUNK)
    return Row(
        name="grid",
        title=f"{scale.nbytes / 1e6:g} MB raw in {chunks} chunks, z[:], shared memory",
        lines=lines,
        times=times,
        notes=[f"lanes: {lanes}"],
    )
