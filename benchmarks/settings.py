"""Set zarr's configuration for each candidate; it applies to the whole process.

To make a `UcxStore` selects a codec pipeline and a buffer class for all arrays of the process. Here
stores are made with ``select_pipeline=False``, and each candidate has its own settings.
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
RECYCLED = (
    "ucxstore.pipeline.recycling.RecyclingNDBuffer"  # ucxstore's: results in memory of earlier ones
)

# The buffer classes, by the names that rows print.
MEMORY = {"recycled": RECYCLED, "fresh": FRESH}


@contextmanager
def zarr_settings(*, pipeline: str, ndbuffer: str) -> Iterator[None]:
    """Let zarr open arrays with a pipeline, and put results into a class of buffers."""
    with zarr.config.set({"codec_pipeline.path": pipeline, "ndbuffer": ndbuffer}):
        yield


def open_array(store: Any, pipeline: str, mode: str = "r") -> Any:
    """Open the array of a store, and check that it has the pipeline."""
    with zarr_settings(pipeline=pipeline, ndbuffer=FRESH):
        array = zarr.open_array(store, mode=mode)
    actual = type(array.async_array.codec_pipeline).__name__
    if actual != pipeline.rpartition(".")[2]:
        raise RuntimeError(f"{store} was opened with {actual}, not {pipeline}")
    return array
