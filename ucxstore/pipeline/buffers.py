"""Memory of our own that chunks are received in, decoded in or put together in."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ucxstore.client.memory import describe
from ucxstore.pipeline.compressors import Bytes

# An array that no core's caches hold: see `put`. The native core draws the line here, too.
_LARGE_BYTES = 8 << 20
_LEAST_ROW_BYTES = 512  # most of a shorter one is its ends, which are written as usual


def allocate(nbytes: int) -> Bytes:
    """Return memory, not initialised, whose pages may be there already."""
    from ucxstore._native import core  # not before it is needed

    memory: Bytes = core.allocate(nbytes)
    return memory


def put(
    values: Bytes, place: npt.NDArray[Any], order: Literal["C", "F"], *, array_nbytes: int
) -> None:
    """Copy the values of a chunk to their place in an array.

    Into a large array they go past the caches: nobody reads them there soon, and what the codec
    reads next stays in them.

    Parameters
    ----------
    values : array of uint8
        As many bytes as the place has, in this order.
    place : ndarray
        A part of an array that may receive.
    array_nbytes : int
        The bytes of all of the array.
    """
    row = place.shape[-1] * place.itemsize if place.ndim else 0
    if (
        array_nbytes >= _LARGE_BYTES
        and row >= _LEAST_ROW_BYTES
        and order == "C"
        and place.strides[-1] == place.itemsize
    ):
        from ucxstore._native import core

        core.place(values, describe(place))
    else:
        np.copyto(place, values.view(place.dtype).reshape(place.shape, order=order))
