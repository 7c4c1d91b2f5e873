"""The memory that a client needs beyond the user's array, to read or to write it."""

import numpy as np

from benchmarks.children import answer
from benchmarks.children.tracking import peak_bytes
from benchmarks.data import random_values
from benchmarks.settings import ZERO_COPY, open_array, zarr_settings
from ucxstore import UcxStore


def main(address: str, write: bool, ndbuffer: str) -> int:
    """Return the bytes at the peak of the first transfer of this process."""
    with UcxStore(address, strict=True, select_pipeline=False) as store:
        array = open_array(store, ZERO_COPY, "r+")  # connects
        values = random_values(array.shape)
        with zarr_settings(pipeline=ZERO_COPY, ndbuffer=ndbuffer):
            if write:
                return peak_bytes(lambda: array.__setitem__(slice(None), values))
            # Not measured twice: recycled memory was mapped before, and memray would not see it.
            peak = peak_bytes(lambda: array[:])
            if peak < values.nbytes:
                raise AssertionError(f"memray saw {peak} bytes, less than the array itself")
            if not np.array_equal(array[:], values):
                raise AssertionError("the data came back wrong")
            return peak - values.nbytes


if __name__ == "__main__":
    answer(main)
