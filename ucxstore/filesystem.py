"""``ucx://`` for fsspec, through which zarr opens URLs: ``zarr.open("ucx://host:port/prefix")``.

zarr wraps it in its own `FsspecStore`. `ucxstore.pipeline.access` finds the `UcxStore` behind that,
so chunks are read and written as with a `UcxStore`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fsspec.asyn import AsyncFileSystem
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from ucxstore.address import SCHEME, Address
from ucxstore.errors import AddressError
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.secret import Secret
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import cpu


class UcxFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """The values of a server as files, with keys as paths.

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
        self._root = root
        self._stores: dict[tuple[str, bool], UcxStore] = {("", False): root}

    def __reduce__(self) -> tuple[object, ...]:
        # The root store takes along which incarnations it relies on. A pickled array has its
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
        return store.chunk_access

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
    def _strip_protocol(cls, path: str | list[str]) -> str | list[str]:
        if isinstance(path, list):
            return [str(cls._strip_protocol(one)) for one in path]
        if path.startswith(SCHEME):
            path = path.removeprefix(SCHEME).partition("/")[2]
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        servers = path.removeprefix(SCHEME).partition("/")[0]
        return {"servers": servers} if path.startswith(SCHEME) else {}

    def unstrip_protocol(self, name: str) -> str:
        path = str(self._strip_protocol(name))
        return f"{self._root.address}/{path}" if path else self._root.address

    # ---- what fsspec calls ----

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        key = str(self._strip_protocol(path))
        value = await self._root.get(key, byte_range=await self._range(key, start, end))
        if value is None:
            raise FileNotFoundError(path)
        return value.to_bytes()

    async def _range(self, key: str, start: int | None, end: int | None) -> ByteRequest | None:
        """Translate a slice, negative numbers included."""
        if not start and end is None:
            return None
        if end is None:
            assert start is not None
            return OffsetByteRequest(start) if start >= 0 else SuffixByteRequest(-start)
        begin = start or 0
        if begin < 0 or end < 0:
            begin, end, _ = slice(begin, end).indices(await self._root.getsize(key))
        return RangeByteRequest(begin, max(begin, end))

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        key = str(self._strip_protocol(path))
        buffer = cpu.Buffer.from_bytes(value)
        if mode == "create":
            if not await self._root.add(key, buffer):
                raise FileExistsError(path)
        else:
            await self._root.set(key, buffer)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        value = await self._root.get(str(self._strip_protocol(path1)))
        if value is None:
            raise FileNotFoundError(path1)
        await self._root.set(str(self._strip_protocol(path2)), value)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._root.delete(str(self._strip_protocol(path)))

    async def _rm(self, path: str | list[str], recursive: bool = False, **_: Any) -> None:
        for one in [path] if isinstance(path, str) else path:
            key = str(self._strip_protocol(one))
            if recursive:
                await self._root.delete_dir(key)
            if key:
                await self._root.delete(key)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        key = str(self._strip_protocol(path))
        if key:
            (size,) = await self._root.getsizes([key])
            if size is not None:
                return _entry(key, size)
        if key and await self._root.is_empty(key):
            raise FileNotFoundError(path)
        return _entry(key, None)

    async def _ls(
        self, path: str, detail: bool = True, **_: Any
    ) -> Sequence[dict[str, Any]] | Sequence[str]:
        folder = str(self._strip_protocol(path))
        inside = f"{folder}/" if folder else ""
        keys = [inside + name async for name in self._root.list_dir(folder)]
        if not keys and folder:
            keys = [(await self._info(folder))["name"]]
        if not detail:
            return keys
        sizes = await self._root.getsizes(keys)
        return [_entry(key, size) for key, size in zip(keys, sizes, strict=True)]

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Iterable[str] | dict[str, Any]:
        if maxdepth is not None or withdirs or options.get("detail"):
            found: Iterable[str] | dict[str, Any] = await super()._find(
                path, maxdepth=maxdepth, withdirs=withdirs, **options
            )
            return found
        folder = str(self._strip_protocol(path))
        keys = [key async for key in self._root.list_prefix(f"{folder}/" if folder else "")]
        if not keys and folder and await self._root.exists(folder):
            return [folder]
        return keys

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Do nothing: a folder is there as long as a key is in it."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing, as `_mkdir`."""


def _entry(key: str, size: int | None) -> dict[str, Any]:
    """Describe a key as fsspec does; without a size it is a folder."""
    return {"name": key, "size": size or 0, "type": "directory" if size is None else "file"}
