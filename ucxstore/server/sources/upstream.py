"""A source at other ucxstore servers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from ucxstore.base.address import Address
from ucxstore.base.counters import Counters
from ucxstore.base.errors import (
    ConnectError,
    OperationCancelledError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreadableFolderError,
)
from ucxstore.base.keys import is_reserved
from ucxstore.base.options import ClientOptions
from ucxstore.base.showing import one_line
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.identities import Identities
from ucxstore.client.memory import readable_view
from ucxstore.client.requests import ANY_VERSION
from ucxstore.cluster.channels import channel_over, connectors_to
from ucxstore.server.sources.doubts import Doubts
from ucxstore.server.sources.joined_gets import JoinedGets
from ucxstore.server.sources.source import (
    ChangedError,
    FoundValue,
    Head,
    ListedPage,
    Memory,
    Moved,
    Part,
    UnchangedError,
    UnknownEndError,
    is_listed,
    paged,
    unheard,
)
from ucxstore.server.sources.upstream_records import (
    TooLargeError,
    Upstream,
    UpstreamRecords,
    identities_of,
)

# Which key tells whether values can be read.
_ASKED = "zarr.json"

# A request for no bytes: its answer has the value's size and version.
_NOTHING: NativeRange = (1, 0, 0)

# Keys that one request removes, or is asked about.
_MOST_KEYS = 1000

# How often a request that takes long is looked at.
_LOOK_SECONDS = 0.1

# A note that does not fit into a record says that any key may change.
_ANY_KEY = b'{"keys": [], "prefixes": [""]}'


class UpstreamSource:
    """The values below a prefix of other servers. Their versions are the entity tags.

    Parameters
    ----------
    address : Address
    options : ClientOptions
        How the servers are reached. The `timeout` is also for how long a change is in doubt, once
        it was given up.
    """

    has_parts = True

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.doubts = Doubts(options.timeout)
        self._address = address
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        connectors = connectors_to(address.servers, options)
        identities = Identities(address.servers)
        counters = Counters()
        self._channel = channel_over(connectors, identities, counters, options)
        self._gets = JoinedGets(self._channel.ask)
        self._looks = JoinedGets(self._channel.ask)
        self._upstreams = {
            server: Upstream(one, channel_over({server: one}, identities, counters, options))
            for server, one in connectors.items()
        }
        self._records = UpstreamRecords(self._upstreams, address.prefix)

    @property
    def prefix(self) -> str:
        """The prefix of all keys at the servers, without a slash at its end."""
        return self._address.prefix

    @property
    def identities(self) -> list[bytes]:
        """The identities of the storages behind the servers, once these have been reached."""
        return identities_of(self._upstreams)

    # ---- reading ----

    async def get(self, key: str, part: Part | None, known: str = "") -> FoundValue | None:
        if is_reserved(key):
            record = await self._records.get(key)
            return None if record is None else FoundValue(record, "", len(record))
        if known:
            head = await self.head(key)
            if head is None:
                return None
            if head.etag == known:
                raise UnchangedError
        ranges: list[NativeRange] = [] if part is None else [(1, part.begin, part.end)]
        version = int(part.if_match, 16) if part is not None and part.if_match else ANY_VERSION
        found = await self._gets.get(self._prefix + key, ranges, version)
        if found is None:
            return None
        data, size, version = found
        if data is None:
            raise ChangedError
        return FoundValue(data, _tag_of(version), size)

    async def head(self, key: str) -> Head | None:
        found = await self._looks.get(self._prefix + key, [_NOTHING])
        return None if found is None else Head(found[1], _tag_of(found[2]))

    # ---- changes ----

    async def put(
        self, key: str, value: Memory, *, if_absent: bool, wanted: Callable[[], None] = unheard
    ) -> str | None:
        if is_reserved(key):
            await self._keep(key, value.tobytes())
            return ""
        wanted()
        send = requests.add if if_absent else requests.set
        request = send([self._prefix + key], [readable_view(value)])
        sent = _told(self._channel.ask(request))
        (written,) = await self.doubts.follow([key], sent)
        # Nobody says which version it has got, and by now the key may have another value.
        return "" if written else None

    async def _keep(self, path: str, data: bytes) -> None:
        try:
            await self._records.put(path, data)
        except TooLargeError:
            await self._records.put(path, _ANY_KEY)

    async def remove(self, keys: Sequence[str]) -> None:
        if any(map(is_reserved, keys)):
            for key in keys:
                await self._records.remove(key)
            return
        for begin in range(0, len(keys), _MOST_KEYS):
            some = keys[begin : begin + _MOST_KEYS]
            request = requests.delete([self._prefix + key for key in some])
            await self.doubts.follow(some, _told(self._channel.ask(request)))

    async def remove_prefix(self, prefix: str, moved: Moved = unheard) -> int:
        count = 0
        async for keys in self._listed(prefix, moved):
            for begin in range(0, len(keys), _MOST_KEYS):
                moved()
                await self.remove(keys[begin : begin + _MOST_KEYS])
            count += len(keys)
        return count

    # ---- listings ----

    async def measure(
        self, prefix: str, *, any_key: bool, moved: Moved = unheard
    ) -> tuple[int, int]:
        await self._channel.open()
        if not self._channel.keeps_copies:
            request = requests.measure(self._prefix + prefix, any=any_key)
            keys, nbytes, unreadable = await _watched(self._channel.ask(request), moved)
            if not (any_key and keys):
                _refuse(unreadable)
            return keys, nbytes
        keys = nbytes = 0  # of the copies of metadata, one counts
        async for page in self._listed(prefix, moved):
            for begin in range(0, len(page), _MOST_KEYS):
                some = page[begin : begin + _MOST_KEYS]
                sizes = await self._channel.ask(requests.stat([self._prefix + key for key in some]))
                found = [size for size in sizes if size >= 0]
                keys, nbytes = keys + len(found), nbytes + sum(found)
                moved()
            if any_key and keys:
                break
        return keys, nbytes

    async def list_page(
        self, prefix: str, *, delimited: bool, cursor: str, room: int, moved: Moved = unheard
    ) -> ListedPage:
        if delimited:
            names: set[str] = set()
            async for some in self._pages(prefix, moved, delimited=True):
                names.update(some)
            return paged(sorted(names), cursor, room)
        start = self._prefix + cursor if cursor else ""
        found, following = await self._page(prefix, start, moved, delimited=False)
        page = paged(found, cursor, room)
        if page.cursor or not following:
            return page
        return ListedPage(page.names, following.removeprefix(self._prefix))

    async def _listed(self, prefix: str, moved: Moved) -> AsyncIterator[list[str]]:
        """Yield the keys that begin with a prefix, page by page."""
        async for names in self._pages(prefix, moved, delimited=False):
            yield [name for name in names if is_listed(name, "")]

    async def _pages(
        self, prefix: str, moved: Moved, *, delimited: bool
    ) -> AsyncIterator[list[str]]:
        cursor = ""
        while True:
            names, cursor = await self._page(prefix, cursor, moved, delimited=delimited)
            yield names
            if not cursor:
                return

    async def _page(
        self, prefix: str, cursor: str, moved: Moved, *, delimited: bool
    ) -> tuple[list[str], str]:
        """Return the names of a page, and the servers' cursor of the next one."""
        request = requests.list_page(self._prefix + prefix, delimited=delimited, cursor=cursor)
        names, following, unreadable = await _watched(self._channel.ask(request), moved)
        _refuse(unreadable)
        if not delimited:
            names = [name.removeprefix(self._prefix) for name in names]
        return names, following

    async def list_reserved(self) -> list[str]:
        return await self._records.list_paths()

    # ---- the servers ----

    async def check(self) -> None:
        try:
            await self._channel.open()
            await self.head(_ASKED)
        except ConnectError as error:
            if error.reached:  # it answers, and cannot be used
                raise StorageError(str(error)) from error
            raise

    def explain(self, error: BaseException) -> str:
        if isinstance(error, UnknownEndError) and error.__cause__ is not None:
            error = error.__cause__
        return f"{self._address}: {type(error).__name__}: {one_line(error)}"


def _tag_of(version: int) -> str:
    return f"{version:016x}"


def _refuse(unreadable: Sequence[str]) -> None:
    if unreadable:
        folders = ", ".join(map(repr, unreadable))
        raise UnreadableFolderError(f"the servers' user may not open {folders}")


async def _told[T](change: Coroutine[object, object, T]) -> T:
    """Carry out a change, and tell a failure after which nobody knows whether it was made."""
    try:
        return await change
    except (UnknownOutcomeError, StoreClosedError, OperationCancelledError) as error:
        raise UnknownEndError(str(error)) from error


async def _watched[T](request: Coroutine[object, object, T], moved: Moved) -> T:
    """Wait for a request that may take long, as long as its servers say that it goes on.

    The client's own timeout ends it where they do not.
    """
    sent = asyncio.ensure_future(request)
    try:
        while not (await asyncio.wait({sent}, timeout=_LOOK_SECONDS))[0]:
            moved()
    except BaseException:
        sent.cancel()
        await asyncio.wait({sent})
        raise
    return sent.result()
