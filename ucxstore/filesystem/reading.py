"""`ValueReader`: a value as a file to read."""

from typing import Any

from fsspec.spec import AbstractBufferedFile
from zarr.abc.store import RangeByteRequest

from ucxstore.base.errors import StorageError
from ucxstore.client.requests import Found
from ucxstore.stores.store import UcxStore

# Read as the file is opened, in the request that asks for size and version: a small value needs no
# other. More would be wasted on those who read from the end of a large one, as of Parquet.
_HEAD_BYTES = 64 << 10


class ValueReader(AbstractBufferedFile):  # type: ignore[misc]
    """A value as a file to read, which can be sought in, and caches as fsspec's files do.

    All that is read is of the version that the value had when the file was opened.

    Parameters
    ----------
    fs : UcxFileSystem
    path : str
        The value's key.
    store : UcxStore
    version : int, optional
        The version that it must have, in place of any: of a file that was pickled.
    **options
        Those of `AbstractBufferedFile`.

    Raises
    ------
    FileNotFoundError
        If there is no such value.
    StorageError
        If it has another version. Reading raises it once the value was replaced or removed.
    """

    def __init__(
        self, fs: Any, path: str, store: UcxStore, *, version: int | None = None, **options: Any
    ) -> None:
        self._closed = True  # for `__del__`, should there be nothing to read
        found = store.get_found_sync(path, RangeByteRequest(0, _HEAD_BYTES), version)
        if found is None:
            raise FileNotFoundError(path)
        self._head = bytes_of(found, path)
        _, size, self._version = found
        self._store = store
        # What hashes and compares the file, besides its size.
        self._details = {"name": path, "size": size, "type": "file", "version": self._version}
        super().__init__(fs, path, "rb", **{**options, "size": size})
        self.kwargs = {"version": self._version}  # goes into its pickle

    def _fetch_range(self, start: int, end: int) -> bytes:
        if end <= len(self._head):
            return self._head[start:end]
        wanted = RangeByteRequest(start, end)
        return bytes_of(self._store.get_found_sync(self.path, wanted, self._version), self.path)


def bytes_of(found: Found | None, path: str) -> bytes:
    """Return the bytes that were found of one version of a value.

    Raises
    ------
    StorageError
        If the value is missing, or has another version.
    """
    data = None if found is None else found[0]
    if data is None:
        raise StorageError(f"{path!r} was replaced or removed while it was read: open it again")
    return data.tobytes()
