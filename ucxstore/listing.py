"""What moves no values: listings, sizes, deletions. A round trip each, or one a page."""

from collections.abc import AsyncIterator, Sequence
from typing import Self

from ucxstore.base import Start, StoreBase
from ucxstore.errors import AddressError
from ucxstore.options import check_timeout, parse_size
from ucxstore.scratch import DEFAULT_TIMEOUT, Scratch
from ucxstore.stats import ServerStats, parse_server_stats


class Listing(StoreBase):
    """What `ucxstore.UcxStore` asks of its server, but for values."""

    supports_listing: bool = True
    supports_deletes: bool = True

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        if _starts_a_key(prefix):
            skip = len(self.key_prefix)
            async for page in self._pages(prefix, delimited=False):
                for key in page:
                    yield key[skip:]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = _as_folder(prefix.rstrip("/"))
        if _starts_a_key(folder):
            async for page in self._pages(folder, delimited=True):
                for name in page:
                    yield name

    async def is_empty(self, prefix: str) -> bool:
        keys, _ = await self._measure(prefix, any=True)
        return keys == 0

    async def measure(self, prefix: str = "") -> tuple[int, int]:
        """Return how many keys are under a prefix, and the bytes of their values."""
        if await self._keeps_copies():
            return await self._measure_each(_as_folder(prefix))
        return await self._measure(prefix, any=False)

    async def getsize_prefix(self, prefix: str) -> int:
        _, size = await self.measure(prefix)
        return size

    async def exists(self, key: str) -> bool:
        (size,) = await self.getsizes([key])
        return size is not None

    async def getsize(self, key: str) -> int:
        (size,) = await self.getsizes([key])
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def getsizes(self, keys: Sequence[str]) -> Sequence[int | None]:
        """Return the sizes of many values, in bytes, in one request; ``None`` for missing keys."""
        full = [self._full_key(key) for key in keys]
        if not full:
            return []
        sizes = await self._run(self._stat(full))
        return [int(size) if size >= 0 else None for size in sizes]

    def ping_sync(self) -> None:
        """Ask the server for nothing, and wait for its answer: one round trip."""
        self._run_sync(lambda to, done: to.ping(self.timeout, done))

    async def server_stats(self) -> ServerStats:
        """Return what the server has counted since it was started, whoever its clients were.

        Raises
        ------
        AddressError
            If the store has several servers: each has counters of its own.
        ProtocolError
            If it answers with what these counters are not.
        """
        if len(self._address.servers) > 1:
            raise AddressError(f"{self}: several servers; ask each by its own address")
        text = await self._run(lambda to, done: to.stats(self.timeout, done))
        return parse_server_stats(text)

    def scratch(self, quota: int | str, timeout: float = DEFAULT_TIMEOUT) -> Scratch[Self]:
        """Make a scratch space at the store's servers, for values that nobody needs for long.

        It lies beside what the servers serve, in the memory that they offer for that: servers of
        memory do, within their limit, and others as `Server(scratch=...)` says. It is under a name
        that cannot be guessed, whatever this store's prefix. It blocks until all have it.

        Parameters
        ----------
        quota : int or str
            Bytes that values in it may take, such as ``"8GiB"``; a write beyond that raises
            `StorageError`. A value that is replaced counts until the new one is there, and one that
            is read until it has been sent. One server keeps to it exactly. Of several, each takes
            up to twice its share of it, since keys are placed by their hash and not by what is
            free: so with very few, large values one may refuse before the quota is reached, and all
            together can hold up to twice as much.
        timeout : float
            Seconds after which the servers end it if its owner has not been heard of: this process
            was killed, stopped, or cut off. A thread tells them that it is there, four times as
            often. Nothing that is read or written keeps a space alive.

        Returns
        -------
        Scratch
            A context manager, whose `store` returns stores; leaving it frees what is there. After
            that, they raise `ScratchEndedError`.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable.
        ConnectError
            If one of the servers cannot be reached.
        StorageError
            If one offers no scratch space.

        Examples
        --------
        >>> with store.scratch("8GiB") as scratch:  # doctest: +SKIP
        ...     zarr.create_array(scratch.store("rechunked"), ...)
        """
        size = parse_size("quota", quota)
        if size < 1:
            raise ValueError(f"quota: {quota!r} is less than a byte")
        return Scratch(self, size, check_timeout("timeout", timeout))

    async def delete(self, key: str) -> None:
        await self._run(self._delete(key))

    def delete_sync(self, key: str) -> None:
        """Do as `delete`, blocking."""
        self._run_sync(self._delete(key))

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        folder = _as_folder(prefix)
        if _starts_a_key(folder):
            full = self.key_prefix + folder
            await self._run(lambda to, done: to.delete_prefix(full, self.timeout, done))

    async def clear(self) -> None:
        await self.delete_dir("")

    async def _measure(self, prefix: str, *, any: bool) -> tuple[int, int]:
        """Return how many keys are under a prefix, and their bytes; with `any`, of one at most."""
        folder = _as_folder(prefix)
        if not _starts_a_key(folder):
            return 0, 0
        full = self.key_prefix + folder
        keys, size = await self._run(lambda to, done: to.measure(full, any, self.timeout, done))
        return keys, size

    async def _measure_each(self, folder: str) -> tuple[int, int]:
        """Measure key by key, so that copies of one count once."""
        keys = total = 0
        if _starts_a_key(folder):
            async for page in self._pages(folder, delimited=False):
                if page:
                    sizes = await self._run(self._stat(page))
                    keys += sum(size >= 0 for size in sizes)
                    total += sum(size for size in sizes if size > 0)
        return keys, total

    async def _pages(self, prefix: str, *, delimited: bool) -> AsyncIterator[Sequence[str]]:
        """Yield the names under a prefix in order, as many at a time as a reply holds."""
        full = self.key_prefix + prefix
        cursor = ""
        while True:
            names, cursor = await self._run(self._page(full, delimited, cursor))
            yield names
            if not cursor:
                return

    def _page(self, full: str, delimited: bool, cursor: str) -> Start:
        return lambda to, done: to.list_page(full, delimited, cursor, self.timeout, done)

    def _stat(self, full: Sequence[str]) -> Start:
        return lambda to, done: to.stat(full, self.timeout, done)

    def _delete(self, key: str) -> Start:
        self._check_writable()
        full = [self._full_key(key)]
        return lambda to, done: to.delete(full, self.timeout, done)


def _as_folder(prefix: str) -> str:
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


def _starts_a_key(prefix: str) -> bool:
    """Tell whether any key can start with `prefix`: zarr asks for "/" too, which none does."""
    *folders, _ = prefix.split("/")
    return "\0" not in prefix and not any(part in {"", ".", ".."} for part in folders)
