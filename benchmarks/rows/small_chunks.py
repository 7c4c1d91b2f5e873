"""``z[:]`` of arrays in many small raw chunks, in one and two dimensions."""

from itertools import product
from math import isqrt
from pathlib import Path

from benchmarks.candidates import (
    LOCAL_DEFAULT,
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    ZARRS,
    Ours,
    local_reads,
    our_reads,
    ours,
    zarrs_read,
)
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import Times, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY, TCP, UCX_OVER_TCP

_SIDE = 128
_ITEMS = _SIDE * _SIDE  # of 4 bytes: 64 KiB

_OF_LOCAL = at_least(4)
_OF_ZARRS = at_least(1)

# One timed call, after one that is not timed. A virtual machine returns memory that was free for
# seconds to its host. To get it back for a new array of 655 MB takes longer than all the rest.
_TURN_SECONDS = 1e-3

# Only into new memory: the result is larger than the memory that is kept.
_READS: list[Ours] = [
    *product((LOCAL, SHARED_MEMORY), ("memory", "directory"), ("fresh",)),
    *((way, "memory", "fresh") for way in (TCP, UCX_OVER_TCP)),
]


def measure(scale: Scale, folder: Path) -> Row:
    compared = [ours(*one) for one in _READS]
    targets = [ours(way, "memory", "fresh") for way in (LOCAL, SHARED_MEMORY)]
    lines: list[Line] = []
    times: dict[str, Times] = {}
    notes: list[str] = []
    side = isqrt(scale.small_chunks)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "1-D": ((side * side * _ITEMS,), (_ITEMS,)),
        "2-D": ((side * _SIDE, side * _SIDE), (_SIDE, _SIDE)),
    }
    for what, (shape, chunks) in shapes.items():
        values = random_values(shape)
        part = folder / what
        put_into_folder(part, values, Stored(chunks))
        with our_reads(part, values, Stored(chunks), _READS) as (reads, lanes):
            candidates = [*reads, *local_reads(part, values), zarrs_read(part, values)]
            wanted = [one for one in candidates if one.name not in (LOCAL_RECYCLED, LOCAL_DEFAULT)]
            found = interleave(wanted, scale.small_rounds, warm_ups=1, turn_seconds=_TURN_SECONDS)
        named = {f"{what}: {name}": one for name, one in found.items()}
        lines += [
            times_as_fast(
                named, f"{what}: {name}", f"{what}: {against}", bound, counts=name in targets
            )
            for against, bound in ((LOCAL_FUSED, _OF_LOCAL), (ZARRS, _OF_ZARRS))
            for name in compared
        ]
        notes += lanes if not notes else []
        notes += [
            f"{name}: {side * side / part.median:,.0f} chunks/s, at best "
            f"{side * side / part.minimum:,.0f}"
            for name, part in named.items()
        ]
        times |= named
    return Row(
        name="small-chunks",
        title=f"{side * side} raw chunks of 64 KiB, z[:]",
        lines=lines,
        times=times,
        notes=notes,
    )
