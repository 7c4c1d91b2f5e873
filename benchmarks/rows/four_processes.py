"""A job of new processes, each of which reads a compressed array some times."""

from pathlib import Path

from zarr.codecs import ZstdCodec

from benchmarks.candidates import LOCAL_FUSED, ZARRS
from benchmarks.data import Stored, smooth_values
from benchmarks.jobs import CPU, OURS, measure_jobs
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.ways import LOCAL

_OF_FUSED = at_least(1)

_PROCESSES = 4
_EPOCHS = 3


def measure(scale: Scale, folder: Path) -> Row:
    values = smooth_values(scale.shape)
    stored = Stored(GRID_CHUNK, ZstdCodec())
    times = measure_jobs(values, stored, folder, _PROCESSES, _EPOCHS, scale.job_rounds)
    return Row(
        name="four-processes",
        title=f"{_PROCESSES} new processes, {_EPOCHS} epochs each of {scale.nbytes / 1e6:g} MB "
        "in zstd chunks, start and end included",
        lines=[
            times_as_fast(
                times,
                kind.format(name),
                kind.format(against),
                _OF_FUSED if against == LOCAL_FUSED else None,
                counts=way is LOCAL,
            )
            for against in (LOCAL_FUSED, ZARRS)
            for kind in ("{}", CPU)
            for way, name in OURS.items()
        ],
        times=times,
        notes=["the processor time of ours includes the server's"],
    )
