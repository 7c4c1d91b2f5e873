"""A new process until it has read a small array and ended: all imports, and connecting."""

from pathlib import Path

from benchmarks.candidates import LOCAL_FUSED
from benchmarks.data import Stored, random_values
from benchmarks.jobs import CPU, OURS, measure_jobs
from benchmarks.result import Line, Row, below
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Times
from benchmarks.ways import LOCAL

_BEYOND = below(30)  # ms
_SHAPE = (1000, 1000)  # 4 MB


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(_SHAPE)
    times = measure_jobs(values, Stored(GRID_CHUNK), folder, 1, 1, scale.start_rounds)
    return Row(
        name="first-read",
        title=f"a new process that reads an array of {values.nbytes / 1e6:g} MB, and ends",
        lines=[
            _beyond(times, kind.format(name), kind.format(LOCAL_FUSED), counts=way is LOCAL)
            for kind in ("{}", CPU)
            for way, name in OURS.items()
        ],
        times=times,
        notes=["the processor time of ours includes the server's"],
    )


def _beyond(times: dict[str, Times], name: str, against: str, *, counts: bool) -> Line:
    """Make the line of how much longer one takes than the other."""
    ours, theirs = times[name], times[against]
    return Line(
        what=f"{name}, beyond",
        against=against,
        median=1e3 * (ours.median - theirs.median),
        minimum=1e3 * (ours.minimum - theirs.minimum),
        unit="ms",
        target=_BEYOND,
        counts=counts,
    )
