"""Time gets of a small value, one after the other."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.children import answer
from ucxstore import UcxStore

_WARM_UPS = 300  # the first of them connects


def main(
    call: str, address: str, key: str, nbytes: int, calls: int, client: Mapping[str, Any]
) -> list[float]:
    """Return the seconds of each call.

    Parameters
    ----------
    call : str
        ``"get_sync"`` or ``"get_into_sync"`` of a `UcxStore`, or ``"LMDB"``: into memory of the
        caller's, too, in a transaction for each value.
    address : str
        Of the store, or the folder of LMDB's files.
    client : mapping
        Options of the store, or of LMDB's environment.
    """
    if call == "LMDB":
        import lmdb

        with lmdb.open(address, readonly=True, **client) as environment:
            return _time(_of_lmdb(environment, key.encode(), nbytes), calls)
    with UcxStore(address, select_pipeline=False, **client) as store:
        value = store.get_sync(key)
        if value is None or len(value) != nbytes:
            raise AssertionError(f"{key} is not of {nbytes} bytes")
        out = bytearray(nbytes)
        if call == "get_sync":
            return _time(lambda: store.get_sync(key), calls)
        return _time(lambda: store.get_into_sync(key, out), calls)


def _of_lmdb(environment: Any, key: bytes, nbytes: int) -> Callable[[], object]:
    out = memoryview(bytearray(nbytes))

    def get() -> None:
        with environment.begin(buffers=True) as transaction:
            out[:] = transaction.get(key)

    return get


def _time(get: Callable[[], object], calls: int) -> list[float]:
    for _ in range(_WARM_UPS):
        get()
    gc.disable()
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        get()
        seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    answer(main)
