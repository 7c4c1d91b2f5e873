"""Recycled memory for the arrays that zarr reads into, to save page faults.

The kernel clears each page of a new array. So reading 100 MB into a new array takes nearly twice as
long as into one whose pages are there. zarr makes the arrays that it reads into by the buffer class
that is configured as ``ndbuffer``. The class here takes large arrays from memory that earlier
results have given back.

``UCXSTORE_RECYCLE_BYTES`` bounds the memory that is kept (default 256 MiB). With 0, none is kept,
and zarr's own class stays selected. Memory unused for some seconds goes back to the kernel.
"""

import math
import os
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.registry import register_ndbuffer

from ucxstore.zarr_compat import NDArrayLike, cpu

NDBUFFER = "ucxstore.pipeline.recycling.RecyclingNDBuffer"
ENVIRONMENT = "UCXSTORE_RECYCLE_BYTES"

# Smaller arrays come from the heap, which keeps its pages anyway.
_RECYCLE_ABOVE = 1 << 20


class _EqualsNDBuffer(type):
    """Makes a class compare equal to zarr's own.

    zarr compares buffer classes to find out whether one is the default. Within shards it refuses
    its own `cpu.NDBuffer` if another class is configured, for arrays in any store.
    """

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cpu.NDBuffer

    def __hash__(cls) -> int:
        return hash(cpu.NDBuffer)


class RecyclingNDBuffer(cpu.NDBuffer, metaclass=_EqualsNDBuffer):
    """zarr's buffer for host memory. Large uninitialised ones are of recycled memory."""

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C"
    ) -> Self:
        parsed = np.dtype(dtype)
        nbytes = math.prod(shape) * parsed.itemsize
        if nbytes < _RECYCLE_ABOVE or parsed.hasobject:
            return super().empty(shape, dtype, order)
        from ucxstore._native import core  # not before it is needed

        array: npt.NDArray[Any] = np.ndarray(shape, parsed, core.allocate(nbytes), order=order)
        return cls(cast(NDArrayLike, array))


def select_recycling() -> None:
    """Let zarr read into recycled memory, unless another buffer class is configured."""
    default = zarr.config.defaults[0]["ndbuffer"]
    if zarr.config.get("ndbuffer") == default and os.environ.get(ENVIRONMENT, "").strip() != "0":
        zarr.config.set({"ndbuffer": NDBUFFER})


register_ndbuffer(RecyclingNDBuffer, qualname=NDBUFFER)
