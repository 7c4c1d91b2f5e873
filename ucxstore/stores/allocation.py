"""`Allocation`: memory for a value, which a program fills and then commits to its store."""

import asyncio
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ucxstore.base import process
from ucxstore.client import requests
from ucxstore.client.memory import readable_view
from ucxstore.client.requests import Request
from ucxstore.pipeline.access import access_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ucxstore import _core
    from ucxstore.stores.store import UcxStore


class Allocation:
    """Memory for a value, to be filled and then committed. A context manager, and a buffer.

    `ucxstore.UcxStore.allocate` makes it. Until it is committed, nobody else finds the value. If it
    is left, dropped or collected before that, nothing is stored.

    A server of the same host, with the option ``local``, takes large values over without a copy. It
    does so only once the kernel has made sure that nobody can write to them any more. For any other
    server, and where that cannot be made sure, `commit` sends the value as `ucxstore.UcxStore.set`
    does. In both cases the value is what was in the memory when it was committed. The program may
    go on using arrays of it: what it writes to them later changes nothing in the store.

    Attributes
    ----------
    key : str
    nbytes : int
    """

    def __init__(
        self, store: "UcxStore", key: str, full_key: str, memory: "_Memory | _core.Allocation"
    ) -> None:
        self.key = key
        self._store = store
        self._full_key = full_key
        self._file = None if isinstance(memory, np.ndarray) else memory
        self._array: npt.NDArray[np.uint8] | None = (
            memory if isinstance(memory, np.ndarray) else memory.array
        )
        self.nbytes: int = self.array.nbytes
        self._was_tried = False
        self._pid = os.getpid()
        process.in_child(self._leave_to_parent)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The memory, as bytes that can be written. What is in it at first is undefined.

        Raises
        ------
        ValueError
            If it was committed or dropped.
        """
        if self._array is None:
            raise ValueError(f"the allocation for {self.key!r} was committed or dropped")
        return self._array

    def view(
        self, dtype: npt.DTypeLike, shape: "int | Sequence[int] | None" = None
    ) -> npt.NDArray[Any]:
        """Return the memory as an array of another dtype and shape.

        Parameters
        ----------
        dtype : dtype_like
        shape : int or sequence of int, optional
            In C order; one axis by default.

        Raises
        ------
        ValueError
            If the memory is not of that size, or was committed or dropped.
        """
        array: npt.NDArray[Any] = self.array.view(dtype)
        return array if shape is None else array.reshape(shape)

    async def commit(self, *, if_absent: bool = False) -> bool:
        """Store the value under its key.

        When it returns, every reader finds the value. After a failure it can be called again.

        Parameters
        ----------
        if_absent : bool
            Only if the key has no value.

        Returns
        -------
        bool
            Whether the value was written: ``False`` only with `if_absent`.

        Raises
        ------
        ValueError
            If it was committed or dropped.
        RuntimeError
            In a forked child of the process that made it.
        """
        request = self._begin(if_absent)
        array, self._array = self._array, None
        try:
            if self._file is not None:
                await asyncio.to_thread(self._file.seal)  # else a request would, and block the loop
            written = await access_to(self._store).channel.ask(request)
        except BaseException:
            self._array = array
            raise
        return self._end(written)

    def commit_sync(self, *, if_absent: bool = False) -> bool:
        """Do as `commit`, blocking."""
        request = self._begin(if_absent)
        array, self._array = self._array, None
        try:
            written = access_to(self._store).channel.ask_sync(request)
        except BaseException:
            self._array = array
            raise
        return self._end(written)

    def drop(self) -> None:
        """Give it up: nothing is stored. Does nothing if it was committed or dropped."""
        self._array = None
        if self._file is not None:
            self._file.let_go()
            self._file = None

    def _begin(self, if_absent: bool) -> Request[list[bool]]:
        value = readable_view(self.array)
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the allocation for {self.key!r} belongs to the process that made it, and this "
                "is a forked child of that process"
            )
        # What was written since a first attempt is in the memory, and not in the file.
        file = None if self._was_tried else self._file
        self._was_tried = True
        return requests.commit(self._full_key, value, file, if_absent=if_absent)

    def _end(self, written: "Sequence[bool]") -> bool:
        self.drop()
        (was_written,) = written
        access_to(self._store).counters.add(bytes_written=self.nbytes if was_written else 0)
        return bool(was_written)

    def _leave_to_parent(self) -> None:
        """In a forked child: keep the bytes, and write no more where the parent does."""
        if self._file is not None:
            self._file.let_go()

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an allocation belongs to one process: pickle its store")

    def __repr__(self) -> str:
        return f"Allocation({self._store!r}, {self.key!r}, nbytes={self.nbytes})"


type _Memory = npt.NDArray[np.uint8]
