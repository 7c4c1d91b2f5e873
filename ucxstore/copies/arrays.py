"""The array that is moved: its values, and its place in a store."""

from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from ucxstore.copies.workloads import Workload

_SEED = 20250521  # the same numbers in every process

# zarr's and ours: the pipelines by the names of rows.
PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
    "zero-copy": "ucxstore.pipeline.ZeroCopyCodecPipeline",
}


def values(workload: Workload) -> npt.NDArray[np.float32]:
    """Return the array: random numbers, as in the memray-array study."""
    return np.random.default_rng(_SEED).random(workload.shape, dtype=np.float32)


def create(store: Any, workload: Workload) -> Any:
    """Make the array, without its values, in the place of whatever is there."""
    compressor = workload.compressor
    return zarr.create_array(
        store,
        shape=workload.shape,
        dtype="float32",
        chunks=workload.chunk_shape,
        shards=workload.shard_shape,
        compressors=None if compressor is None else [compressor],
        overwrite=True,
    )


def open_for(store: Any, workload: Workload, pipeline: str) -> Any:
    """Make or open the array with a pipeline, as the direction asks for.

    Raises
    ------
    RuntimeError
        If zarr gave it another pipeline.
    """
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        array = (
            create(store, workload)
            if workload.direction == "write"
            else zarr.open_array(store, mode="r")
        )
        actual = type(array.async_array.codec_pipeline).__name__
    if actual != PIPELINES[pipeline].rpartition(".")[2]:
        raise RuntimeError(f"zarr opened it with {actual}, not with the pipeline {pipeline!r}")
    return array
