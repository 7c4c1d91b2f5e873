"""A Dask rechunk with its pieces in scratch space of the workers, in a directory, and in S3.

And one without pieces: its tasks read parts of the source's chunks.
"""

import shutil
from pathlib import Path

from benchmarks.children import run
from benchmarks.result import Row, at_least, at_most, figure, times_as_fast
from benchmarks.scale import Scale
from benchmarks.timing import Times

_OF_DIRECTORY = at_least(1)
_OF_S3 = at_least(3)
_PEAK = at_most(0.6)  # GB

_LOCATIONS = {
    "parts": "ucxstore, local, parts of the source's chunks, no pieces",
    "local scratch": "ucxstore, local, scratch in the workers' memory",
    "scratch": "ucxstore, shared memory, scratch in the workers' memory",
    "directory": "LocalStore, directory",
    "S3": "ObjectStore, S3 on loopback",
}
_GB = 1e9


def measure(scale: Scale, folder: Path) -> Row:
    times = {name: Times() for name in _LOCATIONS.values()}
    peaks: dict[str, list[float]] = {name: [] for name in _LOCATIONS.values()}
    notes: set[str] = set()
    stages = {name: (Times(), Times()) for name in _LOCATIONS.values()}
    length, side = scale.rechunked
    task = {
        "folder": str(folder),
        "shape": (length, side, side),
        "chunks": [(length // 50, side, side), (length, side // 10, side // 5)],
        "workers": scale.workers,
    }
    run("rechunk", location=None, **task)
    for number in range(scale.rechunks):
        first = number % len(_LOCATIONS)
        for location in [*_LOCATIONS][first:] + [*_LOCATIONS][:first]:
            name = _LOCATIONS[location]
            found = run("rechunk", location=location, **task)
            times[name].seconds.append(sum(found["seconds"]))
            peaks[name].append(found["peak"] / _GB)
            notes |= {found["note"]} - {""}
            for stage, seconds in zip(stages[name], found["seconds"], strict=True):
                stage.seconds.append(seconds)
            for left in ("target", "pieces", "s3"):
                shutil.rmtree(folder / left, ignore_errors=True)
    parts = _LOCATIONS["parts"]
    *ours, directory, s3 = _LOCATIONS.values()
    nbytes = 4 * length * side**2
    return Row(
        name="rechunk",
        title=f"Dask rechunk of {nbytes / _GB:g} GB, {scale.workers} workers, by way of",
        lines=[
            *(times_as_fast(times, scratch, directory, _OF_DIRECTORY) for scratch in ours),
            *(times_as_fast(times, scratch, s3, _OF_S3) for scratch in ours),
            *(
                figure(f"peak memory, {name}", found, "GB", _PEAK if name == parts else None)
                for name, found in peaks.items()
            ),
        ],
        times=times,
        notes=[
            *(
                f"{name}: pieces written in {first.median:.2f} s, read in {second.median:.2f} s"
                for name, (first, second) in stages.items()
                if name != parts
            ),
            f"peak memory is that of the workers, with the {nbytes / _GB:g} GB of pieces where they"
            " are in them, and of the S3 server",
            *notes,
        ],
    )
