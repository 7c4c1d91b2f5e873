"""`Listing`: which keys a store has, and how large their values are."""

from collections.abc import AsyncIterator, Callable, Sequence

from ucxstore.base.errors import UnreadableFolderError
from ucxstore.client import requests
from ucxstore.client.channel import Channel
from ucxstore.client.keyspace import Keyspace

# The folders that an error names.
_NAMED = 5


class Listing:
    """Keys and sizes of a store's values, as its servers list them.

    Parameters
    ----------
    channel : Channel
    keyspace : Keyspace
    unreadable : callable
        Called at the end of a listing from which something is missing, with the folders that a
        server's user may not open, as the server names them.
    """

    def __init__(
        self,
        channel: Channel,
        keyspace: Keyspace,
        unreadable: Callable[[Sequence[str]], object],
    ) -> None:
        self._channel = channel
        self._keyspace = keyspace
        self._unreadable = unreadable

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
            keys, total, unreadable = await self._measure(path, any=False)
            if unreadable:
                self._unreadable(unreadable)
            return keys, total
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
        keys, _, unreadable = await self._measure(path, any=True)
        if unreadable and not keys:
            self._unreadable(unreadable)
        return keys == 0

    async def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Return the sizes of values, in bytes, by one request; ``None`` for missing keys."""
        full = [self._keyspace.full_key(key) for key in keys]
        if not full:
            return []
        sizes = await self._channel.ask(requests.stat(full))
        return [int(size) if size >= 0 else None for size in sizes]

    async def _measure(self, path: str, *, any: bool) -> requests.Measured:
        full = self._keyspace.folder(path)
        if full is None:
            return 0, 0, []
        return await self._channel.ask(requests.measure(full, any=any))

    async def _pages(self, full: str, *, delimited: bool) -> AsyncIterator[Sequence[str]]:
        """Yield the names under a prefix, as many at a time as a reply holds."""
        cursor = ""
        missing: dict[str, None] = {}
        while True:
            page = requests.list_page(full, delimited=delimited, cursor=cursor)
            names, cursor, unreadable = await self._channel.ask(page)
            missing.update(dict.fromkeys(unreadable))
            yield names
            if not cursor:
                break
        if missing:
            self._unreadable(list(missing))


def refuse(where: object, unreadable: Sequence[str]) -> None:
    """Raise for a listing from which something is missing.

    Parameters
    ----------
    where : object
        What was listed, for the message.
    unreadable : sequence of str
        The folders that its server's user may not open.

    Raises
    ------
    UnreadableFolderError
    """
    named = ", ".join(repr(folder) for folder in unreadable[:_NAMED])
    if len(unreadable) > _NAMED:
        named += f" and {len(unreadable) - _NAMED} more"
    raise UnreadableFolderError(
        f"{where}: the server's user may not open {named}: what is in there is not listed"
    )
