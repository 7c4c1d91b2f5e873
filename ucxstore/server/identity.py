"""`Identity`: what tells a server's storage from others, and the record of the set it belongs to.

A directory keeps both in files of its own, which are no keys. Memory has a new identity whenever a
server of it starts. That of an object store or a zarr store is derived from where it is.
"""

import fcntl
import hashlib
import os
import secrets
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ucxstore import logs
from ucxstore.protocol.frames import IDENTITY_BYTES
from ucxstore.protocol.handshake import digest
from ucxstore.server.options import ServerOptions
from ucxstore.server.sources.locations import Kind, hide_password, parse_location

# The native core knows them as files that are no keys.
IDENTITY_FILE = ".ucxstore-identity"
CLUSTER_FILE = ".ucxstore-cluster"

# Where S3's endpoint is, unless an option says so.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

# What is in the memory of this process is not what had the same number in another one.
_PROCESS = secrets.token_hex(IDENTITY_BYTES)


class Identity:
    """The identity of a storage, and the record of its set, which it keeps in memory.

    Parameters
    ----------
    value : bytes
    record : bytes
        The record; empty for none.
    """

    def __init__(self, value: bytes, record: bytes = b"") -> None:
        self.value = value
        self.record = record
        self._lock = threading.Lock()

    def keep(self, expected: bytes, record: bytes) -> bytes:
        """Keep another record, if the one until now has the digest `expected`.

        Returns
        -------
        bytes
            The record that it has after that.

        Raises
        ------
        OSError
            If the record cannot be stored. The one until now stays.
        """
        with self._lock:
            if digest(self.record) == expected and record != self.record:
                self._store(record)
                self.record = record
            return self.record

    def _store(self, record: bytes) -> None:
        """Store a record where it outlives the server."""


class DirectoryIdentity(Identity):
    """The identity of a directory that may be written to, and the record that is in a file there.

    Parameters
    ----------
    directory : Path
    value : bytes
    record : bytes
        As it is in the file.
    """

    def __init__(self, directory: Path, value: bytes, record: bytes) -> None:
        super().__init__(value, record)
        self._directory = directory

    def _store(self, record: bytes) -> None:
        # The directory at this path may be another one by now.
        if _read_identity(self._directory) != self.value:
            raise OSError(f"{self._directory}: it is not the directory that is served")
        if record:
            _write(self._directory, CLUSTER_FILE, record, replace=True)
        else:
            (self._directory / CLUSTER_FILE).unlink(missing_ok=True)


def identify(storage: Any, options: ServerOptions) -> Identity:
    """Return the identity of what a server serves.

    Parameters
    ----------
    storage
        As `Server` takes it; a directory must be there.
    options : ServerOptions

    Raises
    ------
    OSError
        If a directory's files of it cannot be read, or are damaged; the message starts with their
        path.
    """
    if not isinstance(storage, str | bytes | os.PathLike):
        return _of_object(storage)
    kind, text = parse_location("storage", storage)
    if kind is Kind.DIRECTORY:
        return _of_directory(Path(text), read_only=options.read_only)
    if kind is Kind.MEMORY:
        return _new()
    given = options.storage_options or {}
    named = [value for name, value in given.items() if name.lower().endswith("endpoint")]
    return _derived("objects", _normal(text), _endpoint(named))


def _new() -> Identity:
    return Identity(secrets.token_bytes(IDENTITY_BYTES))


def _derived(*parts: object) -> Identity:
    text = "\0".join(map(str, parts))
    return Identity(hashlib.blake2b(text.encode(), digest_size=IDENTITY_BYTES).digest())


# ---- directories ----


def _of_directory(directory: Path, *, read_only: bool) -> Identity:
    """Return the identity that a directory has, or give it one.

    One that cannot be written to is known by its file system and its inode. When it is written to
    later, it keeps that identity, unless it is empty: an empty one may have been made anew.
    """
    value = _read_identity(directory)
    if value is None:
        about = f"{os.statvfs(directory).f_fsid}/{directory.stat().st_ino}"
        derived = _derived("directory", about).value
        if not read_only:
            made = derived if any(directory.iterdir()) else secrets.token_bytes(IDENTITY_BYTES)
            try:
                _write(directory, IDENTITY_FILE, f"{made.hex()}\n".encode(), replace=False)
                value = _read_identity(directory)
            except OSError as error:
                logs.server.warning(
                    "%s: cannot give it an identity, so its inode must do: %s", directory, error
                )
    record = _read(directory / CLUSTER_FILE) or b""
    if value is None:
        return Identity(derived, record)
    return Identity(value, record) if read_only else DirectoryIdentity(directory, value, record)


def _read_identity(directory: Path) -> bytes | None:
    file = directory / IDENTITY_FILE
    text = _read(file)
    if text is None:
        return None
    with suppress(ValueError):
        value = bytes.fromhex(text.decode().strip())
        if len(value) == IDENTITY_BYTES:
            return value
    raise OSError(f"{file}: it is damaged: {text[:80]!r} is not an identity")


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _write(directory: Path, name: str, data: bytes, *, replace: bool) -> None:
    """Write a file whole, and flush it; without `replace`, a file that is there stays."""
    unfinished, fd = _begin_file(directory)
    try:
        os.write(fd, data)
        os.fsync(fd)
        if replace:
            unfinished.replace(directory / name)
        else:
            with suppress(FileExistsError):
                os.link(unfinished, directory / name)
    finally:
        unfinished.unlink(missing_ok=True)
        os.close(fd)
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(at)
    finally:
        os.close(at)


def _begin_file(directory: Path) -> tuple[Path, int]:
    """Make a file, and lock it: a server that starts removes those that nobody has locked."""
    while True:
        unfinished = directory / f".ucxstore-{secrets.token_hex(8)}.partial"
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # without locks, nothing is removed
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink > 0:
            return unfinished, fd
        os.close(fd)


# ---- sources ----


def _of_object(storage: Any) -> Identity:
    """Return the identity of an object that a library has opened, or of a native storage."""
    if "obstore.store" in sys.modules:
        from obstore.store import HTTPStore, LocalStore, MemoryStore, ObjectStore

        if isinstance(storage, MemoryStore):
            return _derived(_PROCESS, id(storage))
        if isinstance(storage, LocalStore):
            return _derived("files", storage.prefix)
        if isinstance(storage, HTTPStore):
            return _derived("objects", storage.url)
        if isinstance(storage, ObjectStore):
            return _of_bucket(storage)
    if "zarr.abc.store" in sys.modules:
        from zarr.abc.store import Store

        if isinstance(storage, Store):
            # zarr writes the number of what is in memory.
            shown = str(storage)
            return _derived("zarr", shown, _PROCESS if shown.startswith("memory:") else "")
    return _new()


def _of_bucket(storage: Any) -> Identity:
    config = {str(name).lower(): str(value) for name, value in storage.config.items()}

    def named(*ends: str) -> list[str]:
        return [value for name, value in sorted(config.items()) if name.endswith(ends)]

    where = named("bucket", "bucket_name", "container", "container_name", "account_name")
    return _derived(
        type(storage).__name__, *where, _endpoint(named("endpoint")), storage.prefix or ""
    )


def _normal(url: str) -> str:
    parts = urlsplit(hide_password(url))
    scheme = {"s3a": "s3", "azure": "az", "abfss": "abfs"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}/{parts.path.strip('/')}"


def _endpoint(given: list[str]) -> str:
    found = given or [os.environ[name] for name in _ENDPOINTS if name in os.environ]
    return found[0].rstrip("/").lower() if found else ""
