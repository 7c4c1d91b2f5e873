"""Measure the memory that is needed to connect; over UCX, it is loaded for that."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.children import answer
from benchmarks.process import mapped_bytes, own_bytes, unshared_bytes
from ucxstore import UcxStore
from ucxstore.copies import count_copies


def main(
    address: str, client: Mapping[str, Any], key: str, nbytes: int, tracked: bool
) -> dict[str, int]:
    """Connect with memray, or without, since memray needs memory itself.

    Returns
    -------
    dict
        With memray, the peak. Without, the growth of the process after it has connected, and after
        its first large transfer into memory that was allocated before.
    """
    out = np.ones(nbytes, np.uint8)
    store = UcxStore(address, select_pipeline=False, **client)

    def connect() -> None:
        if store.get_sync("missing") is not None:
            raise AssertionError("there is a value under the key 'missing'")

    if tracked:
        return {"peak": count_copies(connect, nbytes).peak}
    # Where a client sees the server's memory, that is shared memory which is not its own.
    taken = own_bytes if client["local"] == "auto" else unshared_bytes
    before, mapped_before = taken(), mapped_bytes()
    connect()
    connected, mapped = taken() - before, mapped_bytes() - mapped_before
    if store.get_into_sync(key, out) != nbytes:
        raise AssertionError(f"{key} is not of {nbytes} bytes")
    return {"connected": connected, "mapped": mapped, "after": taken() - before}


if __name__ == "__main__":
    answer(main)
