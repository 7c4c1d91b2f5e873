"""``z[:] = x`` into an array that is one raw chunk, by all ways."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    LOCAL_FUSED,
    copies,
    directory_writes,
    our_write,
    our_writes,
)
from benchmarks.data import Stored, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY, WAYS

_OF_COPY = at_least(0.6)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    stored = Stored(scale.shape)
    with our_writes(values, stored, WAYS) as (writes, notes):
        times = interleave([*copies(values), *writes], rounds=scale.rounds)
    times |= directory_writes(folder, values, stored, scale.directory_writes)
    return Row(
        name="write",
        title=f"{scale.nbytes / 1e6:g} MB raw, one chunk, z[:] = x",
        lines=[
            *(
                times_as_fast(
                    times,
                    our_write(way, "memory"),
                    COPY,
                    _OF_COPY,
                    counts=way in (LOCAL, SHARED_MEMORY),
                )
                for way in WAYS
            ),
            *(
                times_as_fast(times, our_write(way, "directory"), LOCAL_FUSED)
                for way in (LOCAL, SHARED_MEMORY)
            ),
        ],
        times=times,
        notes=notes,
    )
