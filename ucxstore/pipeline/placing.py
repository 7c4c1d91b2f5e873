"""Copy the values of chunks to their places in arrays."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ucxstore.client.memory import describe
from ucxstore.codecs.compressors import Bytes

# Bytes of an array that is larger than the caches: see `put`. The native core has the same limit.
LARGE_BYTES = 8 << 20
LEAST_ROW_BYTES = 512  # most of a shorter row is its ends, which go through the caches anyway


def put(
    values: Bytes, target: npt.NDArray[Any], order: Literal["C", "F"], *, array_nbytes: int
) -> None:
    """Copy the values of a chunk into its part of an array.

    Into a large array they go past the caches. Nobody reads them there soon, and the caches keep
    what the codec reads next.

    Parameters
    ----------
    values : array of uint8
        As many bytes as the target has, in this order.
    target : ndarray
        A view of the array: see `may_receive`.
    array_nbytes : int
        Bytes of the whole array.
    """
    row = target.shape[-1] * target.itemsize if target.ndim else 0
    if (
        array_nbytes >= LARGE_BYTES
        and row >= LEAST_ROW_BYTES
        and order == "C"
        and target.strides[-1] == target.itemsize
    ):
        from ucxstore.base.native import core

        core.place(values, describe(target))
    else:
        np.copyto(target, values.view(target.dtype).reshape(target.shape, order=order))
