"""Measure the memory that a client needs beyond the user's array to read or write it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.children import answer
from benchmarks.data import random_values
from benchmarks.settings import ZERO_COPY, open_array, zarr_settings
from ucxstore import UcxStore
from ucxstore.copies import count_copies


def main(address: str, client: Mapping[str, Any], write: bool, ndbuffer: str) -> float:
    """Return the extra copies at the peak of the first transfer of this process."""
    with UcxStore(address, strict=True, select_pipeline=False, **client) as store:
        array = open_array(store, ZERO_COPY, "r+")  # connects
        values = random_values(array.shape)
        with zarr_settings(pipeline=ZERO_COPY, ndbuffer=ndbuffer):
            if write:
                counts = count_copies(lambda: array.__setitem__(slice(None), values), values.nbytes)
                return counts.peak_extra
            # Count only the first read: memray does not see recycled memory.
            counts = count_copies(lambda: array[:], values.nbytes)
            if counts.peak < values.nbytes:
                raise AssertionError(f"memray saw {counts.peak} bytes, less than the array itself")
            if not np.array_equal(array[:], values):
                raise AssertionError("the data came back wrong")
            return counts.peak_extra


if __name__ == "__main__":
    answer(main)
