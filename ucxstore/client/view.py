"""`View`: values in memory that others share, as arrays that cannot be written to."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin


class View(NDArrayOperatorsMixin):
    """Values that were not copied: an array over the server's memory, or over its file.

    The values stay as they are for as long as the array, or one made from it, is there: also once
    they are replaced or removed, and once the server has ended, however it did. Until then the
    server cannot use the memory for anything else, and the disk keeps the file. So let go of it:
    leave the view as a context manager, or call `close`, and keep no array of it; or drop all of
    them.

    Whatever takes arrays or buffers takes a view: ``numpy.asarray``, ``memoryview``, DLPack. It can
    be indexed and computed with as its array, and has the attributes and methods of that. Arrays
    that come of this keep the memory, where they are over it.

    Parameters
    ----------
    array : ndarray
        It cannot be written to.
    mapped : bool
        Whether it is over the server's memory, or a file. Otherwise it is a copy.
    """

    __slots__ = ("__weakref__", "_array", "_closed", "_lent", "_mapped")

    def __init__(self, array: npt.NDArray[Any], *, mapped: bool) -> None:
        self._array: npt.NDArray[Any] | None = array
        self._mapped = mapped
        self._closed = False
        self._lent = False  # whether somebody may use the address, and does not say until when

    @property
    def array(self) -> npt.NDArray[Any]:
        """The array. It cannot be written to.

        Raises
        ------
        ValueError
            If the view was closed.
        """
        if self._closed or self._array is None:
            raise ValueError("the view is closed")
        return self._array

    @property
    def mapped(self) -> bool:
        """Whether no byte was copied."""
        return self._mapped

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._closed

    def close(self) -> None:
        """Let go of the array. A second call does nothing.

        Arrays and buffers that were made from it stay as they are, and keep the memory. If
        ``__array_interface__`` was used, the view itself keeps it until it is gone.
        """
        self._closed = True
        if not self._lent:
            self._array = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- whatever takes arrays ----

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.array)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface = self.array.__array_interface__
        self._lent = True
        return interface

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.array(self.array, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a capsule; of DLPack 1.0 on, as older ones cannot say that memory is read-only."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    # ---- as an array ----

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.array, name)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = value  # raises ValueError, as any array that cannot be written to

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        def arrays(given: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(one.array if isinstance(one, View) else one for one in given)

        if "out" in options:  # it cannot be written to, which numpy says
            options["out"] = arrays(options["out"])
        return getattr(ufunc, method)(*arrays(inputs), **options)

    # ---- as an object ----

    def __len__(self) -> int:
        return len(self.array)

    def __reduce__(self) -> Any:
        raise TypeError("a view belongs to one process: send a copy of its array")

    def __repr__(self) -> str:
        if self._closed:
            return "View(closed)"
        how = "mapped" if self._mapped else "copied"
        return f"View(shape={self.array.shape}, dtype={self.array.dtype}, {how})"


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array, after making it one that cannot be written to."""
    array.flags.writeable = False
    return array
