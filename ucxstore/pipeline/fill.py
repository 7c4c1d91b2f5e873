"""Find chunks that hold only the fill value, in little time and memory."""

from collections.abc import Iterator, Sequence
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from ucxstore.base.zarr_compat import ArraySpec, fill_value_or_default

# Items compared at once: few enough for temporaries to stay in a core's cache, and enough for
# numpy's calls to be a small part of the time. zarr's own test makes temporaries of half a chunk.
BLOCK_ITEMS = 1 << 16

# The dtype kinds whose items compare as Python's own numbers do.
_NUMBERS = frozenset("biufc")


class FillTest:
    """Tells which chunks of an array hold only its fill value, as zarr itself would tell.

    Every block of a chunk is compared by the ``all_equal`` of the prototype's buffer, so that NaN,
    -0.0, NaT and strings count as they do in zarr's ``chunk_is_empty``.

    Parameters
    ----------
    spec : ArraySpec
        The spec of any chunk of the array.
    """

    __slots__ = ("_buffer", "_fill", "_is_number")

    def __init__(self, spec: ArraySpec) -> None:
        self._fill = fill_value_or_default(spec)
        self._buffer = spec.prototype.nd_buffer
        self._is_number = spec.dtype.to_native_dtype().kind in _NUMBERS and isinstance(
            self._fill, np.generic | int | float | complex
        )

    def holds(self, array: npt.NDArray[Any], starts: Sequence[int], counts: Sequence[int]) -> bool:
        """Tell whether a box of an array, of any strides, holds only the fill value.

        Its first item is looked at first. That is cheap, and in nearly every chunk it differs.
        """
        if self._is_number:  # some dates have no Python object
            item = array.item(*starts)
            # NaN differs from itself, and may well be the fill value.
            if item == item and item != self._fill:
                return False
        box: tuple[Any, ...] = (*map(slice, starts, map(add, starts, counts)), ...)
        chunk = array[box]
        wrap = self._buffer.from_ndarray_like
        if np.ndim(self._fill) > 0:  # numpy spreads it over the whole chunk, not over blocks
            return wrap(chunk).all_equal(self._fill)
        return all(wrap(block).all_equal(self._fill) for block in blocks(chunk, BLOCK_ITEMS))


def blocks(array: npt.NDArray[Any], items: int) -> Iterator[npt.NDArray[Any]]:
    """Yield views of at most `items` items that together are `array`, whatever its strides."""
    if array.size <= items:
        yield array
        return
    length = array.shape[0]
    row = array.size // length
    if row > items:
        for part in array:
            yield from blocks(part, items)
        return
    step = items // row
    for start in range(0, length, step):
        yield array[start : start + step]
