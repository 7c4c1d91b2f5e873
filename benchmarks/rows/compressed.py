"""``z[:]`` of compressed arrays, in one chunk and in a grid."""

import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from zarr.codecs import BloscCodec, ZstdCodec

from benchmarks.candidates import (
    DEFAULTS,
    LOCAL_FUSED,
    LOCAL_RECYCLED,
    Ours,
    local_reads,
    our_reads,
    ours,
)
from benchmarks.data import Stored, Values, put_into_folder, smooth_values
from benchmarks.result import Line, Row, Target, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import MEMORY
from benchmarks.timing import Candidate, Times, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY, TCP, UCX_OVER_TCP
from ucxstore.codecs.compressors import compressor_of
from ucxstore.pipeline.workers import codec_threads

_CODECS: dict[str, Any] = {"zstd": ZstdCodec(), "blosc": BloscCodec()}

_OF_LOCAL: dict[tuple[str, bool], Target] = {
    ("zstd", False): at_least(1.7),
    ("blosc", False): at_least(2.5),
    ("zstd", True): at_least(1),
    ("blosc", True): at_least(1),
}
_OF_DECODING = at_least(0.87)  # within 15 % of its time
_TURN_SECONDS = 1e-3  # one timed call, after one that is not timed

# Most of the time is the codec's, so fewer of these than elsewhere.
_READS: list[Ours] = [
    *((way, "memory", memory) for way in (LOCAL, SHARED_MEMORY) for memory in MEMORY),
    *((way, "directory", "recycled") for way in (LOCAL, SHARED_MEMORY)),
    *((way, "memory", "recycled") for way in (TCP, UCX_OVER_TCP)),
]

_DECODING = "decoding alone, into place"
_CODEC = "the codec alone"


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
            put_into_folder(part, values, Stored(chunks, compressor))
            stored = sum(path.stat().st_size for path in (part / "c").rglob("*") if path.is_file())
            with our_reads(part, values, Stored(chunks, compressor), _READS) as (reads, lanes):
                candidates = [*reads, *local_reads(part, values)]
                if grid:
                    candidates += _decoding(part, values, compressor)
                found = interleave(candidates, scale.rounds, turn_seconds=_TURN_SECONDS)
            times |= {f"{what}: {name}": one for name, one in found.items()}
            lines += [
                times_as_fast(
                    times,
                    f"{what}: {name}",
                    f"{what}: {LOCAL_FUSED}",
                    _OF_LOCAL[codec, grid],
                    counts=name in DEFAULTS,
                )
                for name in (ours(*one) for one in _READS)
            ]
            for name in DEFAULTS:
                mine = f"{what}: {name}"
                lines.append(times_as_fast(times, mine, f"{what}: {LOCAL_RECYCLED}"))
                if grid:
                    lines += [
                        times_as_fast(times, mine, f"{what}: {_DECODING}", _OF_DECODING),
                        times_as_fast(times, mine, f"{what}: {_CODEC}"),
                    ]
            notes += lanes if not notes else []
            notes.append(f"{what}: {values.nbytes / stored:.1f} to 1")
    return Row(
        name="compressed",
        title=f"{scale.nbytes / 1e6:g} MB compressed, z[:]",
        lines=lines,
        times=times,
        notes=notes,
    )


def _decoding(folder: Path, values: Values, codec: Any) -> list[Candidate]:
    """Return candidates that decode values in memory, in the thread pool of ucxstore.

    The first decodes each value to a scratch chunk of its thread, and copies that into an array
    that was used before, since no codec writes to strided memory. The second does not copy.
    """
    compressor = compressor_of(codec)
    assert compressor is not None
    decode = compressor.decode
    rows, columns = GRID_CHUNK
    starts = product(range(0, values.shape[0], rows), range(0, values.shape[1], columns))
    chunks = [
        (np.fromfile(folder / "c" / str(i // rows) / str(j // columns), np.uint8), i, j)
        for i, j in starts
    ]
    out = np.zeros_like(values)
    scratch = threading.local()
    pool, _ = codec_threads()

    def one(chunk: tuple[Any, int, int], to_place: bool) -> None:
        value, i, j = chunk
        if not hasattr(scratch, "chunk"):
            scratch.chunk = np.empty(GRID_CHUNK, values.dtype)
        decode(value, scratch.chunk.reshape(-1).view(np.uint8))
        if to_place:
            out[i : i + rows, j : j + columns] = scratch.chunk

    def all_of_them(to_place: bool) -> Values:
        for future in [pool.submit(one, chunk, to_place) for chunk in chunks]:
            future.result()
        return out

    def is_right(result: Values) -> bool:
        return np.array_equal(result, values)

    return [
        Candidate(_DECODING, lambda: all_of_them(True), is_right=is_right),
        Candidate(_CODEC, lambda: all_of_them(False)),
    ]
