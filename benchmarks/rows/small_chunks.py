"""``z[:]`` of a 1-D array in many small raw chunks, over shared memory."""

from pathlib import Path

from benchmarks.candidates import LOCAL_FUSED, local_reads, our_reads, ours
from benchmarks.data import put_into_folder, random_values
from benchmarks.result import Row, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import interleave

_ITEMS = 16 * 1024  # of 4 bytes: 64 KiB


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values((scale.small_chunks * _ITEMS,))
    put_into_folder(folder, values, (_ITEMS,))
    # In new memory only: the result is larger than what is kept.
    compared = [ours("memory", "fresh"), ours("directory", "fresh")]
    with our_reads(folder, values, (_ITEMS,), {}) as (reads, lanes):
        candidates = [*reads, *local_reads(folder, values)]
        wanted = [one for one in candidates if one.name in [*compared, LOCAL_FUSED]]
        times = interleave(wanted, rounds=scale.small_rounds, warm_ups=1)
    return Row(
        name="small-chunks",
        title=f"{scale.small_chunks} raw chunks of 64 KiB, 1-D, z[:], shared memory",
        lines=[times_as_fast(times, name, LOCAL_FUSED) for name in compared],
        times=times,
        notes=[
            f"lanes: {lanes}",
            *(
                f"{name}: {scale.small_chunks / part.median:,.0f} chunks/s, at best "
                f"{scale.small_chunks / part.minimum:,.0f}"
                for name, part in times.items()
            ),
        ],
    )
