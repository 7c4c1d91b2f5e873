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
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr.registry import register_ndbuffer

from ucxstore.base.zarr_compat import NDArrayLike, cpu

if TYPE_CHECKING:
    from ucxstore._core import ResultMemory

NDBUFFER = "ucxstore.pipeline.recycling.RecyclingNDBuffer"
ENVIRONMENT = "UCXSTORE_RECYCLE_BYTES"

# Smaller arrays come from the heap, which keeps its pages anyway.
_RECYCLE_ABOVE = 1 << 20

# Values may be mapped into larger ones, in place of being copied.
_MAP_ABOVE = 8 << 20


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
        from ucxstore.base.native import core  # not before it is needed

        memory = core.ResultMemory(nbytes) if nbytes >= _MAP_ABOVE else None
        values = core.allocate(nbytes) if memory is None else memory.array()
        array: npt.NDArray[Any] = np.ndarray(shape, parsed, values, order=order)
        made = cls(cast(NDArrayLike, array))
        made._fresh = memory
        return made

    # The memory of a result that nobody has written to yet.
    _fresh: "ResultMemory | None" = None


def take_fresh_memory(values: object) -> "ResultMemory | None":
    """Return the memory of a result that is read into for the first time, and only then.

    What is read into it once more, its user keeps for that: there a copy is better.
    """
    if not isinstance(values, RecyclingNDBuffer):
        return None
    memory, values._fresh = values._fresh, None
    return memory


def select_recycling() -> None:
    """Let zarr read into recycled memory, unless another buffer class is configured."""
    default = zarr.config.defaults[0]["ndbuffer"]
    if zarr.config.get("ndbuffer") == default and os.environ.get(ENVIRONMENT, "").strip() != "0":
        zarr.config.set({"ndbuffer": NDBUFFER})


register_ndbuffer(RecyclingNDBuffer, qualname=NDBUFFER)
