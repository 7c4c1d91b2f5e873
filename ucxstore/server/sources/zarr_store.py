"""A source in any zarr store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from zarr.abc.store import Store

from ucxstore.server.sources.source import Found, Head, Memory, Page, Part, paged, parent_of
from ucxstore.zarr_compat import cpu


class ZarrSource:
    """A zarr store as a source. From now on only the server's event loop may use the store.

    A zarr store has no entity tags, so values are fetched whole.

    Parameters
    ----------
    store : Store
        A store of zarr's.
    """

    has_parts = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._making = asyncio.Lock()

    async def get(self, key: str, part: Part | None, known: str = "") -> Found | None:
        if part is not None or known:
            raise NotImplementedError("zarr stores have no parts and no entity tags")
        value = await self._store.get(key, cpu.buffer_prototype)
        return None if value is None else Found(value.as_numpy_array(), "", len(value))

    async def head(self, key: str) -> Head | None:
        try:
            return Head(await self._store.getsize(key), "")
        except FileNotFoundError:
            return None

    async def put(self, key: str, value: Memory, *, if_absent: bool) -> str | None:
        # The store may keep the memory, since nobody changes it.
        buffer = cpu.Buffer.from_array_like(value)
        if not if_absent:
            await self._store.set(key, buffer)
            return ""
        # set_if_not_exists does not tell whether it has written, so look first.
        async with self._making:
            if await self._store.exists(key):
                return None
            await self._store.set_if_not_exists(key, buffer)
            return ""

    async def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):  # some stores raise for a missing key
                await self._store.delete(key)

    async def remove_prefix(self, prefix: str) -> int:
        keys = [key async for key in self._listed(prefix)]
        await self.remove(keys)
        return len(keys)

    async def measure(self, prefix: str, *, any_key: bool) -> tuple[int, int]:
        keys = nbytes = 0
        async for key in self._listed(prefix):
            head = await self.head(key)
            if head is not None:
                keys, nbytes = keys + 1, nbytes + head.size
                if any_key:
                    break
        return keys, nbytes

    async def list_page(self, prefix: str, *, delimited: bool, cursor: str, room: int) -> Page:
        if delimited:
            found = [name async for name in self._store.list_dir(parent_of(prefix))]
            return paged(sorted({name.rstrip("/") for name in found}), cursor, room)
        return paged(sorted([key async for key in self._listed(prefix)]), cursor, room)

    def explain(self, error: BaseException) -> str:
        return f"{self._store}: {type(error).__name__}: {error}"

    async def _listed(self, prefix: str) -> AsyncIterator[str]:
        # Some stores treat the prefix as a directory, so list its directory and filter.
        parent = parent_of(prefix)
        async for key in self._store.list_prefix(f"{parent}/" if parent else ""):
            if key.startswith(prefix):
                yield key
