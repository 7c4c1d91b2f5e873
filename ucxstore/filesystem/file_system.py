"""`UcxFileSystem`: ``ucx://`` for fsspec, through which zarr opens URLs, too.

For ``zarr.open("ucx://host:port/prefix")`` zarr wraps it in its own `FsspecStore`.
`ucxstore.pipeline.access` finds the `UcxStore` behind that, so chunks are read and written as with
a `UcxStore`.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from errno import ENOTEMPTY
from functools import partial
from glob import has_magic
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import get_compression
from fsspec.utils import isfilelike, stringify_path
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from ucxstore.base.address import SCHEME, Address
from ucxstore.base.errors import AddressError
from ucxstore.base.keys import check_key
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_details
from ucxstore.base.zarr_compat import cpu
from ucxstore.client.requests import Found
from ucxstore.filesystem.reading import ValueReader, bytes_of
from ucxstore.filesystem.writing import CompressedWriter, TextWriter, ValueWriter
from ucxstore.pipeline.access import ChunkAccess, access_to
from ucxstore.stores.store import UcxStore

if TYPE_CHECKING:
    from ucxstore.base.stats import ServerStats, StoreStats

# What is in memory at once of a value on its way to a local file.
PIECE_BYTES = 8 << 20

_NO_BYTES = RangeByteRequest(0, 0)
_EVERYTHING = OffsetByteRequest(0)


class UcxFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """The values of a server as files, with keys as paths.

    Values are written whole: a file is stored when it is closed, and not at all if an exception
    closes it. What reads a file in parts reads parts of one value, even if that is replaced
    meanwhile, or raises `StorageError`. A folder is there as long as a key is in it; `mkdir` does
    nothing. There are no times of values. In a transaction, what is written by `open`, `pipe`,
    `put` and `touch` is stored at its end; `cp`, `mv` and `rm` act at once.

    What fsspec's methods take and return is documented there.

    Parameters
    ----------
    servers : str
        ``"host:port"``; fsspec takes it from a URL.
    secret : str, bytes, Secret or None
        As for `UcxStore`, but where none is given, that of the variable ``UCXSTORE_SECRET`` or of
        the file ``UCXSTORE_SECRET_FILE`` is used, if there is one: many callers of
        ``zarr.open(url)`` pass no options on.
    asynchronous, loop, batch_size
        fsspec's.
    **options
        Those of `UcxStore` except `read_only`, and options of UCX, in capitals: fsspec passes the
        items of `ucx`, an argument with the protocol's name, as arguments.

    Raises
    ------
    AddressError
        If `servers` is malformed.
    ValueError, TypeError
        If an option is not usable.
    """

    protocol = "ucx"
    root_marker = ""
    cachable = False  # fsspec would keep it, and so its connection, until the process ends

    def __init__(
        self,
        servers: str,
        *,
        secret: str | bytes | Secret | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size)
        if servers.count("[") > servers.count("]"):
            raise AddressError(
                f"{servers!r} ends within an IPv6 address: fsspec cuts URLs at '::', so write it "
                "without '::', such as [0:0:0:0:0:0:0:1]:7400"
            )
        address = Address(Address.parse(f"{SCHEME}{servers}").servers)
        spread = {name: options.pop(name) for name in list(options) if name.isupper()}
        ucx = {**(options.pop("ucx", None) or {}), **spread}
        self._set_root(UcxStore(address, secret=secret or Secret.find(), ucx=ucx, **options))

    def _set_root(self, root: UcxStore) -> None:
        # fsspec calls it of instances, too, and only an instance knows its servers.
        self._strip_protocol = self._strip_own  # type: ignore[method-assign]
        self._root = root
        self._stores: dict[tuple[str, bool], UcxStore] = {("", False): root}

    def __reduce__(self) -> tuple[object, ...]:
        # The root store takes along which identities it relies on. A pickled array has its
        # metadata, and would read fill values from a server that has restarted meanwhile.
        return *super().__reduce__(), self._root

    def __setstate__(self, root: UcxStore) -> None:
        self._set_root(root)

    def chunk_access_at(self, path: str, *, read_only: bool) -> ChunkAccess:
        """Return access to the chunks under `path`; for equal arguments, of the same store."""
        wanted = path.strip("/"), read_only
        store = self._stores.get(wanted)
        if store is None:
            store = self._root.at(wanted[0], read_only=read_only)
            # Two threads may both make a store: both then use the first one.
            store = self._stores.setdefault(wanted, store)
        return access_to(store)

    @property
    def address(self) -> str:
        """The address of its servers."""
        return self._root.address

    def stats(self) -> "StoreStats":
        """Return the counters of all that was read and written through it, by zarr too."""
        from ucxstore.base.stats import total_of

        return total_of(store.stats() for store in list(self._stores.values()))

    def server_stats(self) -> "ServerStats":
        """Return what the server has counted; see `UcxStore.server_stats`. It blocks."""
        return self._root.server_stats_sync()

    # zarr's `FsspecStore` shows only the class of its file system and the path.

    def __repr__(self) -> str:
        return repr(self._root).replace(type(self._root).__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        counters = html_details("Counters", self.stats().html())
        return html_block(type(self).__name__, self.address, counters)

    # fsspec sets it after __init__, as it was given, and pickles it.
    @property
    def storage_options(self) -> dict[str, Any]:
        """What the file system was made with; a secret shows and pickles as a `Secret` does."""
        return self._storage_options

    @storage_options.setter
    def storage_options(self, options: dict[str, Any]) -> None:
        secret = Secret.of(options.get("secret"))
        self._storage_options = options if secret is None else {**options, "secret": secret}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith(SCHEME):
            path = path.removeprefix(SCHEME).partition("/")[2]
        return path.strip("/")

    def _strip_own(self, path: Any) -> Any:
        """Do as `_strip_protocol`, and refuse URLs of other servers."""
        if isinstance(path, list):
            return [self._strip_own(one) for one in path]
        path = stringify_path(path)
        if path.startswith(SCHEME):
            servers = path.removeprefix(SCHEME).partition("/")[0]
            named = Address.parse(f"{SCHEME}{servers}").servers
            if set(named) != set(self._root.servers):
                raise AddressError(f"{path!r} is not at the servers of {self._root}")
        return type(self)._strip_protocol(path)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        servers = path.removeprefix(SCHEME).partition("/")[0]
        return {"servers": servers} if path.startswith(SCHEME) else {}

    def unstrip_protocol(self, name: str) -> str:
        path = self._strip_protocol(name)
        return f"{self._root.address}/{path}" if path else self._root.address

    # ---- files ----

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        if mode in {"r", "rt", "rb"}:
            return super().open(path, mode, block_size, cache_options, compression, **options)
        text = {name: options.pop(name) for name in _TEXT_OPTIONS & options.keys()}
        binary = mode if "b" in mode else f"{mode.replace('t', '')}b"
        value: ValueWriter = super().open(path, binary, block_size, cache_options, **options)
        file: Any = value
        # fsspec's own would leave the value's file open.
        try:
            packing = get_compression(value.path, compression)
            file = value if packing is None else CompressedWriter(value, packing)
            return file if "b" in mode else TextWriter(file, **text)
        except BaseException:
            value.discard()
            raise

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> ValueReader | ValueWriter:
        key = self._strip_protocol(path)
        if mode == "rb":
            options |= {"block_size": block_size, "cache_options": cache_options}
            return ValueReader(self, key, self._root, **options)
        if set(mode) - {"b", "+"} not in ({"w"}, {"x"}):
            raise NotImplementedError(
                f"{key!r}: mode {mode!r}: values are written whole, and neither appended to nor "
                "changed in place"
            )
        if "x" in mode and self._root.get_found_sync(key, _NO_BYTES) is not None:
            raise FileExistsError(key)
        return self._writer(key, mode, autocommit)

    async def open_async(self, path: Any, mode: str = "rb", **_: Any) -> NoReturn:
        raise NotImplementedError(
            f"{path!r}: without blocking, values are read by _cat_file and written by _pipe_file"
        )

    def _writer(self, key: str, mode: str, autocommit: bool) -> ValueWriter:
        check_key(key)
        send = partial(self._send, key, is_new="x" in mode)
        return ValueWriter(key, mode, send, autocommit=autocommit)

    def _send(self, key: str, value: bytes, *, is_new: bool) -> None:
        """Store the value of a file, blocking."""
        buffer = cpu.Buffer.from_bytes(value)
        if not is_new:
            self._root.set_sync(key, buffer)
        elif not self._root.add_sync(key, buffer):
            raise FileExistsError(key)

    def touch(self, path: Any, truncate: bool = True, **_: Any) -> None:
        try:
            with self.open(path, "wb" if truncate else "xb"):
                pass
        except FileExistsError:
            raise NotImplementedError(
                f"{path!r} has a value, and there are no times of values to set: truncate=True "
                "makes it an empty one"
            ) from None

    def created(self, path: Any) -> NoReturn:
        raise NotImplementedError(f"{path!r}: servers keep no times of values")

    def modified(self, path: Any) -> NoReturn:
        self.created(path)

    def checksum(self, path: Any) -> int:
        return int(self.ukey(path), 16)

    def ukey(self, path: Any) -> str:
        key = self._strip_protocol(path)
        found = self._root.get_found_sync(key, _NO_BYTES) if key else None
        if found is None:  # a folder, or nothing
            return str(super().ukey(path))
        _, size, version = found
        return sha256(f"{self._root}/{key} {size} {version}".encode()).hexdigest()

    # ---- values ----

    def cat_file(
        self, path: Any, start: int | None = None, end: int | None = None, **options: Any
    ) -> Any:
        return sync(self.loop, self._cat_file, path, start, end, **{**options, "by_zarr": False})

    async def _cat(self, path: Any, *arguments: Any, **options: Any) -> Any:
        return await super()._cat(path, *arguments, **{**options, "by_zarr": False})

    async def _cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        *,
        by_zarr: bool = True,
        **_: Any,
    ) -> bytes:
        """Read a value. zarr calls this, and only then opens an array: see `UcxStore.get`."""
        key = self._strip_protocol(path)
        if end is not None and min(start or 0, end) < 0:
            return await self._cat_from_end(key, start, end)
        if not by_zarr:
            found = await self._root.get_found(key, _byte_range(start, end) or _EVERYTHING)
            if found is None:
                raise FileNotFoundError(path)
            return found[0].tobytes()
        value = await self._root.get(key, byte_range=_byte_range(start, end))
        if value is None:
            raise FileNotFoundError(path)
        return value.to_bytes()

    async def _cat_from_end(self, key: str, start: int | None, end: int) -> bytes:
        """Return a slice of a value that is counted from its end, as no single request can."""
        found = await self._root.get_found(key, _NO_BYTES)
        if found is None:
            raise FileNotFoundError(key)
        _, size, version = found
        begin, stop, _ = slice(start, end).indices(size)
        wanted = RangeByteRequest(begin, max(begin, stop))
        return bytes_of(await self._root.get_found(key, wanted, version), key)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        key = self._strip_protocol(path)
        if self._intrans:
            with self._writer(key, "xb" if mode == "create" else "wb", False) as file:
                file.write(value)
            self.transaction.files.append(file)
            return
        buffer = cpu.Buffer.from_bytes(value)
        if mode != "create":
            await self._root.set(key, buffer)
        elif not await self._root.add(key, buffer):
            raise FileExistsError(path)

    async def _put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, **options: Any
    ) -> None:
        source = Path(lpath)
        if source.is_dir():
            return
        size = source.stat().st_size
        callback.set_size(size)
        with await access_to(self._root).budget.claim(size):
            value = await asyncio.to_thread(source.read_bytes)
            await self._pipe_file(rpath, value, **options)
        callback.relative_update(len(value))

    async def _get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        key = self._strip_protocol(rpath)
        with await access_to(self._root).budget.claim(PIECE_BYTES):
            piece = RangeByteRequest(0, PIECE_BYTES)
            found = await self._root.get_found(key, piece) if key else None
            if found is None:
                await self._check_folder(key)
                Path(lpath).mkdir(parents=True, exist_ok=True)
                return
            with ExitStack() as stack:
                file = lpath
                if not isfilelike(lpath):
                    Path(lpath).parent.mkdir(parents=True, exist_ok=True)
                    file = stack.enter_context(Path(lpath).open("wb"))
                await self._fill(file, key, found, callback)

    async def _fill(self, file: IO[bytes], key: str, found: Found, callback: Any) -> None:
        """Write a value to a local file, given what was found of its first piece."""
        _, size, version = found
        callback.set_size(size)
        following: Found | None = found
        for end in range(PIECE_BYTES, size + PIECE_BYTES, PIECE_BYTES):
            data = bytes_of(following, key)
            await asyncio.to_thread(file.write, data)
            callback.relative_update(len(data))
            if end < size:
                piece = RangeByteRequest(end, end + PIECE_BYTES)
                following = await self._root.get_found(key, piece, version)

    # ---- copies, moves, removals ----

    async def _copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        pairs = await self._plan(path1, path2, recursive, maxdepth)
        sources, targets = [list(paths) for paths in zip(*pairs, strict=True)] or ([], [])
        await super()._copy(sources, targets, recursive, on_error, maxdepth, **options)

    async def _plan(
        self, path1: Any, path2: Any, recursive: bool, maxdepth: int | None
    ) -> list[tuple[str, str]]:
        """Return what is copied where, folders too, by fsspec's rules for paths.

        Raises
        ------
        ValueError
            If the result would depend on the order in which they are copied.
        """
        pairs: list[tuple[str, str]] = []
        await super()._copy(path1, path2, recursive, "raise", maxdepth, plan=pairs)
        sources = {source for source, _ in pairs}
        for target, count in Counter(target for _, target in pairs).items():
            if count > 1 or (target in sources and (target, target) not in pairs):
                raise ValueError(f"{target!r} would be written twice, or be read and written")
        return pairs

    async def _cp_file(
        self, path1: str, path2: str, plan: list[tuple[str, str]] | None = None, **_: Any
    ) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if plan is not None:
            plan.append((source, target))
            return
        (size,) = await self._sizes_of([source])
        if size is None:
            await self._check_folder(source)
        elif source != target:
            with await access_to(self._root).budget.claim(size):
                found = await self._root.get_found(source, _EVERYTHING)
                if found is None:
                    raise FileNotFoundError(path1)
                await self._root.set(target, cpu.Buffer.from_array_like(found[0]))

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        sync(self.loop, self._mv, path1, path2, recursive, maxdepth)

    async def _mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Move files: copy all, then remove those that were copied."""
        if self._strip_protocol(path1) == self._strip_protocol(path2):
            return
        pairs = await self._plan(path1, path2, recursive, maxdepth)
        sources = [source for source, _ in pairs]
        sizes = await self._sizes_of(sources)
        files = [pair for pair, size in zip(pairs, sizes, strict=True) if size is not None]
        for path in [one for one, size in zip(sources, sizes, strict=True) if size is None]:
            await self._check_folder(path)
        if not files:
            raise IsADirectoryError(f"{path1!r} is a folder: pass recursive=True")
        moved = [(source, target) for source, target in files if source != target]
        await super()._copy([s for s, _ in moved], [t for _, t in moved], on_error="raise")
        await self._root.delete_many([source for source, _ in moved])

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._rm(path)

    async def _rm(self, path: Any, recursive: bool = False, **_: Any) -> None:
        """Remove paths as they are, without taking them for patterns as `rm` does.

        zarr calls this, with keys that may look like patterns, and with folders that it has
        removed already.
        """
        keys = [self._strip_protocol(one) for one in (path if isinstance(path, list) else [path])]
        if recursive:
            for key in keys:
                await self._root.delete_dir(key)
        else:
            await self._check_files(keys)
        await self._root.delete_many([key for key in keys if key])

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        sync(self.loop, self._rm_matching, path, recursive, maxdepth)

    async def _rm_matching(self, path: Any, recursive: bool, maxdepth: int | None) -> None:
        """Remove paths, or what matches those that are patterns and no names themselves.

        Nothing is removed if any of them is not there.
        """
        names = [self._strip_protocol(one) for one in (path if isinstance(path, list) else [path])]
        keys: list[str] = []
        for name, size in zip(names, await self._sizes_of(names), strict=True):
            matches = [name]
            if size is None and (has_magic(name) or recursive) and await self._is_missing(name):
                matches = await self._glob(name) if has_magic(name) else []
                if not matches:
                    raise FileNotFoundError(name)
            keys += matches
        if recursive and maxdepth is not None:
            found = [await self._find(key, maxdepth=maxdepth) for key in keys]
            await self._root.delete_many([one for some in found for one in some])
        else:
            await self._rm(keys, recursive=recursive)

    # ---- listings ----

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        key = self._strip_protocol(path)
        (size,) = await self._sizes_of([key])
        if size is None:
            await self._check_folder(key)
        return _entry(key, size)

    async def _isfile(self, path: str) -> bool:
        (size,) = await self._sizes_of([self._strip_protocol(path)])
        return size is not None

    async def _isdir(self, path: str) -> bool:
        try:
            info = await self._info(path)
        except FileNotFoundError:  # and not, as fsspec's own, any failure
            return False
        return bool(info["type"] == "directory")

    async def _ls(
        self, path: str, detail: bool = True, **_: Any
    ) -> Sequence[dict[str, Any]] | Sequence[str]:
        folder = self._strip_protocol(path)
        inside = f"{folder}/" if folder else ""
        keys = [inside + name async for name in self._root.list_dir(folder)]
        if not keys and folder:
            keys = [(await self._info(folder))["name"]]
        if not detail:
            return keys
        sizes = await self._root.getsizes(keys)
        return [_entry(key, size) for key, size in zip(keys, sizes, strict=True)]

    async def _walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        **options: Any,
    ) -> AsyncIterator[tuple[str, Any, Any]]:
        # fsspec would omit what cannot be listed since its server is lost, too.
        handler = _omit_missing if on_error == "omit" else on_error
        async for step in super()._walk(
            path, maxdepth=maxdepth, topdown=topdown, on_error=handler, **options
        ):
            yield step

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Iterable[str] | Mapping[str, Any]:
        if maxdepth is not None:
            found: Iterable[str] | Mapping[str, Any] = await super()._find(
                path, maxdepth=maxdepth, withdirs=withdirs, **options
            )
            return found
        folder = self._strip_protocol(path)
        keys = [key async for key in self._root.list_prefix(f"{folder}/" if folder else "")]
        folders = _folders_of(keys, folder) if withdirs else set()
        if not keys and folder and await self._root.exists(folder):
            keys = [folder]
        if not options.get("detail"):
            return sorted(folders.union(keys))
        entries = {name: _entry(name, None) for name in folders}
        for key, size in zip(keys, await self._root.getsizes(keys), strict=True):
            if size is not None:  # else it was removed meanwhile
                entries[key] = _entry(key, size)
        return dict(sorted(entries.items()))

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, **_: Any
    ) -> int | dict[str, int]:
        folder = self._strip_protocol(path)
        if total and maxdepth is None and not await self._isfile(folder):
            return await self._root.getsize_prefix(folder)
        found = await self._find(path, maxdepth=maxdepth, detail=True)
        assert isinstance(found, Mapping)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Do nothing: a folder is there as long as a key is in it."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing, as `_mkdir`."""

    def rmdir(self, path: Any) -> None:
        """Do nothing but refuse a folder that is not empty."""
        key = self._strip_protocol(path)
        if not sync(self.loop, self._root.is_empty, key):
            raise OSError(ENOTEMPTY, os.strerror(ENOTEMPTY), key)

    # ---- what is there ----

    async def _sizes_of(self, keys: Sequence[str]) -> list[int | None]:
        """Return the sizes of values; ``None`` for the root, for folders, and for what is not."""
        sizes = iter(await self._root.getsizes([key for key in keys if key]))
        return [next(sizes) if key else None for key in keys]

    async def _is_missing(self, key: str) -> bool:
        """Tell whether what is no file is no folder, either."""
        return bool(key) and await self._root.is_empty(key)

    async def _check_folder(self, key: str) -> None:
        """Raise if what is no file is no folder, either."""
        if await self._is_missing(key):
            raise FileNotFoundError(key)

    async def _check_files(self, keys: Sequence[str]) -> None:
        """Raise unless all are files."""
        for key, size in zip(keys, await self._sizes_of(keys), strict=True):
            if size is None:
                await self._check_folder(key)
                raise IsADirectoryError(f"{key!r} is a folder: pass recursive=True")


_TEXT_OPTIONS = {"encoding", "errors", "newline"}


def _byte_range(start: int | None, end: int | None) -> ByteRequest | None:
    """Translate a slice; without an end it may start at a negative number."""
    if end is not None:
        return RangeByteRequest(start or 0, max(start or 0, end))
    if not start:
        return None
    return OffsetByteRequest(start) if start > 0 else SuffixByteRequest(-start)


def _entry(key: str, size: int | None) -> dict[str, Any]:
    """Describe a key as fsspec does; without a size it is a folder."""
    return {"name": key, "size": size or 0, "type": "directory" if size is None else "file"}


def _folders_of(keys: Collection[str], top: str) -> set[str]:
    """Return the folders that keys under `top` are in, `top` included unless it is the root."""
    found = {top} if top and keys else set()
    for key in keys:
        folder = key.rpartition("/")[0]
        while len(folder) > len(top) and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def _omit_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
