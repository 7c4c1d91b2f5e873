"""`Listing`: which keys a store has, and how large their values are."""

from collections.abc import AsyncIterator, Sequence

from ucxstore.client import requests
from ucxstore.client.channel import Channel
from ucxstore.client.keyspace import Keyspace


class Listing:
    """Keys and sizes of a store's values, as its servers list them.

    Parameters
    ----------
    channel : Channel
    keyspace : Keyspace
    """

    def __init__(self, channel: Channel, keyspace: Keyspace) -> None:
        self._channel = channel
        self._keyspace = keyspace

    async def keys(self, prefix: str) -> AsyncIterator[Sequence[str]]:
        """Yield the keys that begin with a prefix in order, page by page."""
        full = self._keyspace.beginning(prefix)
        if full is not None:
            skip = len(self._keyspace.prefix)
            async for page in self._pages(full, delimited=False):
                yield [key[skip:] for key in page]

    async def names(self, path: str) -> AsyncIterator[Sequence[str]]:
        """Yield the names of the keys and folders in a folder in order, page by page."""
        full = self._keyspace.folder(path)
        if full is not None:
            async for page in self._pages(full, delimited=True):
                yield page

    async def measure(self, path: str) -> tuple[int, int]:
        """Return how many keys are in a folder, and the bytes of their values."""
        await self._channel.open()
        if not self._channel.keeps_copies:
            return await self._measure(path, any=False)
        # Key by key, so that copies of one count once.
        keys = total = 0
        full = self._keyspace.folder(path)
        if full is not None:
            async for page in self._pages(full, delimited=False):
                if page:
                    sizes = await self._channel.ask(requests.stat(page))
                    keys += sum(size >= 0 for size in sizes)
                    total += sum(size for size in sizes if size > 0)
        return keys, total

    async def is_empty(self, path: str) -> bool:
        """Return whether there is no key in a folder."""
        keys, _ = await self._measure(path, any=True)
        return keys == 0

    async def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Return the sizes of values, in bytes, by one request; ``None`` for missing keys."""
        full = [self._keyspace.full_key(key) for key in keys]
        if not full:
            return []
        sizes = await self._channel.ask(requests.stat(full))
        return [int(size) if size >= 0 else None for size in sizes]

    async def _measure(self, path: str, *, any: bool) -> tuple[int, int]:
        full = self._keyspace.folder(path)
        if full is None:
            return 0, 0
        return await self._channel.ask(requests.measure(full, any=any))

    async def _pages(self, full: str, *, delimited: bool) -> AsyncIterator[Sequence[str]]:
        """Yield the names under a prefix, as many at a time as a reply holds."""
        cursor = ""
        while True:
            page = requests.list_page(full, delimited=delimited, cursor=cursor)
            names, cursor = await self._channel.ask(page)
            yield names
            if not cursor:
                return
