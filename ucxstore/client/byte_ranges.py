"""Translate zarr's byte requests for the native core: pure, no I/O.

zarr is not imported: who has such a request has imported it, and who has none needs no zarr.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest

type NativeRange = tuple[int, int, int]
"""A kind and two numbers: ``(1, start, end)``, ``(2, offset, 0)`` or ``(3, suffix, 0)``."""

_WHOLE: NativeRange = (2, 0, 0)


def to_native(byte_range: ByteRequest | None) -> list[NativeRange]:
    """Translate one request; ``None``, the whole value, becomes an empty list.

    Raises
    ------
    TypeError
        If `byte_range` is none of zarr's byte requests.
    ValueError
        If it holds a negative number.
    """
    return [] if byte_range is None else [_translate(byte_range)]


def many_to_native(byte_ranges: Iterable[ByteRequest | None]) -> list[NativeRange]:
    """Translate several requests for one key; raise as `to_native` does."""
    return [_WHOLE if item is None else _translate(item) for item in byte_ranges]


def bounds(ranges: Iterable[NativeRange], size: int) -> Iterator[tuple[int, int]]:
    """Yield where each range starts and stops in a value of `size` bytes."""
    for kind, first, second in ranges:
        if kind == 1:
            start, stop = min(first, size), min(second, size)
        elif kind == 2:
            start, stop = min(first, size), size
        else:
            start, stop = max(0, size - first), size
        yield start, max(start, stop)


def _translate(byte_range: ByteRequest) -> NativeRange:
    from zarr.abc import store

    match byte_range:
        case store.RangeByteRequest(start, end):
            native = (1, index(start), index(end))
        case store.OffsetByteRequest(offset):
            native = (2, index(offset), 0)
        case store.SuffixByteRequest(suffix):
            native = (3, index(suffix), 0)
        case _:
            raise TypeError(f"Unexpected byte_range, got {byte_range}.")
    if native[1] < 0 or native[2] < 0:
        raise ValueError(f"byte_range has a negative bound: {byte_range}")
    return native
