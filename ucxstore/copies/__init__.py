"""Count the copies that a block of code makes of an array, with memray.

Needs memray (``pip install "ucxstore[copies]"``).
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ucxstore.base.options import parse_size
from ucxstore.copies.result import Counts, Culprit

__all__ = ["Counts", "Culprit", "count_copies"]


def count_copies(
    action: Callable[[], Any],
    nbytes: int | str,
    *,
    chunk_nbytes: int | str | None = None,
    capture: str | Path | None = None,
) -> Counts:
    """Count the copies of an array that an action makes, beyond its result.

    Works with anything that runs in this process, on any zarr store:

    >>> counts = count_copies(lambda: z[:], nbytes=z.nbytes)  # doctest: +SKIP
    >>> assert counts.peak_extra < 1.05, counts.culprits  # doctest: +SKIP

    Parameters
    ----------
    action : callable
        The code to measure. All threads of this process are measured meanwhile. Make what it needs
        beforehand: arrays to write, connections, imports.
    nbytes : int or str
        The size of the array that it moves, in bytes, such as ``z.nbytes`` or ``"256MiB"``: the
        unit of the figures.
    chunk_nbytes : int, str or None
        The size of a chunk; the size of the array by default. Blocks of at least half of it count
        in `Counts.total`.
    capture : path or None
        The file for memray's capture, for ``memray flamegraph``; not kept by default.

    Returns
    -------
    Counts
        In multiples of `nbytes`. What the action returns is the result and does not count as a
        copy: an array, or a list, tuple or dict of arrays. A view counts as the array it views.

    Raises
    ------
    ImportError
        If memray is not installed.
    ValueError, TypeError
        If a size is none, or not positive.
    RuntimeError
        If memray is tracking this process already.

    Notes
    -----
    The method is that of the memray-array study: https://github.com/tomwhite/memray-array. memray
    sees malloc and mmap, but not System V and POSIX shared memory; memory of ucxstore's that
    processes of one host share is left out likewise. `Counts.fixed` says how much of that a
    connection mapped once for all values; `Counts.rss_extra` includes all of these. Neither
    includes what the kernel copies into and out of sockets and files.
    """
    from ucxstore.copies.counting import Range, count
    from ucxstore.copies.tracking import tracked

    whole = parse_size("nbytes", nbytes)
    chunk = whole if chunk_nbytes is None else parse_size("chunk_nbytes", chunk_nbytes)
    if not whole or not chunk:
        raise ValueError(f"sizes must be positive: {nbytes=}, {chunk_nbytes=}")
    with tempfile.TemporaryDirectory(prefix="ucxstore-copies-") as folder:
        path = Path(folder, "capture.bin") if capture is None else Path(capture)
        with tracked(path) as resident:
            result = action()
        own = [Range(address, size) for address, size in _memory_of(result)]
        rss_extra = resident.extra(sum(one.nbytes for one in own), whole)
        shared = [Range(one.address, one.nbytes) for one in resident.shared]
        return count(
            path,
            nbytes=whole,
            chunk_nbytes=chunk,
            own=[*own, *shared],
            rss_extra=rss_extra,
            fixed=resident.fixed,
        )


def _memory_of(result: Any) -> Iterable[tuple[int, int]]:
    """Yield the address and the size of each array in a result."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for one in result:
            yield from _memory_of(one)
    elif isinstance(result, np.ndarray) and result.size > 0:
        low, high = np.lib.array_utils.byte_bounds(result)
        yield low, high - low
