"""``z[:]`` of compressed arrays, in one chunk and in a grid, over shared memory."""

from pathlib import Path
from typing import Any

from zarr.codecs import BloscCodec, ZstdCodec

from benchmarks.candidates import (
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    OURS,
    local_reads,
    our_reads,
    ours,
)
from benchmarks.data import put_into_folder, smooth_values
from benchmarks.result import Line, Row, Target, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Times, interleave

_CODECS: dict[str, Any] = {"zstd": ZstdCodec(), "blosc": BloscCodec()}

_OF_LOCAL: dict[tuple[str, bool], Target] = {
    ("zstd", False): at_least(1.7),
    ("blosc", False): at_least(2.5),
    ("zstd", True): at_least(1),
    ("blosc", True): at_least(1),
}


def measure(scale: Scale, folder: Path) -> Row:
    values = smooth_values(scale.shape)
    lines: list[Line] = []
    times: dict[str, Times] = {}
    notes: list[str] = []
    for codec, compressor in _CODECS.items():
        for grid in (False, True):
            chunks = GRID_CHUNK if grid else scale.shape
            what = f"{codec}, {'grid' if grid else 'one chunk'}"
            part = folder / what.replace(", ", "-").replace(" ", "-")
            put_into_folder(part, values, chunks, compressor)
            stored = sum(path.stat().st_size for path in (part / "c").rglob("*") if path.is_file())
            with our_reads(part, values, chunks, {}, compressor) as (reads, lanes):
                found = interleave([*reads, *local_reads(part, values)], rounds=scale.rounds)
            times |= {f"{what}: {name}": one for name, one in found.items()}
            target = ours("memory", "recycled")
            lines += [
                times_as_fast(
                    times,
                    f"{what}: {name}",
                    f"{what}: {LOCAL_FUSED}",
                    _OF_LOCAL[codec, grid],
                    counts=name == target,
                )
                for name in OURS
            ]
            lines.append(times_as_fast(times, f"{what}: {target}", f"{what}: {LOCAL_RECYCLED}"))
            notes.append(f"{what}: {values.nbytes / stored:.1f} to 1, lanes: {lanes}")
    return Row(
        name="compressed",
        title=f"{scale.nbytes / 1e6:g} MB compressed, z[:], shared memory",
        lines=lines,
        times=times,
        notes=notes,
    )
