"""The data: arrays of random numbers, in a directory and in the memory of a server."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import LocalStore

from benchmarks.settings import BATCHED, FRESH, ZERO_COPY, zarr_settings
from ucxstore import UcxStore

type Values = npt.NDArray[np.float32]

_SEED = 20250521  # the same numbers in every process


def random_values(shape: tuple[int, ...]) -> Values:
    return np.random.default_rng(_SEED).random(shape, dtype=np.float32)


def smooth_values(shape: tuple[int, ...]) -> Values:
    """Return random walks along the rows, in steps of 1/64: zstd and blosc make a third of them."""
    walks = np.random.default_rng(_SEED).normal(0, 0.05, shape).cumsum(axis=-1)
    values: Values = (np.round(walks * 64) / 64).astype(np.float32)
    return values


@dataclass(frozen=True, slots=True)
class Stored:
    """How an array is stored: as for `zarr.create_array`."""

    chunks: tuple[int, ...]
    compressors: Any = None
    shards: tuple[int, ...] | None = None


def put_into_folder(folder: Path, values: Values, stored: Stored) -> None:
    """Write an array by zarr alone, and wait until the disk has it: it would disturb later on."""
    _put(LocalStore(folder), values, stored, BATCHED)
    os.sync()


def put_into_server(address: str, values: Values, stored: Stored, **options: Any) -> None:
    with UcxStore(address, select_pipeline=False, **options) as store:
        _put(store, values, stored, ZERO_COPY)


def _put(store: Any, values: Values, stored: Stored, pipeline: str) -> None:
    with zarr_settings(pipeline=pipeline, ndbuffer=FRESH):
        array = zarr.create_array(
            store,
            shape=values.shape,
            chunks=stored.chunks,
            shards=stored.shards,
            dtype=values.dtype,
            compressors=stored.compressors,
        )
        array[:] = values
