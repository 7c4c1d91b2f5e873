"""Measure the memory that a client needs beyond the user's array to read and decode it."""

from collections.abc import Mapping
from typing import Any

from benchmarks.children import answer
from benchmarks.settings import FRESH, ZERO_COPY, open_array, zarr_settings
from ucxstore import UcxStore
from ucxstore.copies import count_copies


def main(address: str, client: Mapping[str, Any], budget: int) -> float:
    """Return the bytes beyond the array at the peak of a read by a store with this budget."""
    with (
        UcxStore(
            address, strict=True, select_pipeline=False, buffer_budget=budget, **client
        ) as store,
        zarr_settings(pipeline=ZERO_COPY, ndbuffer=FRESH),
    ):
        array = open_array(store, ZERO_COPY)
        array[: array.chunks[0]]  # connects, and starts threads
        before = store.stats()["decode"]
        counts = count_copies(lambda: array[:], array.nbytes, chunk_nbytes=array.nbytes)
        if counts.peak < array.nbytes:
            raise AssertionError(f"memray saw {counts.peak} bytes, less than the array itself")
        if store.stats()["decode"] - before != array.nchunks:
            raise AssertionError(f"not all chunks were decoded here: {store.stats()}")
        nbytes: int = array.nbytes
        return counts.peak_extra * nbytes


if __name__ == "__main__":
    answer(main)
