"""Locations to copy from and to: ucxstore's servers, object stores and directories.

obstore opens object stores and directories. In a directory it writes a value to a temporary file
and renames it, so no key ever has a part of a value. Servers and object stores store a value whole
or not at all.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from ucxstore.base.address import SCHEME
from ucxstore.base.errors import GrantError
from ucxstore.base.object_urls import open_object_store
from ucxstore.base.zarr_compat import Buffer, cpu, default_buffer_prototype
from ucxstore.cli.common.command import in_groups, parse_address, split_key, warn
from ucxstore.cli.common.status import CommandError, UsageError
from ucxstore.cli.cp.plan import GROUP_KEYS, Entry
from ucxstore.client.listing import Listing
from ucxstore.pipeline.access import access_to
from ucxstore.server.identity import CLUSTER_FILE, OLD_FILE
from ucxstore.stores.channel_store import keyspace_of
from ucxstore.stores.store import UcxStore

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

# A larger object is read in requests of this many bytes, each well within obstore's limit of 30 s.
PART_BYTES = 16 << 20


class ServerLocation:
    """A ucxstore server: a request moves many values, without a copy.

    Attributes
    ----------
    max_keys : int
        The most values that one request reads or writes.
    unreadable : list of str
        The folders that could not be opened as it was listed.
    """

    max_keys = GROUP_KEYS

    def __init__(self, store: UcxStore) -> None:
        self._store = store
        self.unreadable: list[str] = []

    async def list(self) -> AsyncIterator[Entry]:
        store = self._store
        listing = Listing(access_to(store).channel, keyspace_of(store), self.unreadable.extend)
        async for keys in in_groups(listing.keys("")):
            sizes = await store.getsizes(keys)
            for key, size in zip(keys, sizes, strict=True):
                if size is not None:  # else it was deleted meanwhile
                    yield Entry(key, size)

    async def find(self, key: str) -> Entry | None:
        try:
            (size,) = await self._store.getsizes([key])
        except GrantError:  # that of a folder does not open the key of its name
            return None
        return None if size is None else Entry(key, size)

    def check(self, key: str) -> None:
        """Do nothing: the server refuses keys that lead out of its directory."""

    async def read(self, entries: Sequence[Entry]) -> Sequence[Buffer]:
        keys = [(entry.key, None) for entry in entries]
        values = await self._store.get_partial_values(default_buffer_prototype(), keys)
        for entry, value in zip(entries, values, strict=True):
            if value is None:
                raise CommandError(f"{self._store}/{entry.key}: it is no longer there")
        return [value for value in values if value is not None]

    async def write(self, entries: Sequence[Entry], values: Sequence[Buffer]) -> None:
        await self._store.set_many(
            [(entry.key, value) for entry, value in zip(entries, values, strict=True)]
        )

    def close(self) -> None:
        self._store.close()


class ObjectLocation:
    """An object store or a directory, through obstore.

    Parameters
    ----------
    open_store : callable
        Opens it, when it is first used.
    name : str
        Its name in errors.
    jobs : int
        Concurrent requests.
    """

    max_keys = 1

    def __init__(self, open_store: "Callable[[], ObjectStore]", name: str, jobs: int) -> None:
        from obstore.exceptions import BaseError

        # obstore raises its own exceptions for some failures, and Python's for others.
        self._failures = BaseError, OSError, ValueError
        self._open_store = open_store
        self._name = name
        self._requests = asyncio.Semaphore(jobs)
        self.unreadable: list[str] = []

    @cached_property
    def _store(self) -> Any:
        return self._open_store()

    async def list(self) -> AsyncIterator[Entry]:
        try:
            async for batch in self._store.list():
                for meta in batch:
                    yield _entry_of(meta)
        except self._failures as error:
            raise CommandError(f"{self._name}: cannot be listed: {_first_line(error)}") from error

    async def find(self, key: str) -> Entry | None:
        try:
            meta = await self._store.head_async(key)
        except FileNotFoundError:
            return None
        except self._failures as error:
            raise CommandError(f"{self._name}: {key}: {_first_line(error)}") from error
        return _entry_of(meta)

    def check(self, key: str) -> None:
        """Do nothing: an object store's keys are names, not paths."""

    async def read(self, entries: Sequence[Entry]) -> Sequence[Buffer]:
        return await asyncio.gather(*(self._read(entry) for entry in entries))

    async def _read(self, entry: Entry) -> Buffer:
        try:
            if entry.size <= PART_BYTES:
                return cpu.Buffer.from_array_like(await self._get(entry.key, {}))
            out = np.empty(entry.size, np.uint8)
            starts = range(0, entry.size, PART_BYTES)
            await asyncio.gather(*(self._read_part(entry, out, start) for start in starts))
            return cpu.Buffer.from_array_like(out)
        except self._failures as error:
            raise self._failed(entry, error) from error

    async def _read_part(self, entry: Entry, out: npt.NDArray[np.uint8], start: int) -> None:
        part = out[start : start + PART_BYTES]
        options: dict[str, object] = {"range": (start, start + len(part))}
        if entry.etag is not None:  # all parts must be of the same object
            options["if_match"] = entry.etag
        found = await self._get(entry.key, options)
        if len(found) != len(part):
            raise ValueError("its size has changed since it was listed")
        part[:] = found

    async def _get(self, key: str, options: dict[str, object]) -> npt.NDArray[np.uint8]:
        async with self._requests:
            found = await self._store.get_async(key, options=options)
            return np.frombuffer(await found.bytes_async(), np.uint8)

    async def write(self, entries: Sequence[Entry], values: Sequence[Buffer]) -> None:
        await asyncio.gather(*map(self._write, entries, values))

    async def _write(self, entry: Entry, value: Buffer) -> None:
        try:
            async with self._requests:
                await self._store.put_async(entry.key, memoryview(value.as_numpy_array()))
        except self._failures as error:
            raise self._failed(entry, error) from error

    def _failed(self, entry: Entry, error: Exception) -> CommandError:
        return CommandError(f"{self._name}: {entry.key}: {_first_line(error)}")

    def close(self) -> None:
        """Do nothing: obstore closes its connections when the store is garbage collected."""


class DirectoryLocation(ObjectLocation):
    """A directory, made when the first value is written if it is missing.

    Keys behind a symbolic link that leads out of it are refused.
    """

    def __init__(self, root: Path, jobs: int) -> None:
        super().__init__(self._make, str(root), jobs)
        self._root = root.resolve()

    def _make(self) -> "ObjectStore":
        from obstore.store import LocalStore

        if self._root.exists() and not self._root.is_dir():
            raise NotADirectoryError("it is a file, not a directory")
        return LocalStore(self._root, mkdir=True)

    async def list(self) -> AsyncIterator[Entry]:
        if not self._root.exists():
            return
        try:
            entries = [entry async for entry in super().list()]
        except CommandError:  # also for a folder that may not be opened
            entries = [entry async for entry in self._list_each_folder()]
        for entry in entries:
            if entry.key.rpartition("/")[2] not in (OLD_FILE, CLUSTER_FILE):
                yield entry

    async def _list_each_folder(self) -> AsyncIterator[Entry]:
        """List all values but those of locked folders: ten times slower than the whole at once."""
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                found = await self._store.list_with_delimiter_async(folder or None)
            except self._failures as error:
                if not self._is_locked(folder):
                    name = f"{self._name}: {folder}" if folder else self._name
                    raise CommandError(f"{name}: cannot be listed: {_first_line(error)}") from error
                self.unreadable.append(folder or ".")
                continue
            folders += reversed(found["common_prefixes"])
            for meta in found["objects"]:
                yield _entry_of(meta)

    def _is_locked(self, folder: str) -> bool:
        try:
            with os.scandir(self._root / folder):
                return False
        except OSError as error:
            return isinstance(error, PermissionError)

    def check(self, key: str) -> None:
        if not (self._root / key).resolve().is_relative_to(self._root):
            raise CommandError(f"{self._name}: {key}: a symbolic link leads out of the directory")


type Location = ServerLocation | ObjectLocation
"""A tree of values, to copy from or to. Every failure names the key."""


def is_server(location: str) -> bool:
    """Tell whether a location is the address of a ucxstore server."""
    return location.startswith(SCHEME)


def is_file(location: str) -> bool:
    """Tell whether a location is a file of this machine."""
    path = _as_path(location)
    return path is not None and not location.endswith("/") and path.is_file()


def split_location(location: str) -> tuple[str, str] | None:
    """Split the location of one value into that of its folder, and its name.

    Returns
    -------
    tuple of str or None
        ``None`` for what can only be a folder: a server, a bucket, a name with a slash at its end.
    """
    if location.endswith("/"):
        return None
    if is_server(location):
        if not parse_address(location).prefix:
            return None
        folder, name = split_key(location)
        return str(folder), name
    path = _as_path(location)
    if path is not None:
        return (str(path.parent), path.name) if path.name else None
    url = urlsplit(location)
    parent, _, name = url.path.rpartition("/")
    return (f"{url.scheme}://{url.netloc}{parent}", unquote(name)) if name else None


def target_of(destination: str, name: str) -> tuple[str, str]:
    """Return the folder and the name that one value gets: in a folder, it keeps its name."""
    path = _as_path(destination)
    split = None if path is not None and path.is_dir() else split_location(destination)
    return (destination, name) if split is None else split


def open_objects(location: str, jobs: int, *, make: bool) -> ObjectLocation:
    """Open a directory or an object store's URL.

    Parameters
    ----------
    location : str
        A path, or a URL that obstore opens. Its options come from the environment, such as
        ``AWS_ENDPOINT_URL``.
    jobs : int
        Concurrent requests.
    make : bool
        Whether to make a directory that does not exist.

    Raises
    ------
    UsageError
        If it cannot be opened.
    ModuleNotFoundError
        If obstore is not installed.
    """
    from obstore.exceptions import BaseError

    if location.startswith("memory:"):  # obstore opens it: memory of this process
        raise UsageError(f"{location}: this memory would be lost when the copy ends")
    path = _as_path(location)
    if path is not None:
        if not make and not path.is_dir():
            raise UsageError(f"{location}: there is no such file or directory")
        return DirectoryLocation(path, jobs)
    try:
        store = open_object_store(location, warn=warn)
    except (BaseError, OSError, ValueError) as error:
        raise UsageError(f"{location}: {_first_line(error)}") from error
    return ObjectLocation(lambda: store, location, jobs)


def _as_path(location: str) -> Path | None:
    if not _OTHER_SCHEME.match(location):
        return Path(location).absolute()
    with suppress(ValueError):
        url = urlsplit(location)
        if url.scheme == "file" and url.netloc in {"", "localhost"} and url.path:
            return Path(unquote(url.path))
    return None


def _entry_of(meta: "ObjectMeta") -> Entry:
    return Entry(meta["path"], meta["size"], meta["last_modified"].timestamp(), meta["e_tag"])


def _first_line(error: Exception) -> str:
    """Return an error's first line, without the Rust structures that obstore adds."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
