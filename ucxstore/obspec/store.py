"""`ObspecStore`: a `UcxStore` with the methods of obspec's protocols."""

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
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from ucxstore.base.keys import shorten_space
from ucxstore.base.options import Reachable
from ucxstore.base.zarr_compat import cpu, numpy_buffer_prototype, sync
from ucxstore.obspec.errors import NotSupportedError, PermissionDeniedError, named
from ucxstore.obspec.reading import Parts, Wanted, in_order, one_range, ranges_of
from ucxstore.obspec.results import (
    GetResult,
    GetResultAsync,
    ListResult,
    ObjectMeta,
    PutResult,
    meta_of,
    put_result,
)
from ucxstore.stores.channel_store import keyspace_of
from ucxstore.stores.store import UcxStore

_PAGE = 1000  # keys of a listing at once, as in object stores

type Content = IO[bytes] | Path | Buffer | Iterable[Buffer]


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
        return keyspace_of(self.store).prefix.rstrip("/")

    @property
    def url(self) -> str:
        """The address of the store."""
        return self.store.address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten_space(self.url)!r})"

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
        return GetResult(*self._find(path, Wanted.of(options)))

    async def get_async(
        self, path: str, *, options: Mapping[str, Any] | None = None
    ) -> GetResultAsync:
        """Do as `get`."""
        return GetResultAsync(*await self._find_async(path, Wanted.of(options)))

    def _find(self, path: str, wanted: Wanted) -> Parts:
        with named():
            found = self.store.get_found_sync(path, wanted.byte_range, wanted.version)
        return wanted.parts(path, found)

    async def _find_async(self, path: str, wanted: Wanted) -> Parts:
        with named():
            found = await self.store.get_found(path, wanted.byte_range, wanted.version)
        return wanted.parts(path, found)

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
        return self._find(path, Wanted(one_range(start, end, length)))[-1]

    async def get_range_async(
        self, path: str, *, start: int, end: int | None = None, length: int | None = None
    ) -> memoryview:
        """Do as `get_range`."""
        return (await self._find_async(path, Wanted(one_range(start, end, length))))[-1]

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[memoryview]:
        """Read many ranges of a value in one request, without the bytes between them."""
        ranges = ranges_of(starts, ends, lengths)
        with named(path):
            parts = self.store.get_ranges_sync(path, ranges, prototype=numpy_buffer_prototype())
        return in_order(path, parts, ranges)

    async def get_ranges_async(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[memoryview]:
        """Do as `get_ranges`."""
        ranges = ranges_of(starts, ends, lengths)
        parts: list[tuple[int, Any]] = []
        with named(path):
            async for batch in self.store.get_ranges(
                path, ranges, prototype=numpy_buffer_prototype()
            ):
                parts.extend(batch)
        return in_order(path, parts, ranges)

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
        create = self._check_put(mode, attributes, tags)
        value = _buffer(_read(file))
        with named():
            written = self.store.add_sync(path, value) if create else True
            if not create:
                self.store.set_sync(path, value)
        return put_result(path, written)

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
        create = self._check_put(mode, attributes, tags)
        if isinstance(file, GetResultAsync):
            content: Buffer = await file.buffer_async()
        elif isinstance(file, AsyncIterable):
            content = b"".join([piece async for piece in file])
        elif isinstance(file, Buffer):
            content = file
        else:
            content = await asyncio.to_thread(_read, file)
        value = _buffer(content)
        with named():
            written = await self.store.add(path, value) if create else True
            if not create:
                await self.store.set(path, value)
        return put_result(path, written)

    def delete(self, paths: str | Sequence[str]) -> None:
        """Delete values, missing ones too, in one request."""
        sync(self.delete_async(paths))

    async def delete_async(self, paths: str | Sequence[str]) -> None:
        """Do as `delete`."""
        self._check_writable()
        with named():
            await self.store.delete_many([paths] if isinstance(paths, str) else [*paths])

    def _check_put(
        self, mode: object, attributes: Mapping[str, Any] | None, tags: Mapping[str, str] | None
    ) -> bool:
        """Return whether the value must not be there yet."""
        if attributes or tags:
            raise NotSupportedError("servers keep neither attributes nor tags")
        if mode not in (None, "overwrite", "create"):
            raise NotSupportedError(f"mode: {mode!r} is not supported")
        self._check_writable()
        return mode == "create"

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise PermissionDeniedError(f"{shorten_space(self.url)}: the store is read-only")

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
        with named():
            names = [folder + name async for name in self.store.list_dir(folder)]
            sizes = await self.store.getsizes(names)
        found = [*zip(names, sizes, strict=True)]
        return {
            "common_prefixes": [name for name, size in found if size is None],
            "objects": [meta_of(name, size) for name, size in found if size is not None],
        }

    async def list_async(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> AsyncIterator[Sequence[ObjectMeta]]:
        """Yield the values in a folder and below it, in pages: those whose key is after `offset`.

        Their versions are not known: `head` asks for one.
        """
        pages = self._pages(prefix, offset)
        while True:
            with named():
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
        return [meta_of(key, size) for key, size in pairs if size is not None]

    def list(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> Iterator[Sequence[ObjectMeta]]:
        """Do as `list_async`."""
        pages = self.list_async(prefix, offset=offset)

        async def following() -> Sequence[ObjectMeta] | None:
            return await anext(pages, None)

        while (page := sync(following())) is not None:
            yield page


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


def _folder(prefix: str | None) -> str:
    stripped = (prefix or "").strip("/")
    return f"{stripped}/" if stripped else ""
