"""A source in an object store, through obstore."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotModifiedError,
    PreconditionError,
)
from obstore.store import (
    AzureStore,
    GCSStore,
    HTTPStore,
    MemoryStore,
    ObjectStore,
    S3Store,
)

from ucxstore.base import logs
from ucxstore.base.keys import RESERVED_FOLDER, is_reserved
from ucxstore.base.object_urls import open_object_store
from ucxstore.server.locations import hide_password
from ucxstore.server.options.server_options import DEFAULT_SOURCE_TIMEOUT
from ucxstore.server.sources import object_errors
from ucxstore.server.sources.conditional_puts import (
    ConditionalPuts,
    UnheededError,
    heeds_conditions,
)
from ucxstore.server.sources.doubts import Doubts
from ucxstore.server.sources.source import (
    ChangedError,
    FoundValue,
    Head,
    ListedPage,
    Memory,
    Moved,
    Part,
    Smallest,
    UnchangedError,
    UnknownEndError,
    is_listed,
    paged,
    parent_of,
    room_of,
    unheard,
)

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import RetryConfig

# Names in one step of a listing: the most that S3 returns at once.
_LISTED = 1000

# Larger values are uploaded in parts, several at once, and only a part that fails is sent again.
# Smaller values are sent whole: an interrupted upload then leaves nothing in the bucket.
_MULTIPART_ABOVE = 64 << 20
_PART_BYTES = 16 << 20

# The share of a request's time that retries may take. The rest is left to report the last error
# instead of a timeout.
_RETRY_PART = 0.5

# These list keys in order, so a page does not need all of them.
_ORDERED = (S3Store, GCSStore, AzureStore, MemoryStore)

# These have buckets or containers, which may be missing.
_CONTAINERS = (S3Store, GCSStore, AzureStore)


def open_url(url: str, timeout: float, options: Mapping[str, str]) -> ObjectStore:
    """Open the object store that a URL names.

    Parameters
    ----------
    url : str
        Such as ``s3://bucket/prefix``.
    timeout : float
        Seconds that a request may take.
    options : mapping
        The store's configuration for obstore, such as ``{"endpoint": ...}``. The rest is taken from
        the usual environment variables.

    Raises
    ------
    ValueError
        If it cannot be opened; the message starts with "storage".
    """
    retries: RetryConfig = {"retry_timeout": timedelta(seconds=timeout * _RETRY_PART)}
    try:
        return open_object_store(
            url, options, warn=partial(logs.server.warning, "%s"), retry_config=retries
        )
    except BaseException as error:
        # obstore does not document which errors this call raises. A bad option of its HTTP client
        # causes a panic, which is not an `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = hide_password(str(error).partition("\n\nDebug source:")[0])
        raise ValueError(f"storage: {hide_password(url)!r} cannot be opened: {text}") from error


class ObjectSource:
    """An object store as a source: each key is an object.

    Parameters
    ----------
    store : ObjectStore
        A store of obstore's.
    name : str
        The name in messages.
    timeout : float
        Seconds for which a change without a condition is in doubt, once it was given up.
    """

    has_parts = True

    def __init__(
        self, store: ObjectStore, name: str, timeout: float = DEFAULT_SOURCE_TIMEOUT
    ) -> None:
        self._store = store
        self._name = name
        self.doubts = Doubts(timeout)
        self._puts = ConditionalPuts(store, self.doubts) if heeds_conditions(store) else None
        self._ordered = isinstance(store, _ORDERED)
        self._may_be_missing = isinstance(store, _CONTAINERS)

    async def get(self, key: str, part: Part | None, known: str = "") -> FoundValue | None:
        options: GetOptions = {"if_none_match": known} if known else {}
        if part is not None:
            options["range"] = part.begin, part.end
            if part.if_match:
                options["if_match"] = part.if_match
        try:
            result = await obstore.get_async(self._store, key, options=options)
        except PreconditionError as error:
            raise ChangedError from error
        except NotModifiedError as error:
            raise UnchangedError from error
        except FileNotFoundError as error:
            await self._check_container(error)
            return None
        except GenericError as error:
            # An empty value has no parts, not even one that begins at 0.
            if part is None or part.begin or not object_errors.no_such_part(error):
                raise
            return await self.get(key, None, known)
        buffer = await result.bytes_async()
        self._may_be_missing = False
        if self._puts is not None:
            self._puts.saw(key, result.meta)
        return FoundValue(buffer, result.meta["e_tag"] or "", result.meta["size"])

    async def put(
        self, key: str, value: Memory, *, if_absent: bool, wanted: Callable[[], None] = unheard
    ) -> str | None:
        if self._puts is not None and (if_absent or value.nbytes <= _MULTIPART_ABOVE):
            send = self._puts.add if if_absent else self._puts.put
            try:
                put = await send(key, value, wanted)
                return None if put is None else put["e_tag"] or ""
            except UnheededError:
                logs.server.warning(
                    "%s ignores conditions, so a write that was given up delays the next one of "
                    "its key",
                    self._name,
                )
                self._puts = None
        wanted()
        sent = obstore.put_async(
            self._store,
            key,
            value,
            mode="create" if if_absent else "overwrite",
            use_multipart=not if_absent and value.nbytes > _MULTIPART_ABOVE,
            chunk_size=_PART_BYTES,
        )
        try:
            result = await self._follow([key], sent)
        except AlreadyExistsError:
            return None
        if self._puts is not None:
            self._puts.saw(key, result)
        return result["e_tag"] or ""

    async def _follow[T](self, keys: Sequence[str], sent: Awaitable[T]) -> T:
        """Wait for a change that has no condition."""

        async def told() -> T:
            try:
                return await sent
            except BaseError as error:
                if object_errors.may_have_succeeded(error):
                    ended = object_errors.has_ended(error)
                    raise UnknownEndError(str(error), ended=ended) from error
                raise

        if self._puts is not None:
            for key in keys:
                self._puts.saw(key, None)
        return await self.doubts.follow(keys, told())

    async def head(self, key: str) -> Head | None:
        try:
            meta = await obstore.head_async(self._store, key)
        except FileNotFoundError as error:
            await self._check_container(error)
            return None
        self._may_be_missing = False
        return Head(meta["size"], meta["e_tag"] or "")

    async def remove(self, keys: Sequence[str]) -> None:
        try:
            await self._follow(keys, obstore.delete_async(self._store, keys))
        except FileNotFoundError as error:
            # Some stores raise for a missing key. The other keys must be removed all the same.
            await self._check_container(error)
            if len(keys) > 1:
                for key in keys:
                    await self.remove([key])

    async def remove_prefix(self, prefix: str, moved: Moved = unheard) -> int:
        count = 0
        async for part in self._listed(prefix):
            moved()
            await self.remove([key for key, _ in part])
            count += len(part)
        return count

    async def measure(
        self, prefix: str, *, any_key: bool, moved: Moved = unheard
    ) -> tuple[int, int]:
        keys = nbytes = 0
        async for part in self._listed(prefix):
            moved()
            for _, size in part:
                keys, nbytes = keys + 1, nbytes + size
                if any_key:
                    return keys, nbytes
        return keys, nbytes

    async def list_page(
        self, prefix: str, *, delimited: bool, cursor: str, room: int, moved: Moved = unheard
    ) -> ListedPage:
        if delimited:
            found = await obstore.list_with_delimiter_async(self._store, parent_of(prefix) or None)
            paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
            names = {path[len(prefix) :] for path in paths if path.startswith(prefix)}
            return paged(sorted(names - {""}), cursor, room)
        keys = Smallest(cursor, room)
        taken = 0
        async for part in self._listed(prefix, cursor):
            moved()
            for key, _ in part:
                if is_listed(key, cursor):
                    keys.add(key)
                    taken += room_of(key)
            if self._ordered and taken > room:
                break
        return keys.page()

    async def list_reserved(self) -> list[str]:
        stream = obstore.list(self._store, RESERVED_FOLDER.rstrip("/"), chunk_size=_LISTED)
        return [entry["path"] async for entries in stream for entry in entries]

    async def check(self) -> None:
        try:
            await self._check()
        except GenericError as error:
            if object_errors.is_unreachable(error):
                raise ConnectionError(str(error)) from error
            raise

    async def _check(self) -> None:
        if isinstance(self._store, HTTPStore):
            # Plain servers of HTTP have no listings; others list all that they have at once. That
            # there is nothing, or nothing for us, is an answer.
            with suppress(FileNotFoundError):
                try:
                    await obstore.head_async(self._store, f"{RESERVED_FOLDER}check")
                except BaseError as error:
                    if not object_errors.has_ended(error):
                        raise
            return
        async for _ in obstore.list(self._store, chunk_size=1):
            break

    def explain(self, error: BaseException) -> str:
        if isinstance(error, UnknownEndError | ConnectionError) and error.__cause__ is not None:
            error = error.__cause__
        return f"{self._name}: {object_errors.explain(error)}"

    async def _listed(self, prefix: str, cursor: str = "") -> AsyncIterator[list[tuple[str, int]]]:
        """Yield keys that begin with `prefix`, from about `cursor` on, with their sizes."""
        # obstore lists what comes after the offset. The cursor itself must be listed, so the offset
        # is a little less. It must also be a path.
        offset = cursor[:-1].rstrip("/.")
        stream = obstore.list(
            self._store,
            parent_of(prefix) or None,
            offset=offset or None,
            chunk_size=_LISTED,
        )
        async for entries in stream:
            part = [(entry["path"], entry["size"]) for entry in entries]
            yield [one for one in part if one[0].startswith(prefix) and not is_reserved(one[0])]

    async def _check_container(self, error: FileNotFoundError) -> None:
        """Raise if the bucket is missing, and not only the object."""
        if object_errors.no_container(error):
            raise error
        if self._may_be_missing:
            # The answer to a HEAD has only a status. To list a missing bucket raises.
            async for _ in obstore.list(self._store, chunk_size=1):
                break
            self._may_be_missing = False
