"""``z[:] = x`` into a grid of compressed chunks, compared to the codec alone."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.chunk_utils import ChunkTransform
from zarr.storage import MemoryStore

from benchmarks.candidates import LOCAL_FUSED, directory_writes, our_write, our_writes
from benchmarks.data import Stored, Values, smooth_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Candidate, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY, WAYS
from ucxstore.pipeline.workers import codec_threads

_CODEC = ZstdCodec()

_OF_CODECS = at_least(0.87)  # within 15 % of their time

_CODECS = "zarr's codecs alone"
_ZSTD = "zstd alone, of chunks in one piece"


def measure(scale: Scale, folder: Path) -> Row:
    values = smooth_values(scale.shape)
    stored = Stored(GRID_CHUNK, _CODEC)
    with our_writes(values, stored, WAYS) as (writes, notes):
        times = interleave([*_codecs(values, stored), *writes], rounds=scale.rounds)
    times |= directory_writes(folder, values, stored, scale.directory_writes)
    lines = [
        times_as_fast(
            times, our_write(way, "memory"), against, bound, counts=way in (LOCAL, SHARED_MEMORY)
        )
        for against, bound in ((_CODECS, _OF_CODECS), (_ZSTD, None))
        for way in WAYS
    ]
    lines += [
        times_as_fast(times, our_write(way, "directory"), LOCAL_FUSED)
        for way in (LOCAL, SHARED_MEMORY)
    ]
    return Row(
        name="compressed-write",
        title=f"{scale.nbytes / 1e6:g} MB in 10 x 10 chunks, zstd, z[:] = x",
        lines=lines,
        times=times,
        notes=[*notes, f"threads: {codec_threads()[1]}"],
    )


def _codecs(values: Values, stored: Stored) -> list[Candidate]:
    """Return candidates that encode the chunks in ucxstore's threads, and drop the result."""
    array = zarr.create_array(
        MemoryStore(),
        shape=values.shape,
        chunks=stored.chunks,
        dtype=values.dtype,
        compressors=stored.compressors,
    )
    transform = ChunkTransform(codecs=tuple(array.async_array.codec_pipeline))
    spec = ArraySpec(
        GRID_CHUNK,
        array.metadata.data_type,
        array.metadata.fill_value,
        ArrayConfig.from_dict({}),
        default_buffer_prototype(),
    )
    starts = product(*(range(0, n, step) for n, step in zip(values.shape, GRID_CHUNK, strict=True)))
    parts = [
        cpu.NDBuffer.from_ndarray_like(values[i : i + GRID_CHUNK[0], j : j + GRID_CHUNK[1]])
        for i, j in starts
    ]
    chunks = [np.ascontiguousarray(part.as_numpy_array()) for part in parts]
    pool, _ = codec_threads()

    def in_pool(encode: Callable[[Any], Any], what: list[Any]) -> None:
        for future in [pool.submit(lambda one: len(encode(one)), one) for one in what]:
            future.result()

    return [
        Candidate(_CODECS, lambda: in_pool(lambda p: transform.encode_chunk(p, spec), parts)),
        Candidate(_ZSTD, lambda: in_pool(_CODEC._zstd_codec.encode, chunks)),
    ]
