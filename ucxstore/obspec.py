"""`ObspecStore`: a store by obspec's protocols, for VirtualiZarr and whoever else asks by them.

zarr's `Store` and obspec use the same names for other methods (`get`, `list`), so this is a class
of its own. It needs no package: obspec's protocols are matched by their names, and so are
exceptions.
"""

import asyncio
import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Buffer,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self, TypedDict

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from ucxstore.client.byte_ranges import bounds, to_native
from ucxstore.client.requests import Found
from ucxstore.errors import (
    AuthenticationError,
    GrantError,
    InvalidKeyError,
    ReadOnlyServerError,
    UcxStoreError,
)
from ucxstore.options import Reachable
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import cpu, numpy_buffer_prototype, sync

# Servers keep no times.
_NO_TIME = datetime.fromtimestamp(0, UTC)
_EVERYTHING = OffsetByteRequest(0)
_NOTHING = RangeByteRequest(0, 0)

_PAGE = 1000  # keys of a listing at once, as in object stores
_PIECE_BYTES = 8 << 20  # of a value that is iterated over
_VERSIONS = range(1, 1 << 64)

type Content = IO[bytes] | Path | Buffer | Iterable[Buffer]


class NotFoundError(UcxStoreError, FileNotFoundError):
    """No value is under the key."""


class AlreadyExistsError(UcxStoreError, FileExistsError):
    """A value is under the key already."""


class PreconditionError(UcxStoreError):
    """The value has another version than it must have."""


class NotModifiedError(UcxStoreError):
    """The value still has the version that it must not have."""


class NotSupportedError(UcxStoreError, NotImplementedError):
    """Servers do not have what was asked for: attributes, tags, times, conditional updates."""


class InvalidPathError(InvalidKeyError):
    """A key that no server accepts."""


class PermissionDeniedError(UcxStoreError, PermissionError):
    """The store, the server or the grant is read-only, or the grant does not open the key."""


class UnauthenticatedError(AuthenticationError):
    """The secret is wrong or missing."""


class ObjectMeta(TypedDict):
    """What is known of a value. `last_modified` is always 1970: servers keep no times."""

    path: str
    last_modified: datetime
    size: int
    e_tag: str | None
    version: str | None


class ListResult(TypedDict):
    """The folders and the values in a folder."""

    common_prefixes: Sequence[str]
    objects: Sequence[ObjectMeta]


class PutResult(TypedDict):
    """What is known of a value that was written: nothing."""

    e_tag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class _Received:
    """A value, or a range of it, which has been received.

    Attributes
    ----------
    meta : ObjectMeta
    range : tuple of int
        The first byte, and that after the last.
    attributes : dict
        Always empty.
    """

    meta: ObjectMeta
    range: tuple[int, int]
    _data: memoryview = field(repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        return {}

    def _pieces(self) -> Iterator[memoryview]:
        for start in range(0, len(self._data), _PIECE_BYTES):
            yield self._data[start : start + _PIECE_BYTES]


class GetResult(_Received):
    """What `ObspecStore.get` returns: iterate over it, or take all of it.

    obstore takes what can be iterated over in both ways for asynchronous, so this is one class of
    two.
    """

    def buffer(self) -> memoryview:
        """Return all of it, without a copy."""
        return self._data

    def __iter__(self) -> Iterator[memoryview]:
        return self._pieces()


class GetResultAsync(_Received):
    """What `ObspecStore.get_async` returns."""

    async def buffer_async(self) -> memoryview:
        """Return all of it, without a copy."""
        return self._data

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        for piece in self._pieces():
            yield piece


class ObspecStore:
    """The values of a `UcxStore`, read, written and listed as obspec's protocols say.

    It has `Get`, `GetRange`, `GetRanges`, `Head`, `List`, `ListWithDelimiter`, `Put`, `Delete`, and
    each of them ``Async``. Buffers are memory that the value was received into, without a copy. A
    missing value raises `NotFoundError`; obspec maps exceptions by the names of their classes.

    Parameters
    ----------
    store : UcxStore, str, Server or ServerProcess
        The store, or its ``ucx://`` address, or a server that this process has started.
    **options
        Those of `UcxStore`, if `store` is none.

    Examples
    --------
    >>> from obspec_utils.registry import ObjectStoreRegistry  # doctest: +SKIP
    >>> store = ObspecStore("ucx://127.0.0.1:7400")  # doctest: +SKIP
    >>> registry = ObjectStoreRegistry({store.url: store})  # doctest: +SKIP
    """

    def __init__(self, store: UcxStore | str | Reachable, **options: Any) -> None:
        if isinstance(store, UcxStore) and options:
            raise TypeError(f"options can't be given with a store: {', '.join(options)}")
        self.store = store if isinstance(store, UcxStore) else UcxStore(store, **options)

    @property
    def prefix(self) -> str:
        """What every key of the store begins with, as its address has it."""
        return self.store._key_prefix.rstrip("/")

    @property
    def url(self) -> str:
        """The address of the store."""
        return self.store.address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObspecStore) and self.store == other.store

    def __hash__(self) -> int:
        return hash((ObspecStore, self.store))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the `UcxStore`, which connects again if it is used after that."""
        self.store.close()

    @property
    def closed(self) -> bool:
        """Whether the `UcxStore` is closed."""
        return self.store.closed

    # ---- reading ----

    def get(self, path: str, *, options: Mapping[str, Any] | None = None) -> GetResult:
        """Read a value: all of it, or ``options["range"]``.

        Options are ``range``, ``head``, ``version``, ``if_match`` and ``if_none_match``.
        """
        wanted = _Wanted.of(options)
        with _named():
            found = self.store.get_found_sync(path, wanted.byte_range, wanted.version)
        return GetResult(*wanted.parts(path, found))

    async def get_async(
        self, path: str, *, options: Mapping[str, Any] | None = None
    ) -> GetResultAsync:
        """Do as `get`."""
        wanted = _Wanted.of(options)
        with _named():
            found = await self.store.get_found(path, wanted.byte_range, wanted.version)
        return GetResultAsync(*wanted.parts(path, found))

    def get_range(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> memoryview:
        """Read bytes of a value, from `start` to `end` or as many as `length`.

        Raises
        ------
        ValueError
            If there are none, or neither or both of `end` and `length` are given.
        NotFoundError
            If the value is missing.
        """
        byte_range = _range(start, end, length)
        with _named():
            found = self.store.get_found_sync(path, byte_range)
        return _Wanted(byte_range).parts(path, found)[-1]

    async def get_range_async(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> memoryview:
        """Do as `get_range`."""
        byte_range = _range(start, end, length)
        with _named():
            found = await self.store.get_found(path, byte_range)
        return _Wanted(byte_range).parts(path, found)[-1]

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[memoryview]:
        """Read many ranges of a value in one request, without the bytes between them."""
        ranges = _ranges(starts, ends, lengths)
        with _named(path):
            parts = self.store.get_ranges_sync(path, ranges, prototype=numpy_buffer_prototype())
        return _in_order(path, parts, ranges)

    async def get_ranges_async(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[memoryview]:
        """Do as `get_ranges`."""
        ranges = _ranges(starts, ends, lengths)
        parts: list[tuple[int, Any]] = []
        with _named(path):
            async for batch in self.store.get_ranges(
                path, ranges, prototype=numpy_buffer_prototype()
            ):
                parts.extend(batch)
        return _in_order(path, parts, ranges)

    def head(self, path: str) -> ObjectMeta:
        """Return the size and the version of a value."""
        return self.get(path, options={"head": True}).meta

    async def head_async(self, path: str) -> ObjectMeta:
        """Do as `head`."""
        return (await self.get_async(path, options={"head": True})).meta

    # ---- writing ----

    def put(
        self,
        path: str,
        file: Content,
        *,
        attributes: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        mode: object = None,
        use_multipart: bool | None = None,
        chunk_size: int = 0,
        max_concurrency: int = 0,
    ) -> PutResult:
        """Write a value, in one step.

        A buffer is sent from where it lies; a file or an iterable is read into memory first.

        Parameters
        ----------
        path : str
        file : buffer, Path, binary file, or iterable of buffers
        mode : {"overwrite", "create"}
            ``"create"`` raises `AlreadyExistsError` if there is a value.
        attributes, tags
            Not supported.
        use_multipart, chunk_size, max_concurrency
            Without effect.
        """
        create = _check_put(mode, attributes, tags)
        self._check_writable()
        value = _buffer(_read(file))
        with _named():
            written = self.store.add_sync(path, value) if create else True
            if not create:
                self.store.set_sync(path, value)
        return _put_result(path, written)

    async def put_async(
        self,
        path: str,
        file: Content | AsyncIterable[Buffer],
        *,
        attributes: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        mode: object = None,
        use_multipart: bool | None = None,
        chunk_size: int = 0,
        max_concurrency: int = 0,
    ) -> PutResult:
        """Do as `put`; `file` may be an asynchronous iterable, too.

        A file or an iterable is read in another thread.
        """
        create = _check_put(mode, attributes, tags)
        self._check_writable()
        if isinstance(file, GetResultAsync):
            content: Buffer = await file.buffer_async()
        elif isinstance(file, AsyncIterable):
            content = b"".join([piece async for piece in file])
        elif isinstance(file, Buffer):
            content = file
        else:
            content = await asyncio.to_thread(_read, file)
        value = _buffer(content)
        with _named():
            written = await self.store.add(path, value) if create else True
            if not create:
                await self.store.set(path, value)
        return _put_result(path, written)

    def delete(self, paths: str | Sequence[str]) -> None:
        """Delete values, missing ones too, in one request."""
        sync(self.delete_async(paths))

    async def delete_async(self, paths: str | Sequence[str]) -> None:
        """Do as `delete`."""
        self._check_writable()
        with _named():
            await self.store.delete_many([paths] if isinstance(paths, str) else [*paths])

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise PermissionDeniedError(f"{self.store._shown}: the store is read-only")

    # ---- listing: `list` is a method from here on ----

    def list_with_delimiter(self, prefix: str | None = None) -> ListResult:
        """Return the values and the folders in a folder.

        A key that is both, as ``"a"`` is beside ``"a/b"``, is given as a value alone; `list` gives
        all keys. Servers of directories cannot have such keys.
        """
        return sync(self.list_with_delimiter_async(prefix))

    async def list_with_delimiter_async(self, prefix: str | None = None) -> ListResult:
        """Do as `list_with_delimiter`."""
        folder = _folder(prefix)
        with _named():
            names = [folder + name async for name in self.store.list_dir(folder)]
            sizes = await self.store.getsizes(names)
        found = [*zip(names, sizes, strict=True)]
        return {
            "common_prefixes": [name for name, size in found if size is None],
            "objects": [_listed(name, size) for name, size in found if size is not None],
        }

    async def list_async(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> AsyncIterator[Sequence[ObjectMeta]]:
        """Yield the values in a folder and below it, in pages: those whose key is after `offset`.

        Their versions are not known: `head` asks for one.
        """
        pages = self._pages(prefix, offset)
        while True:
            with _named():
                page = await anext(pages, None)
            if page is None:
                return
            yield page

    async def _pages(
        self, prefix: str | None, offset: str | None
    ) -> AsyncIterator[Sequence[ObjectMeta]]:
        page: list[str] = []
        async for key in self.store.list_prefix(_folder(prefix)):
            if offset is None or key > offset:
                page.append(key)
            if len(page) == _PAGE:
                yield await self._measure(page)
                page = []
        if page:
            yield await self._measure(page)

    async def _measure(self, keys: Sequence[str]) -> Sequence[ObjectMeta]:
        sizes = await self.store.getsizes(keys)
        pairs = zip(keys, sizes, strict=True)
        return [_listed(key, size) for key, size in pairs if size is not None]

    def list(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> Iterator[Sequence[ObjectMeta]]:
        """Do as `list_async`."""
        pages = self.list_async(prefix, offset=offset)

        async def following() -> Sequence[ObjectMeta] | None:
            return await anext(pages, None)

        while (page := sync(following())) is not None:
            yield page


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of a read."""

    byte_range: ByteRequest = _EVERYTHING
    version: int | None = None
    is_head: bool = False
    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Self:
        given = {name: value for name, value in (options or {}).items() if value is not None}
        known = {"range", "head", "version", "if_match", "if_none_match"}
        if unknown := sorted(given.keys() - known):
            raise NotSupportedError(f"servers do not have these options of a read: {unknown}")
        head = bool(given.get("head"))
        version = str(given.get("version", ""))
        return cls(
            _NOTHING if head else _range_of(given.get("range")),
            _version_of(version) if version else None,
            head,
            given.get("if_match"),
            given.get("if_none_match"),
        )

    def parts(
        self, path: str, found: Found | None
    ) -> tuple[ObjectMeta, tuple[int, int], memoryview]:
        """Return what was found and its range, once all conditions are checked."""
        if found is None:
            raise NotFoundError(f"there is no value under {path!r}")
        data, size, version = found
        e_tag = f'"{version}"'
        if data is None:
            raise NotFoundError(f"{path!r} has the version {version}, and not {self.version}")
        if self.if_match is not None and not _matches(self.if_match, e_tag):
            raise PreconditionError(f"{path!r} has another version: {version}")
        if self.if_none_match is not None and _matches(self.if_none_match, e_tag):
            raise NotModifiedError(f"{path!r} still has the version {version}")
        ((start, stop),) = bounds(to_native(self.byte_range), size)
        if start == stop and not self.is_head and self.byte_range != _EVERYTHING:
            raise ValueError(f"{path!r}: the range is beyond its end ({size} bytes)")
        meta = _meta(path, size, e_tag, str(version))
        return meta, (start, stop), memoryview(data)


@contextmanager
def _named(path: str = "") -> Iterator[None]:
    """Raise failures by the names that obspec has for them."""
    try:
        yield
    except InvalidKeyError as error:
        raise InvalidPathError(str(error)) from error
    except (GrantError, ReadOnlyServerError) as error:
        raise PermissionDeniedError(str(error)) from error
    except AuthenticationError as error:
        raise UnauthenticatedError(str(error)) from error
    except BaseExceptionGroup as group:
        if group.subgroup(FileNotFoundError) is None:
            raise
        raise NotFoundError(f"there is no value under {path!r}") from group


def _matches(condition: str, e_tag: str) -> bool:
    tags = [tag.strip() for tag in condition.split(",")]
    return "*" in tags or e_tag in tags or e_tag.strip('"') in tags


def _version_of(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(_VERSIONS[-1])):
        version = int(text)
        if version in _VERSIONS:
            return version
    raise NotFoundError(f"there is no version {text!r}")


def _range_of(given: Any) -> ByteRequest:
    if given is None:
        return _EVERYTHING
    if isinstance(given, Mapping):
        if "offset" in given:
            return OffsetByteRequest(given["offset"])
        return SuffixByteRequest(given["suffix"])
    start, end = given
    return RangeByteRequest(start, end)


def _range(start: int, end: int | None, length: int | None) -> RangeByteRequest:
    if (end is None) == (length is None):
        raise ValueError("give either an end or a length")
    stop = start + length if length is not None else end
    if stop is None or not 0 <= start < stop:
        raise ValueError(f"the range is empty: {start} to {stop}")
    return RangeByteRequest(start, stop)


def _ranges(
    starts: Sequence[int], ends: Sequence[int] | None, lengths: Sequence[int] | None
) -> list[RangeByteRequest]:
    if (ends is None) == (lengths is None):
        raise ValueError("give either ends or lengths")
    if lengths is not None:
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    return [_range(start, end, None) for start, end in zip(starts, ends or [], strict=True)]


def _in_order(
    path: str, parts: Iterable[tuple[int, Any]], ranges: Sequence[RangeByteRequest]
) -> list[memoryview]:
    found = {index: memoryview(part.as_numpy_array()) for index, part in parts}
    for index, one in enumerate(ranges):
        if not len(found[index]):
            raise ValueError(f"{path!r} ends before byte {one.start}")
    return [found[index] for index in range(len(ranges))]


def _read(file: Content) -> Buffer:
    if isinstance(file, Buffer):
        return file
    if isinstance(file, GetResult):
        return file.buffer()
    if isinstance(file, os.PathLike):
        return Path(file).read_bytes()
    if hasattr(file, "read"):
        content: bytes = file.read()
        return content
    return b"".join(file)


def _buffer(content: Buffer) -> cpu.Buffer:
    return cpu.Buffer.from_array_like(np.asarray(memoryview(content).cast("B")))


def _check_put(
    mode: object, attributes: Mapping[str, Any] | None, tags: Mapping[str, str] | None
) -> bool:
    """Return whether the value must not be there yet."""
    if attributes or tags:
        raise NotSupportedError("servers keep neither attributes nor tags")
    if mode not in (None, "overwrite", "create"):
        raise NotSupportedError(f"mode: {mode!r} is not supported")
    return mode == "create"


def _put_result(path: str, written: bool) -> PutResult:
    if not written:
        raise AlreadyExistsError(f"there is a value under {path!r} already")
    return {"e_tag": None, "version": None}


def _folder(prefix: str | None) -> str:
    stripped = (prefix or "").strip("/")
    return f"{stripped}/" if stripped else ""


def _listed(path: str, size: int) -> ObjectMeta:
    return _meta(path, size, None, None)


def _meta(path: str, size: int, e_tag: str | None, version: str | None) -> ObjectMeta:
    return {
        "path": path,
        "last_modified": _NO_TIME,
        "size": size,
        "e_tag": e_tag,
        "version": version,
    }
