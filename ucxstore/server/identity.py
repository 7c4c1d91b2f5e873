"""`Identity`: what tells a server's storage from others, and the record of the set it belongs to.

A directory keeps its identity where listings and other programs do not meet it, and the record in a
file. Memory has a new identity whenever a server of it starts. That of an object store or a zarr
store is derived from where it is.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from ucxstore.base import logs, process
from ucxstore.base.keys import RESERVED_FOLDER
from ucxstore.protocol.frames import IDENTITY_BYTES
from ucxstore.protocol.handshake import digest
from ucxstore.server.locations import LocationKind, hide_password, parse_location
from ucxstore.server.options.server_options import ServerOptions

# The native core knows it as a file that is no key. It goes with copies of the directory: whoever
# opens one is told that it is not the member of the set, instead of missing what others have.
CLUSTER_FILE = ".ucxstore-cluster"

# Where a directory's identity is: an extended attribute of it; a file in the folder that servers
# keep for themselves, where the file system has no such attributes; and, until 0.3, a file that
# was listed, and went with copies.
ATTRIBUTE = "user.ucxstore.identity"
HIDDEN_FILE = f"{RESERVED_FOLDER}identity"
OLD_FILE = ".ucxstore-identity"

# What a file system says that has no extended attributes, or has them for others only.
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS}

# Seconds that servers wait for others that find or make the identity of the same directory.
_LOCK_SECONDS = 10.0

# Where S3's endpoint is, unless an option says so.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

# What is in the memory of this process is not what had the same number in another one.
_PROCESS = secrets.token_hex(IDENTITY_BYTES)


class Identity:
    """The identity of a storage, and the record of its set.

    Parameters
    ----------
    value : bytes
    record : bytes
        The record; empty for none.
    directory : Path or None
        A directory that may be written to, with the record in a file. Without one, the record is
        only in memory.
    """

    def __init__(self, value: bytes, record: bytes = b"", directory: Path | None = None) -> None:
        self.value = value
        self.record = record
        self._directory = directory
        self._lock = process.lock()

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
                if self._directory is not None:
                    self._store(self._directory, record)
                self.record = record
            return self.record

    def _store(self, directory: Path, record: bytes) -> None:
        """Store a record where it outlives the server."""
        # The directory at this path may be another one by now.
        if _find_identity(directory) != self.value:
            raise OSError(f"{directory}: it is not the directory that is served")
        if record:
            _write(directory, CLUSTER_FILE, record)
        else:
            (directory / CLUSTER_FILE).unlink(missing_ok=True)


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
    if kind is LocationKind.DIRECTORY:
        return _of_directory(Path(text), read_only=options.read_only)
    if kind is LocationKind.MEMORY:
        return _new()
    given = options.storage_options or {}
    named = [value for name, value in given.items() if name.lower().endswith("endpoint")]
    return _derived("objects", _normal(text), _endpoint(named))


def identify_behind(identities: Iterable[bytes], prefix: str) -> Identity:
    """Return the identity of values that other servers have below a prefix.

    It is another one after these servers have lost their values, and the same for all servers that
    have it as their source.
    """
    return _derived("servers", *(one.hex() for one in identities), prefix)


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
    value = _find_identity(directory)
    if not read_only:
        try:
            with _locked(directory):
                value = _keep_identity(directory)
        except OSError as error:
            logs.server.warning(
                "%s: cannot store an identity in it, so %s: %s",
                directory,
                "its inode serves as one" if value is None else "copies of it have the same one",
                error,
            )
    record = _read(directory / CLUSTER_FILE) or b""
    if value is None:
        return Identity(_of_inode(directory), record)
    return Identity(value, record, None if read_only else directory)


def _find_identity(directory: Path) -> bytes | None:
    """Return the identity that a directory has been given; ``None`` if it has none.

    Raises
    ------
    OSError
        If it is damaged.
    """
    value = _read_mark(directory)
    if value is None and (text := _read(directory / OLD_FILE)) is not None:
        return _parse(text, directory / OLD_FILE)
    return value


def _keep_identity(directory: Path) -> bytes:
    """Return the identity of a directory, which has it for good now."""
    value = _find_identity(directory)
    if value is None:
        is_empty = all(one.name.startswith(".ucxstore") for one in directory.iterdir())
        value = secrets.token_bytes(IDENTITY_BYTES) if is_empty else _of_inode(directory)
    if _read_mark(directory) is None:
        _write_mark(directory, f"{value.hex()} {_Birth.of(directory)}\n".encode())
    # Else a client has set it, which is the value of a key.
    if _read(directory / OLD_FILE) == f"{value.hex()}\n".encode():
        (directory / OLD_FILE).unlink(missing_ok=True)
    return value


def _of_inode(directory: Path) -> bytes:
    about = f"{os.statvfs(directory).f_fsid}/{directory.stat().st_ino}"
    return _derived("directory", about).value


def _read_mark(directory: Path) -> bytes | None:
    """Return what marks a directory; ``None`` if it has no mark, or that of another one."""
    text, where = None, f"{directory}: {ATTRIBUTE}"
    with suppress(OSError):
        text = os.getxattr(directory, ATTRIBUTE)
    if text is None:
        text, where = _read(directory / HIDDEN_FILE), str(directory / HIDDEN_FILE)
    if text is None:
        return None
    value, _, birth = text.partition(b" ")
    identity = _parse(value, where)
    # Copies take both along, and are not what was marked.
    return identity if _Birth.of(directory).may_be(birth.decode(errors="replace")) else None


def _write_mark(directory: Path, text: bytes) -> None:
    try:
        os.setxattr(directory, ATTRIBUTE, text)
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise
        hidden = directory / HIDDEN_FILE
        hidden.parent.mkdir(exist_ok=True)
        _write(hidden.parent, hidden.name, text)


def _parse(text: bytes, where: object) -> bytes:
    with suppress(ValueError):
        value = bytes.fromhex(text.decode().strip())
        if len(value) == IDENTITY_BYTES:
            return value
    raise OSError(f"{where}: it is damaged: {text[:80]!r} is not an identity")


class _Birth(NamedTuple):
    """What tells a directory from its copies: its inode, and when that was made."""

    inode: int
    nanoseconds: int  # 0 where the file system does not say

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Look at a directory."""
        # Python's `os.stat` does not have it. See statx(2).
        buffer = (ctypes.c_uint64 * 32)()
        libc = ctypes.CDLL(None, use_errno=True)
        path = os.fsencode(directory)
        born = 0
        if libc.statx(-100, path, 0, 0x800, ctypes.byref(buffer)) == 0:
            words = bytes(buffer)
            (mask,) = struct.unpack_from("I", words, 0)
            seconds, part = struct.unpack_from("qI", words, 80)
            born = seconds * 10**9 + part if mask & 0x800 else 0
        return cls(directory.stat().st_ino, born)

    def __str__(self) -> str:
        return f"{self.inode} {self.nanoseconds}"

    def may_be(self, text: str) -> bool:
        """Tell whether this text is of the same directory."""
        try:
            inode, born = map(int, text.split())
        except ValueError:
            return False
        return inode == self.inode and (born == self.nanoseconds or 0 in (born, self.nanoseconds))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Find or make the identity of a directory one server after another, where there are locks."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise OSError(f"{directory}: another process has locked it") from None
                time.sleep(0.005)
            except OSError:  # there are no locks
                break
            else:
                break
        yield
    finally:
        os.close(fd)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _write(directory: Path, name: str, data: bytes) -> None:
    """Write a file whole, and flush it."""
    unfinished, fd = _begin_file(directory)
    try:
        os.write(fd, data)
        os.fsync(fd)
        unfinished.replace(directory / name)
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
