"""Find values, and parts of arrays, to view, or make copies of them: for `UcxStore.view`.

What must be asked or waited for on the way is a step, which is yielded. So the same functions serve
those who block and those who do not: `Viewing.run_sync` and `Viewing.run` take their steps.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ucxstore.base.counters import Counters
from ucxstore.base.errors import NotMappedError
from ucxstore.base.options import Map
from ucxstore.base.zarr_compat import sync
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.channel import Channel
from ucxstore.client.requests import Found, Request
from ucxstore.client.view import View, read_only

if TYPE_CHECKING:
    from ucxstore.base.zarr_compat import AsyncArray

# Of a value: no bytes. If it can be seen from here, the answer is that from then on it is.
_NO_BYTES: list[NativeRange] = [(1, 0, 0)]

type Step = Request[Any] | Callable[[], Any] | Coroutine[Any, Any, Any]
"""A request; a function that may wait for the disk; or what zarr does without blocking."""

type Steps[T] = Generator[Step, Any, T]


class Viewing:
    """Views of values at the servers of a store.

    Parameters
    ----------
    channel : Channel
    counters : Counters
        Where values and bytes are counted.
    mapping : {"auto", True, False}
        Whether values are mapped: see `UcxStore.view`.
    files : bool
        Whether that may be from files.
    """

    def __init__(self, channel: Channel, counters: Counters, mapping: Map, *, files: bool) -> None:
        self._channel = channel
        self._counters = counters
        self._mapping = mapping
        self._files = files

    def run_sync[T](self, steps: Steps[T]) -> T:
        """Take steps, blocking, and return what they come to."""
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return cast(T, end.value)
            if isinstance(step, Request):
                answer = self._channel.ask_sync(step)
            else:
                answer = step() if callable(step) else sync(step)

    async def run[T](self, steps: Steps[T]) -> T:
        """Do as `run_sync`, without blocking the event loop."""
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return cast(T, end.value)
            if isinstance(step, Request):
                answer = await self._channel.ask(step)
            else:
                answer = await (asyncio.to_thread(step) if callable(step) else step)

    def value(self, key: str) -> Steps[View | None]:
        """View a whole value; ``None`` if it is missing."""
        if self._mapping is not False:
            found = self._held(key)
            if found is None:
                (answer,) = yield requests.get([key], [_NO_BYTES])
                if answer is None:
                    return None
                found = yield from self._after_asking(lambda waits: self._held(key, waits=waits))
            if found is not None:
                self._counters.add(bytes_read=found.size, mapped=1)
                return View(found, mapped=True)
            self._check_may_copy(key)
        (copied,) = yield requests.get([key], [[]])
        return self._copy(copied)

    def part(self, array: "AsyncArray[Any]", selection: Any) -> Steps[View]:
        """View a part of an array."""
        if self._mapping is not False:
            view = self._part(array, selection)
            if not isinstance(view, View):
                yield requests.get(view, [_NO_BYTES] * len(view))
                view = yield from self._after_asking(
                    lambda waits: self._part(array, selection, waits=waits)
                )
            if isinstance(view, View):
                return view
            self._check_may_copy(view[0])
        return View(read_only(np.asarray((yield array.getitem(selection)))), mapped=False)

    def _after_asking[T](self, look: Callable[[bool], T]) -> Steps[T]:
        """Look once more; files may be waited for."""
        if self._files:
            found: T = yield lambda: look(True)
            return found
        return look(False)

    def _held(self, key: str, *, waits: bool = False) -> npt.NDArray[np.uint8] | None:
        """Return a value without a copy, if it can be seen from here.

        Parameters
        ----------
        key : str
        waits : bool
            Whether it may be a file that the disk must be asked for.
        """
        found = self._channel.hold(key)
        if found is None and self._files:
            found = self._channel.map_file(key, waits=waits)
        return found

    def _part(
        self, array: "AsyncArray[Any]", selection: Any, *, waits: bool = False
    ) -> View | Sequence[str]:
        """Return a view of a part of an array, or the keys of the chunks that are not seen here."""
        from ucxstore.pipeline.chunk_view import empty_of, locate

        part = locate(array, selection)
        if part is None:
            return View(read_only(empty_of(array, selection)), mapped=True)
        values = {key: self._held(key, waits=waits) for key in part.keys}
        there = [value for value in values.values() if value is not None]
        if len(there) < len(values):
            return [key for key, value in values.items() if value is None]
        viewed = part.of(there)
        if viewed is None:
            return part.keys
        self._counters.add(bytes_read=sum(value.size for value in there), mapped=len(there))
        return View(viewed, mapped=True)

    def _copy(self, found: Found | None) -> View | None:
        if found is None:
            return None
        data, *_ = found
        self._counters.add(bytes_read=data.size, staged_bytes=data.size)
        return View(read_only(data), mapped=False)

    def _check_may_copy(self, key: str) -> None:
        if self._mapping is True:
            raise NotMappedError(
                f"{key!r} cannot be mapped. Perhaps it is missing; or its server is on another "
                "host, is reached over TCP or UCX, or has it in a file (map_files=True maps "
                "files); or clients hold as much as mapped_limit allows; or this process has "
                "mapped so much that it keeps the rest of its mappings for others"
            )
