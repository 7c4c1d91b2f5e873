"""Time round trips, one after the other."""

import gc
import time
from collections.abc import Mapping

from benchmarks.children import answer
from ucxstore import UcxStore

_WARM_UPS = 300  # the first of them connects


def main(
    address: str, key: str, nbytes: int, calls: int, ucx: Mapping[str, str], progress: str
) -> list[float]:
    """Return the seconds of each ``get_sync``."""
    seconds = []
    with UcxStore(address, ucx=ucx, progress=progress, select_pipeline=False) as store:
        value = store.get_sync(key)
        if value is None or len(value) != nbytes:
            raise AssertionError(f"{key} is not of {nbytes} bytes")
        for _ in range(_WARM_UPS):
            store.get_sync(key)
        gc.disable()
        for _ in range(calls):
            start = time.perf_counter()
            store.get_sync(key)
            seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    answer(main)
