"""Thread pool for codecs, of this package alone, so that no other work waits for its threads."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import zarr

from ucxstore.base import process

# More threads than this are not faster than the memory that they read and write.
_MOST = 32

_lock = process.lock()


def codec_threads() -> tuple[ThreadPoolExecutor, int]:
    """Return a pool of threads, and how many: zarr's ``threading.max_workers``.

    Without that setting there is one for each core that this process may use.
    """
    wanted = zarr.config.get("threading.max_workers", None)
    size = max(1, int(wanted)) if wanted else min(len(os.sched_getaffinity(0)), _MOST)
    with _lock:
        return _pool_of(size), size


# Reads and writes that use the pool of another size keep it. Its threads end with the last of them.
@lru_cache(1)
def _pool_of(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "ucxstore-codec")


process.in_child(_pool_of.cache_clear)  # its threads are the parent's
