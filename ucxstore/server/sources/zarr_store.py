"""A source in any zarr store."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from zarr.abc.store import Store

from ucxstore.base.keys import RESERVED_FOLDER, is_reserved
from ucxstore.base.zarr_compat import cpu
from ucxstore.server.options.server_options import DEFAULT_SOURCE_TIMEOUT
from ucxstore.server.sources.doubts import Doubts
from ucxstore.server.sources.source import (
    FoundValue,
    Head,
    ListedPage,
    Memory,
    Moved,
    Part,
    Smallest,
    UnknownEndError,
    is_listed,
    paged,
    parent_of,
    unheard,
)

# Keys that are deleted after each listing.
_MOST_KEYS = 10_000


class ZarrSource:
    """A zarr store as a source. From now on only the server's event loop may use the store.

    A zarr store has no entity tags, so values are fetched whole.

    Parameters
    ----------
    store : Store
        A store of zarr's.
    timeout : float
        Seconds for which a change is in doubt, once it was given up.
    """

    has_parts = False

    def __init__(self, store: Store, timeout: float = DEFAULT_SOURCE_TIMEOUT) -> None:
        self._store = store
        self.doubts = Doubts(timeout)
        # By key, for as long as somebody holds or waits for it.
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: str, part: Part | None, known: str = "") -> FoundValue | None:
        if part is not None or known:
            raise NotImplementedError("zarr stores have no parts and no entity tags")
        value = await self._store.get(key, cpu.buffer_prototype)
        return None if value is None else FoundValue(value.as_numpy_array(), "", len(value))

    async def head(self, key: str) -> Head | None:
        try:
            return Head(await self._store.getsize(key), "")
        except FileNotFoundError:
            return None

    async def put(
        self, key: str, value: Memory, *, if_absent: bool, wanted: Callable[[], None] = unheard
    ) -> str | None:
        wanted()
        return await self.doubts.follow([key], _told(self._put(key, value, if_absent=if_absent)))

    async def _put(self, key: str, value: Memory, *, if_absent: bool) -> str | None:
        # The store may keep the memory, since nobody changes it.
        buffer = cpu.Buffer.from_array_like(value)
        if not if_absent:
            await self._store.set(key, buffer)
            return ""
        # set_if_not_exists does not tell whether it has written, so look first.
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.Lock()
        async with making:
            if await self._store.exists(key):
                return None
            await self._store.set_if_not_exists(key, buffer)
            return ""

    async def remove(self, keys: Sequence[str]) -> None:
        await self.doubts.follow(keys, _told(self._remove(keys)))

    async def _remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):  # some stores raise for a missing key
                await self._store.delete(key)

    async def remove_prefix(self, prefix: str, moved: Moved = unheard) -> int:
        count = 0
        keys: list[str] = []
        while True:
            # Not while the store lists them: few stores say what a listing is then.
            found = await self._first(prefix, moved)
            if found and found == keys:
                raise RuntimeError(f"{found[0]!r} is still there after it was deleted")
            keys = found
            for key in keys:
                moved()
                await self.remove([key])
            count += len(keys)
            if len(keys) < _MOST_KEYS:
                return count

    async def measure(
        self, prefix: str, *, any_key: bool, moved: Moved = unheard
    ) -> tuple[int, int]:
        keys = nbytes = 0
        async for key in self._listed(prefix):
            head = await self.head(key)
            moved()
            if head is not None:
                keys, nbytes = keys + 1, nbytes + head.size
                if any_key:
                    break
        return keys, nbytes

    async def list_page(
        self, prefix: str, *, delimited: bool, cursor: str, room: int, moved: Moved = unheard
    ) -> ListedPage:
        if delimited:
            found = [name async for name in self._store.list_dir(parent_of(prefix))]
            return paged(sorted({name.rstrip("/") for name in found}), cursor, room)
        names = Smallest(cursor, room)
        async for key in self._listed(prefix):
            if is_listed(key, cursor):
                names.add(key)
            moved()
        return names.page()

    async def list_reserved(self) -> list[str]:
        return [key async for key in self._store.list_prefix(RESERVED_FOLDER)]

    async def check(self) -> None:
        """Ask nothing: whoever has made the store has used it, and it may have no listings."""

    def explain(self, error: BaseException) -> str:
        return f"{self._store}: {type(error).__name__}: {error}"

    async def _first(self, prefix: str, moved: Moved) -> list[str]:
        keys: list[str] = []
        async for key in self._listed(prefix):
            keys.append(key)
            moved()
            if len(keys) == _MOST_KEYS:
                break
        return keys

    async def _listed(self, prefix: str) -> AsyncIterator[str]:
        # Some stores treat the prefix as a directory, so list its directory and filter.
        parent = parent_of(prefix)
        try:
            async for key in self._store.list_prefix(f"{parent}/" if parent else ""):
                if key.startswith(prefix) and not is_reserved(key):
                    yield key
        except _refusals():
            if not parent:
                raise
            # It lists groups and arrays alone, and this may be neither.
            async for key in self._store.list_prefix(""):
                if key.startswith(prefix):
                    yield key


def _refusals() -> tuple[type[Exception], ...]:
    """Return what a store raises that does not take each prefix: icechunk's."""
    if "icechunk" not in sys.modules:
        return ()
    from icechunk import IcechunkError

    return (IcechunkError,)


async def _told[T](change: Coroutine[object, object, T]) -> T:
    """Carry out a change, and tell a failure after which nobody knows whether it was made."""
    try:
        return await change
    except (ConnectionError, TimeoutError) as error:
        raise UnknownEndError(f"{type(error).__name__}: {error}") from error
