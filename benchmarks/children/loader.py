"""A loader of a training job: it reads the chunks of an array, in each epoch in another order.

``python -P benchmarks/children/loader.py TASK``. It opens the array, and says that it is ready. For
the number of an epoch it reads each chunk once, touches each page of it, and answers. It imports
what its way needs, and no more.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore

type _Read = Callable[[int], Any]
"""Returns the values of a chunk, by its number."""

type _Count = Callable[[], int]
"""Returns how many chunks this process has decoded, or nothing of use."""

_PAGE = 4096


def main(task: Mapping[str, Any]) -> None:
    # What is measured is to be the job's memory, and none of imports.
    zarr.create_array(MemoryStore(), data=np.ones(1))[:]
    read, count = _OPEN[task["how"]](task)
    sums = task["sums"]
    _say("ready")
    for line in sys.stdin:
        order = np.random.default_rng([task["number"], json.loads(line)]).permutation(len(sums))
        before = time.process_time()
        for chunk in order.tolist():
            values = np.asarray(read(chunk)).reshape(-1)
            if float(values[:: _PAGE // values.itemsize].sum(dtype="f8")) != sums[chunk]:
                raise AssertionError(f"chunk {chunk} came back wrong")
        _say({"cpu": time.process_time() - before, "decoded": count()})


def _by_zarr(store: Any, count: _Count = lambda: 0) -> tuple[_Read, _Count]:
    array: Any = zarr.open_array(store, mode="r", zarr_format=3)
    rows = array.chunks[0]
    return lambda chunk: array[chunk * rows : (chunk + 1) * rows], count


def _by_server(task: Mapping[str, Any]) -> tuple[_Read, _Count]:
    from ucxstore import UcxStore

    # It selects the pipeline by itself. Strict: fail if a chunk does not take the short path.
    store = UcxStore(task["location"], read_only=True, strict=True, **task["client"])
    return _by_zarr(store, lambda: int(store.stats()["decode"]))


def _by_local_store(task: Mapping[str, Any]) -> tuple[_Read, _Count]:
    from zarr.storage import LocalStore

    if task["pipeline"].startswith("zarrs"):
        import zarrs  # noqa: F401  # registers it
    zarr.config.set({"codec_pipeline.path": task["pipeline"]})
    return _by_zarr(LocalStore(task["location"], read_only=True))


def _by_tensorstore(task: Mapping[str, Any]) -> tuple[_Read, _Count]:
    import tensorstore

    # To look at the file only when it is opened is the fastest that it offers.
    array = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": task["location"]},
            "recheck_cached_data": "open",
        },
        context=tensorstore.Context({"cache_pool": {"total_bytes_limit": task["cache"]}}),
        read=True,
    ).result()
    rows = array.chunk_layout.read_chunk.shape[0]
    return lambda chunk: array[chunk * rows : (chunk + 1) * rows].read().result(), lambda: 0


def _by_lmdb(task: Mapping[str, Any]) -> tuple[_Read, _Count]:
    import lmdb
    import numcodecs

    codec = numcodecs.get_codec({"id": task["codec"]})
    environment = lmdb.open(task["location"], readonly=True, **task["options"])
    # All chunks are decoded into the same memory, which no other way can.
    out = np.empty(task["chunk_bytes"] // 4, np.float32)

    def read(chunk: int) -> Any:
        with environment.begin(buffers=True) as transaction:
            return codec.decode(transaction.get(f"c/{chunk}/0".encode()), out)

    return read, lambda: 0


_OPEN: Mapping[str, Callable[[Mapping[str, Any]], tuple[_Read, _Count]]] = {
    "server": _by_server,
    "local-store": _by_local_store,
    "tensorstore": _by_tensorstore,
    "lmdb": _by_lmdb,
}


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
