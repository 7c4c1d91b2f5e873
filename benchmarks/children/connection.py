"""Measure the memory that is needed to load UCX and connect."""

import numpy as np

from benchmarks.children import answer
from benchmarks.process import mapped_bytes, unshared_bytes
from ucxstore import UcxStore
from ucxstore.copies import count_copies


def main(address: str, key: str, nbytes: int, tracked: bool) -> dict[str, int]:
    """Connect with memray, or without, since memray needs memory itself.

    Returns
    -------
    dict
        With memray, the peak. Without, the growth of the process after it has connected, and after
        its first large transfer into memory that was allocated before.
    """
    out = np.ones(nbytes, np.uint8)
    store = UcxStore(address, select_pipeline=False)

    def connect() -> None:
        if store.get_sync("missing") is not None:
            raise AssertionError("there is a value under the key 'missing'")

    if tracked:
        return {"peak": count_copies(connect, nbytes).peak}
    before, mapped_before = unshared_bytes(), mapped_bytes()
    connect()
    connected, mapped = unshared_bytes() - before, mapped_bytes() - mapped_before
    if store.get_into_sync(key, out) != nbytes:
        raise AssertionError(f"{key} is not of {nbytes} bytes")
    return {"connected": connected, "mapped": mapped, "after": unshared_bytes() - before}


if __name__ == "__main__":
    answer(main)
