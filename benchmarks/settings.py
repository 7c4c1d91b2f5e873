"""zarr's settings around each candidate: its configuration belongs to the whole process.

Making a `UcxStore` selects a codec pipeline and a buffer class for every array of the process. The
stores here are made with ``select_pipeline=False``, and each candidate says what it runs with.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zarr

from ucxstore.copies.workload import PIPELINES

BATCHED = PIPELINES["default"]
FUSED = PIPELINES["fused"]
ZARRS_PIPELINE = PIPELINES["zarrs"]
ZERO_COPY = PIPELINES["zero-copy"]

FRESH = "zarr.buffer.cpu.NDBuffer"  # zarr's default: results in new memory
RECYCLED = "ucxstore.pipeline.recycling.RecyclingNDBuffer"  # in memory of earlier results: ours

# By the names that rows print.
MEMORY = {"recycled": RECYCLED, "fresh": FRESH}


@contextmanager
def zarr_settings(*, pipeline: str, ndbuffer: str) -> Iterator[None]:
    """Let zarr open arrays with this pipeline, and put results into this class of buffers."""
    with zarr.config.set({"codec_pipeline.path": pipeline, "ndbuffer": ndbuffer}):
        yield


def open_array(store: Any, pipeline: str, mode: str = "r") -> Any:
    """Open the array of a store, and make sure that it got the pipeline."""
    with zarr_settings(pipeline=pipeline, ndbuffer=FRESH):
        array = zarr.open_array(store, mode=mode)
    actual = type(array.async_array.codec_pipeline).__name__
    if actual != pipeline.rpartition(".")[2]:
        raise RuntimeError(f"{store} was opened with {actual}, not {pipeline}")
    return array
