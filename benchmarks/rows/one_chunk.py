"""``z[:]`` of an array that is one raw chunk, by all ways."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    DEFAULTS,
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    OURS,
    copies,
    local_reads,
    our_reads,
)
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import interleave

_OF_COPY = at_least(0.8)
_OF_LOCAL = at_least(5)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, Stored(scale.shape))
    with our_reads(folder, values, Stored(scale.shape)) as (reads, notes):
        times = interleave(
            [*copies(values), *reads, *local_reads(folder, values)], rounds=scale.rounds
        )
    lines = [
        *(times_as_fast(times, name, COPY, _OF_COPY, counts=name in DEFAULTS) for name in OURS),
        *(
            times_as_fast(times, name, LOCAL_FUSED, _OF_LOCAL, counts=name in DEFAULTS)
            for name in OURS
        ),
        *(times_as_fast(times, name, LOCAL_RECYCLED) for name in DEFAULTS),
    ]
    title = f"{scale.nbytes / 1e6:g} MB raw, one chunk, z[:]"
    return Row(name="one-chunk", title=title, lines=lines, times=times, notes=notes)
