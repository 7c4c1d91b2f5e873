"""Describe memory to read into or write from: address, shape, strides and item size.

No other module describes memory. So support for other memory, such as a GPU's, would add a `kind`
here, and no second code path.
"""

from typing import Any, Literal, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

type Layout = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""What the native core takes: address, shape, strides in bytes, bytes of an item."""

# DLPack's device types whose memory this process can address: kDLCPU, kDLCUDAHost, kDLROCMHost.
_DLPACK_HOST = frozenset({1, 3, 11})


class Memory(NamedTuple):
    """A block of memory, and what keeps it alive.

    Parameters
    ----------
    layout : tuple
        Address of the first item, shape, strides in bytes, and bytes of an item. A scalar is one
        item of shape ``(1,)``.
    owner : object
        An object that keeps the memory alive.
    kind : "host"
        Where the memory is.
    """

    layout: Layout
    owner: object
    kind: Literal["host"] = "host"


def readable_view(source: object) -> Memory:
    """Describe memory to send from, without a copy.

    Parameters
    ----------
    source : array_like
        Anything with ``__array_interface__``, a buffer (``bytes``, ``memoryview``, ``mmap``) or
        DLPack in the memory of this machine; of any dtype without Python objects, any strides.

    Returns
    -------
    Memory

    Raises
    ------
    TypeError
        If `source` holds no memory, holds Python objects, or lies on a device.
    """
    array = _as_array(source)
    return Memory(describe(array), array)


def writable_view(out: object) -> Memory:
    """Describe memory to receive into, without a copy.

    Parameters
    ----------
    out : array_like
        As for `readable_view`, and writable.

    Returns
    -------
    Memory

    Raises
    ------
    TypeError
        If `out` is read-only, holds no memory, holds Python objects, or lies on a device.
    ValueError
        If items of `out` overlap, so that it could not hold a value.
    """
    array = _as_array(out)
    if not array.flags.writeable:
        raise TypeError(f"out is read-only: {_name(out)}")
    if may_overlap(array):
        raise ValueError(
            f"out overlaps itself: shape {array.shape} with strides of {array.strides} bytes"
        )
    return Memory(describe(array), array)


def describe(array: npt.NDArray[Any]) -> Layout:
    """Return the layout of an array whose memory is known to be usable."""
    address: int = array.__array_interface__["data"][0]
    if array.ndim == 0:
        return address, (1,), (array.itemsize,), array.itemsize
    return address, array.shape, array.strides, array.itemsize


def may_overlap(array: npt.NDArray[Any]) -> bool:
    """Tell whether two items of `array` may share memory, as with strides of 0.

    Layouts whose axes interleave count as overlapping, although some do not overlap. Neither
    slicing nor transposing makes such layouts.
    """
    if array.flags.c_contiguous or array.size == 0:
        return False
    extent = array.itemsize
    for stride, length in sorted(
        (abs(stride), length)
        for stride, length in zip(array.strides, array.shape, strict=True)
        if length > 1
    ):
        if stride < extent:
            return True
        extent += stride * (length - 1)
    return False


def may_receive(out: object) -> TypeGuard[npt.NDArray[Any]]:
    """Tell whether threads may write to parts of `out` at once, as to plain memory."""
    return is_plain(out) and out.flags.writeable and not may_overlap(out)


def is_plain(array: object) -> TypeGuard[npt.NDArray[Any]]:
    """Tell whether `array` is plain memory. Assigning to a subclass may do more than write."""
    return type(array) in {np.ndarray, np.memmap}


def _as_array(source: object) -> npt.NDArray[Any]:
    """Return an array on the memory of `source`."""
    array = source if isinstance(source, np.ndarray) else _wrap(source)
    if array.dtype.hasobject:  # StringDType too: its items are handles to memory elsewhere
        raise TypeError(f"dtype {array.dtype} holds references, not values: {_name(source)}")
    return array


def _wrap(source: object) -> npt.NDArray[Any]:
    _refuse_device(source)
    if isinstance(source, np.generic):  # asarray copies a scalar: writes would be lost
        array = np.asarray(source)
        array.flags.writeable = False
        return array
    if hasattr(source, "__array_interface__"):
        return np.asarray(source)
    try:
        buffer = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        if hasattr(source, "__dlpack__"):
            return np.from_dlpack(source)
        raise TypeError(f"neither an array nor a buffer: {_name(source)}") from None
    try:
        return np.asarray(buffer)
    except ValueError:  # an item format that numpy lacks: take its bytes
        return np.asarray(buffer.cast("B"))


def _refuse_device(source: object) -> None:
    """Raise where the memory is a device's, naming it."""
    if hasattr(source, "__cuda_array_interface__"):
        raise TypeError(f"memory on a CUDA device is not supported: {_name(source)}")
    device = getattr(source, "__dlpack_device__", None)
    if device is None:
        return
    kind, number = device()
    if int(kind) not in _DLPACK_HOST:
        raise TypeError(
            f"memory on a device is not supported (DLPack device type {int(kind)}, "
            f"number {number}): {_name(source)}"
        )


def _name(source: object) -> str:
    kind = type(source)
    return f"{kind.__module__}.{kind.__qualname__}"
