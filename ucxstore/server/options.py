"""`ServerOptions`: all options of a server but its storage."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ucxstore.address import HostPort
from ucxstore.errors import AddressError
from ucxstore.options import (
    Progress,
    UcxConfig,
    UcxValue,
    check_progress,
    check_timeout,
    normalize_ucx,
    parse_size,
)
from ucxstore.protocol.frames import MAX_SOCKET_BYTES
from ucxstore.secret import Secret

MAX_THREADS = 256

# Of a cluster with a thousand hosts of four processes each. Sessions of clients over UCX take
# descriptors and memory, of which a server runs out sooner; then it refuses them, too.
DEFAULT_MAX_SESSIONS = 4096

# Any free port, which only this machine can reach.
LOOPBACK = HostPort("127.0.0.1", 0)

# Bytes. Small beside the memory of a machine that serves a cluster.
DEFAULT_CACHE = 1 << 30

# Seconds. Less than a client's default timeout, so that the client gets the server's error.
DEFAULT_SOURCE_TIMEOUT = 20.0

# Bytes. A block takes some 40 ms over one connection to an object store. That is more than the
# latency, so blocks take little longer than the whole object. A block has a few usual inner chunks.
DEFAULT_BLOCK_SIZE = 4 << 20

# Below this, bookkeeping and requests take longer than the bytes.
_LEAST_BLOCK = 64 << 10

# Bytes. Enough for 64 concurrent requests with chunks of usual sizes.
DEFAULT_WRITE_BUDGET = 256 << 20

# Of a directory, from the least to the most.
DURABILITIES = ("none", "atomic", "fsync")
DEFAULT_DURABILITY = "atomic"
# Seconds. Less than what Docker (10), Kubernetes (30) and systemd (90) give a process before they
# kill it.
DEFAULT_GRACE = 8.0

# Options that only apply to a source behind a cache.
_SOURCE_OPTIONS = (
    "cache",
    "block_size",
    "freshness",
    "source_timeout",
    "storage_options",
    "cache_dir",
    "cache_dir_size",
    "write_budget",
)


class ServerKeywords(TypedDict, total=False):
    """The options as users give them: all of `ServerOptions` but `bind`."""

    threads: int
    secret: str | bytes | Secret | None
    read_only: bool
    insecure: bool
    progress: str
    ucx: Mapping[str, UcxValue] | None
    shared: bool | None
    cache: int | str | None
    block_size: int | str | None
    freshness: float | str | None
    source_timeout: float | None
    storage_options: Mapping[str, str] | None
    scratch: str | None
    scratch_limit: int | str | None
    cache_dir: str | os.PathLike[str] | None
    cache_dir_size: int | str | None
    write_budget: int | str | None
    local: bool
    socket: str | os.PathLike[str] | None
    mapped_limit: int | str | None
    durability: str | None
    grace: float
    max_sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `Server`, `Server.spawn`, ``ucxstore serve`` and `ucxstore.dask.deploy`.

    The constructor checks and normalises them, and takes every form that is named below. `of` does
    the same with types that type checkers accept. ``None`` stands for the default.

    Parameters
    ----------
    bind : str
        ``host:port`` to listen at; port 0 takes any free one.
    threads : int
        Threads that serve. Sessions are spread over them.
    secret : str, bytes, Secret or None
        The secret that clients must know.
    read_only : bool
        Refuse writes.
    insecure : bool
        Let other machines, and other users of this one, reach the server without a secret. Without
        it, a server without a secret serves the processes of its own user on this host alone.
    progress : {"blocking", "polling"}
        Whether the threads sleep when nothing happens, or poll.
    ucx : mapping or None
        UCX options by name, such as ``{"TLS": "tcp"}``.
    shared : bool or None
        Whether other servers serve the same values, such as those of a network directory. If this
        server is lost, stores of several servers then use another one. ``None`` means yes for
        remote object stores, given as a URL or as obstore's, and no for everything else.
    cache : int, str or None
        Bytes of a source's values to keep in memory, such as ``"4GiB"``; 1 GiB if ``None``.
    block_size : int, str or None
        Bytes of a block; 4 MiB if ``None``. Objects larger than two blocks are fetched and kept in
        blocks.
    freshness : float, str or None
        Seconds for which a value in the cache is believed. After that, the source is asked whether
        it has another one. ``"always"`` asks each time, ``"forever"`` never. ``None``: until it is
        changed through any server of the source; for ever, if the server is read-only.
    source_timeout : float or None
        Seconds that a request to a source may take from when it is sent; 20 if ``None``. Requests
        that wait for their turn fail if the source answers nothing for as long.
    storage_options : mapping or None
        Options to open an object store's URL, by obstore's names, such as ``{"endpoint": ...}``.
        The others are taken from the environment, such as ``AWS_ENDPOINT_URL``. They may hold
        credentials, so they are not shown.
    scratch : {"memory://"} or None
        Offer scratch space in separate memory, beside the storage. If ``None``, a server of
        memory still offers it within that memory, unless it is read-only; other servers do not.
    scratch_limit : int, str or None
        Bytes that all scratch spaces may take, such as ``"8GiB"``; no limit if ``None``.
    cache_dir : str, os.PathLike or None
        A directory for cached values that have no room in memory. Only one server can use it. It
        is emptied when the server starts and when it ends.
    cache_dir_size : int, str or None
        Bytes that the directory may take.
    write_budget : int, str or None
        Bytes of values that may be on their way to a source; 256 MiB if ``None``. Further writes
        wait. A larger value is sent alone.
    local : bool
        Serve clients of this host without UCX, as is the default: they join their session on a Unix
        socket, and see values in shared memory, which only the server can write to.
    socket : str, os.PathLike or None
        The path of that socket, for clients in other containers that share its folder. ``None``
        for a name of its own, which all processes of this host's network namespace find.
    mapped_limit : int, str or None
        Bytes of values that clients of this host may hold where they lie, all together, such as
        ``"16GiB"``: views, and arrays that values are mapped into. What they hold cannot be freed,
        even once it is replaced or removed. Beyond it values are copied. Half of the memory of this
        host if ``None``. Files that clients map do not count: the kernel frees their pages.
    durability : {"none", "atomic", "fsync"} or None
        What of a directory survives a crash of the host, such as a power loss. ``"atomic"`` (and
        ``None``): a key has its old value or its new one, whole. ``"fsync"``: also, what was
        acknowledged, written or removed, is on the disk. ``"none"``: values that were written
        shortly before may be cut short, or have zeros in them.
    grace : float
        Seconds that requests under way may take to finish once the server is to end.
    max_sessions : int
        Sessions at once, each a client that is connected; 4,096 by default. An eighth of them is
        kept for hosts, or users of this host, that have less than that. Beyond it, the session ends
        that has been idle for longest, of the host or user that has most: its client connects anew
        when it needs to. If there is none, whoever connects is refused.

    Raises
    ------
    ValueError, TypeError
        If an option is not usable; the message starts with its name.
    """

    bind: HostPort = LOOPBACK
    threads: int = 1
    secret: Secret | None = None
    read_only: bool = False
    insecure: bool = False
    progress: Progress = "blocking"
    ucx: Mapping[str, UcxValue] = field(default_factory=dict)
    shared: bool | None = None
    cache: int | None = None
    block_size: int | None = None
    freshness: float | None = None  # infinity: for ever
    source_timeout: float | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    scratch: str | None = None
    scratch_limit: int | None = None
    cache_dir: str | None = None
    cache_dir_size: int | None = None
    write_budget: int | None = None
    local: bool = True
    socket: str | None = None
    mapped_limit: int | None = None
    durability: str | None = None
    grace: float = DEFAULT_GRACE
    max_sessions: int = DEFAULT_MAX_SESSIONS

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.cache_dir is None and self.cache_dir_size is not None:
            raise ValueError("cache_dir: it is needed, since cache_dir_size is given")
        if self.cache_dir is not None and self.cache_dir_size is None:
            raise ValueError("cache_dir_size: it is needed, since cache_dir is given")
        if self.socket is not None and not self.local:
            raise ValueError("socket: with local=False there is none")
        if self.mapped_limit is not None and not self.local:
            raise ValueError("mapped_limit: with local=False nothing is mapped")

    @classmethod
    def of(cls, bind: str | HostPort, options: ServerKeywords) -> "ServerOptions":
        """Check and normalise the options that a user gave."""
        given: dict[str, Any] = {**options}
        return cls(bind=bind, **given)  # type: ignore[arg-type]  # the checks convert it

    @property
    def ucx_config(self) -> UcxConfig:
        """The configuration of UCX."""
        return UcxConfig.of(self.progress, self.ucx)

    @property
    def most_mapped(self) -> int:
        """The bytes that clients of this host may hold where they lie."""
        if self.mapped_limit is not None:
            return self.mapped_limit
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2

    @property
    def has_scratch(self) -> bool:
        """Whether an option asks for scratch space beside the storage."""
        return self.scratch is not None or self.scratch_limit is not None

    def refuse_source_options(self) -> None:
        """Raise ``ValueError`` if an option is given that only applies to a source."""
        for name in _SOURCE_OPTIONS:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}: the storage is no object store and no zarr store, and only these "
                    "have a cache"
                )


def parse_bind(name: str, bind: str | HostPort) -> HostPort:
    """Parse the ``host:port`` to listen at; port 0 takes any free port."""
    if isinstance(bind, HostPort):
        return bind
    try:
        return HostPort.parse(bind)
    except AddressError as error:
        raise AddressError(f"{name}: {error}") from None


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: a number is needed, not {value!r}")
    return value


def _threads(name: str, value: int) -> int:
    if not 1 <= _whole(name, value) <= MAX_THREADS:
        raise ValueError(f"{name}: {value} is not between 1 and {MAX_THREADS}")
    return value


def _max_sessions(name: str, value: int) -> int:
    if _whole(name, value) < 1:
        raise ValueError(f"{name}: {value} is less than 1")
    return value


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: True or False is needed, not {value!r}")
    return value


def _block_size(name: str, value: int | str) -> int:
    size = parse_size(name, value)
    if size < _LEAST_BLOCK:
        raise ValueError(f"{name}: {value!r} is less than {_LEAST_BLOCK} bytes")
    return size


def _freshness(name: str, value: float | str) -> float:
    if value in {"forever", math.inf}:
        return math.inf
    if value == "always":
        return 0.0
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(
                f"{name}: {value!r} is neither 'forever', 'always', nor a number of seconds"
            ) from None
    return 0.0 if value == 0 and value is not False else check_timeout(name, value)


def _texts(name: str, values: Mapping[str, str]) -> dict[str, str]:
    found = dict(values)
    if not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise TypeError(f"{name}: names and values must be text")  # without the values: secrets
    return found


def _scratch(name: str, value: str) -> str:
    if value != "memory://":
        raise ValueError(f"{name}: {value!r} is not 'memory://', the only choice")
    return value


def _directory(name: str, value: str | os.PathLike[str]) -> str:
    path = os.fspath(value)
    if not path:
        raise ValueError(f"{name}: it is empty")
    return path


def _durability(name: str, value: str) -> str:
    if value not in DURABILITIES:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(repr, DURABILITIES))}")
    return value


def _socket(name: str, value: str | os.PathLike[str]) -> str:
    path = os.fspath(value)
    if not 0 < len(os.fsencode(path)) <= MAX_SOCKET_BYTES:
        raise ValueError(f"{name}: the path must have 1 to {MAX_SOCKET_BYTES} bytes")
    return path


def _unless_none[T, R](check: Callable[[str, T], R]) -> Callable[[str, T | None], R | None]:
    return lambda name, value: None if value is None else check(name, value)


# The function that checks and normalises each option. It accepts its own result.
_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "bind": parse_bind,
    "threads": _threads,
    "secret": lambda _, value: Secret.of(value),
    "read_only": _flag,
    "insecure": _flag,
    "progress": lambda _, value: check_progress(value),
    "ucx": lambda _, value: dict(normalize_ucx(value)),
    "shared": _unless_none(_flag),
    "cache": _unless_none(parse_size),
    "block_size": _unless_none(_block_size),
    "freshness": _unless_none(_freshness),
    "source_timeout": _unless_none(check_timeout),
    "storage_options": _unless_none(_texts),
    "scratch": _unless_none(_scratch),
    "scratch_limit": _unless_none(parse_size),
    "cache_dir": _unless_none(_directory),
    "cache_dir_size": _unless_none(parse_size),
    "write_budget": _unless_none(parse_size),
    "local": _flag,
    "socket": _unless_none(_socket),
    "mapped_limit": _unless_none(parse_size),
    "durability": _unless_none(_durability),
    "grace": lambda name, value: 0.0 if value == 0 else check_timeout(name, value),
    "max_sessions": _max_sessions,
}
