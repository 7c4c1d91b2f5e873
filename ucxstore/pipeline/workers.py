"""Thread pool for codecs, of this package alone, so that no other work waits for its threads."""

import os
from concurrent.futures import ThreadPoolExecutor

import zarr

from ucxstore.base import process

# More threads than this are not faster than the memory that they read and write.
_MOST = 32

_pool: ThreadPoolExecutor | None = None
_size = 0
_lock = process.lock()


def codec_threads() -> tuple[ThreadPoolExecutor, int]:
    """Return a pool of threads, and how many: zarr's ``threading.max_workers``.

    Without that setting there is one for each core that this process may use.
    """
    global _pool, _size
    wanted = zarr.config.get("threading.max_workers", None)
    size = max(1, int(wanted)) if wanted else min(len(os.sched_getaffinity(0)), _MOST)
    with _lock:
        if _pool is None or size != _size:
            # Reads and writes that use the old pool keep it. Its threads end with the last of them.
            _pool = ThreadPoolExecutor(size, "ucxstore-codec")
            _size = size
        return _pool, size


def _forget_in_child() -> None:
    global _pool
    _pool = None  # its threads are the parent's


process.in_child(_forget_in_child)
