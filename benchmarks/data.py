"""Make arrays of random numbers, and put them into a directory or a server."""

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
    """Return random walks along the rows, in steps of 1/64; they compress to a third."""
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
    """Write an array with zarr's own store, and wait for the disk, which would disturb later."""
    put_into_store(LocalStore(folder), values, stored, BATCHED)
    os.sync()


def put_into_server(address: str, values: Values, stored: Stored, **options: Any) -> None:
    with UcxStore(address, select_pipeline=False, **options) as store:
        put_into_store(store, values, stored, ZERO_COPY)


def put_into_store(store: Any, values: Values, stored: Stored, pipeline: str) -> None:
    """Write an array to any store of zarr's."""
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
