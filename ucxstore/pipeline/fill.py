"""Find chunks that hold only the fill value, in little time and memory."""

from collections.abc import Iterator, Sequence
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

    def rules_out(self, array: npt.NDArray[Any], index: Sequence[int]) -> bool:
        """Tell whether one item of a chunk differs from the fill value.

        It is cheap, and the first item of nearly every chunk differs. ``False`` decides nothing.
        """
        if not self._is_number:  # some dates have no Python object
            return False
        item = array.item(*index)
        # NaN differs from itself, and may well be the fill value.
        return bool(item == item and item != self._fill)

    def holds(self, chunk: npt.NDArray[Any]) -> bool:
        """Tell whether all of `chunk`, of any strides, is the fill value."""
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
