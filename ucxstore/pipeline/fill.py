"""Whether a chunk holds nothing but its fill value, found out in little time and memory."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ucxstore.zarr_compat import ArraySpec, fill_value_or_default

# Items compared at once. zarr's own test doubles its blocks, up to temporaries of half a chunk;
# these stay in a core's cache, and numpy's calls are still a small part of the time.
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
        Of any chunk of the array.
    """

    __slots__ = ("_buffer", "_fill", "_is_number")

    def __init__(self, spec: ArraySpec) -> None:
        self._fill = fill_value_or_default(spec)
        self._buffer = spec.prototype.nd_buffer
        self._is_number = spec.dtype.to_native_dtype().kind in _NUMBERS and isinstance(
            self._fill, np.generic | int | float | complex
        )

    def rules_out(self, array: npt.NDArray[Any], index: Sequence[int]) -> bool:
        """Tell whether one item of a chunk alone shows that the chunk holds more.

        Cheap, as it is asked for each chunk that is written, and the first item of nearly every
        chunk rules it out. ``False`` says nothing.
        """
        if not self._is_number:  # as a Python object it may not even exist: dates far away
            return False
        item = array.item(*index)
        # NaN differs from itself, and may well be the fill value.
        return bool(item == item and item != self._fill)

    def holds(self, chunk: npt.NDArray[Any]) -> bool:
        """Tell whether all of `chunk`, of any strides, is the fill value."""
        wrap = self._buffer.from_ndarray_like
        if np.ndim(self._fill) > 0:  # to be spread over the whole chunk, not over blocks
            return wrap(chunk).all_equal(self._fill)
        return all(wrap(block).all_equal(self._fill) for block in blocks(chunk, BLOCK_ITEMS))


def blocks(array: npt.NDArray[Any], items: int) -> Iterator[npt.NDArray[Any]]:
    """Yield views of at most `items` items that make up `array`, whatever its strides."""
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
