"""`ServerOptions`: the options of a server, beside its storage."""

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
from ucxstore.secret import Secret

MAX_THREADS = 256

# Any free port that this machine alone can reach.
LOOPBACK = HostPort("127.0.0.1", 0)

# Bytes. Small beside the memory of a machine that serves a cluster.
DEFAULT_CACHE = 1 << 30

# Seconds. Less than a client's default timeout, so that the client learns what failed, and where.
DEFAULT_SOURCE_TIMEOUT = 20.0

# Bytes. Some 40 ms at the speed of one connection to an object store: more than its latency, so
# that blocks cost little more than the whole; and a few inner chunks of usual sizes.
DEFAULT_BLOCK_SIZE = 4 << 20

# Below this, blocks cost more in bookkeeping and requests than in bytes.
_LEAST_BLOCK = 64 << 10

# Bytes. Enough for the 64 requests that are made at once, of chunks of usual sizes.
DEFAULT_WRITE_BUDGET = 256 << 20

# Those that mean something for a source behind a cache alone.
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
    """The options as users give them: all that `ServerOptions` takes, but for `bind`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `Server`, `Server.spawn`, ``ucxstore serve`` and `ucxstore.dask.deploy`.

    They are checked and normalised when this is made, and may be given in any form that is named
    below; `of` is the same for type checkers. ``None`` stands for the default.

    Parameters
    ----------
    bind : str
        ``host:port`` to listen at; port 0 takes any free one.
    threads : int
        Threads that serve. Sessions are spread over them.
    secret : str, bytes, Secret or None
        What clients must know.
    read_only : bool
        Refuse writes.
    insecure : bool
        Allow other machines to reach the server without a secret.
    progress : {"blocking", "polling"}
        Whether the threads sleep when nothing happens, or poll.
    ucx : mapping or None
        UCX options by name, such as ``{"TLS": "tcp"}``.
    shared : bool or None
        Whether other servers serve the same values, as of a network directory: stores of several
        servers then turn to another one where this one is lost. ``None``: for object stores
        elsewhere, by their URL or as obstore's, and for nothing else.
    cache : int, str or None
        Bytes of a source's values to keep in memory, such as ``"4GiB"``; 1 GiB if ``None``.
    block_size : int, str or None
        Bytes of a block: objects larger than two are fetched and kept in blocks; 4 MiB if
        ``None``.
    freshness : float, str or None
        Seconds for which a value in the cache is believed, before the source is asked whether it
        has another one; ``"always"`` asks each time, ``"forever"`` (and ``None``) never.
    source_timeout : float or None
        Seconds that a request to a source may take; 20 if ``None``.
    storage_options : mapping or None
        How an object store's URL is opened, by obstore's names, such as ``{"endpoint": ...}``; what
        is not there is looked for in the environment, such as ``AWS_ENDPOINT_URL``. They may hold
        credentials, so they are not shown.
    scratch : {"memory://"} or None
        Offer scratch space in memory of its own, beside what is served. A server of memory offers
        it within that anyway, unless it is read-only; others do not, if it is ``None``.
    scratch_limit : int, str or None
        Bytes that all scratch spaces may take, such as ``"8GiB"``; any, if ``None``.
    cache_dir : str, os.PathLike or None
        A directory for what has no room in memory, of this server alone; it is emptied at the
        server's start and end.
    cache_dir_size : int, str or None
        Bytes that the directory may take.
    write_budget : int, str or None
        Bytes of values that may be on their way to a source; clients wait with more. 256 MiB if
        ``None``. A value that is larger goes alone.

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
    freshness: float | None = None  # infinity: for ever, as None is
    source_timeout: float | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    scratch: str | None = None
    scratch_limit: int | None = None
    cache_dir: str | None = None
    cache_dir_size: int | None = None
    write_budget: int | None = None

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.cache_dir is None and self.cache_dir_size is not None:
            raise ValueError("cache_dir: a size for it is given, but no directory")
        if self.cache_dir is not None and self.cache_dir_size is None:
            raise ValueError("cache_dir_size: how many bytes the directory may take is needed")

    @classmethod
    def of(cls, bind: str | HostPort, options: ServerKeywords) -> "ServerOptions":
        """Check and normalise what a user gave."""
        given: dict[str, Any] = {**options}
        return cls(bind=bind, **given)  # type: ignore[arg-type]  # which the checks make of it

    @property
    def ucx_config(self) -> UcxConfig:
        """How UCX is set up."""
        return UcxConfig.of(self.progress, self.ucx)

    @property
    def has_scratch(self) -> bool:
        """Whether scratch space beside what is served is asked for."""
        return self.scratch is not None or self.scratch_limit is not None

    def refuse_source_options(self) -> None:
        """Raise ``ValueError`` if there is an option that only a source behind a cache has."""
        for name in _SOURCE_OPTIONS:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}: the storage is no object store, nor another source behind a cache: "
                    "memory and directories are served from where they are"
                )


def parse_bind(name: str, bind: str | HostPort) -> HostPort:
    """Parse where to listen, ``host:port``; port 0 takes any free port."""
    if isinstance(bind, HostPort):
        return bind
    try:
        return HostPort.parse(bind)
    except AddressError as error:
        raise AddressError(f"{name}: {error}") from None


def _threads(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: a number is needed, not {value!r}")
    if not 1 <= value <= MAX_THREADS:
        raise ValueError(f"{name}: {value} is not between 1 and {MAX_THREADS}")
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
        raise TypeError(f"{name}: names and values must be text")  # values are not shown
    return found


def _scratch(name: str, value: str) -> str:
    if value != "memory://":
        raise ValueError(f"{name}: {value!r} is not 'memory://', which is where it can be")
    return value


def _directory(name: str, value: str | os.PathLike[str]) -> str:
    path = os.fspath(value)
    if not path:
        raise ValueError(f"{name}: it is empty")
    return path


def _unless_none[T, R](check: Callable[[str, T], R]) -> Callable[[str, T | None], R | None]:
    return lambda name, value: None if value is None else check(name, value)


# What each option must be, and what becomes of it. What they return passes them again.
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
}
