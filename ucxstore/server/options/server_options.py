"""`ServerOptions`: all options of a server but its storage."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from ucxstore.base.address import HostPort
from ucxstore.base.environment import check_variables
from ucxstore.base.options import (
    Progress,
    UcxConfig,
    UcxValue,
    check_progress,
    check_timeout,
    normalize_ucx,
    parse_size,
)
from ucxstore.base.secret import Secret
from ucxstore.server.options import checks
from ucxstore.server.options.available import default_memory
from ucxstore.server.options.checks import parse_bind as parse_bind
from ucxstore.server.options.checks import unless_none
from ucxstore.server.options.described import check_fields, option, unlisted

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

# Bytes. Enough for 64 concurrent requests with chunks of usual sizes.
DEFAULT_WRITE_BUDGET = 256 << 20

# Of a directory; see `option_checks.DURABILITIES`.
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


class WorkerKeywords(TypedDict, total=False):
    """The options of a server as users give them whose `bind` and `memory` others choose."""

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
    when_full: str | None
    local: bool
    ucx_shared_memory: bool
    socket: str | os.PathLike[str] | None
    mapped_limit: int | str | None
    durability: str | None
    grace: float
    max_sessions: int
    create: bool
    check: bool
    data_ports: str | tuple[int, int] | None
    encrypt: bool


class ServerKeywords(WorkerKeywords, total=False):
    """The options as users give them: all of `ServerOptions` but `bind`."""

    memory: int | str | None


def _half_of_memory() -> int:
    """Return half of the bytes of this host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `Server`, `Server.spawn`, ``ucxstore serve`` and `ucxstore.dask.deploy`.

    The constructor checks and normalises them, and takes every form that is named below. `of` does
    the same with types that type checkers accept. ``None`` stands for the default.

    Parameters
    ----------
    bind : str
        ``host:port`` to listen at; port 0 takes any free one.
    data_ports : str, tuple of (int, int) or None
        The first and the last port at which UCX listens for clients of other hosts, such as
        ``"7500-7599"``. Each of these clients takes one while it is connected. ``None`` for any
        free ports.
    threads : int
        Threads that serve. Sessions are spread over them.
    secret : str, bytes, Secret or None
        The secret that clients must know.
    read_only : bool
        Refuse writes, but of scratch space. A server of ``memory://`` that offers no scratch space
        has nothing to serve then, and does not start.
    create : bool
        Make the directory to serve, and the folders above it, if it does not exist.
    insecure : bool
        Let other machines, and other users of this one, reach the server without a secret. Without
        it, a server without a secret serves the processes of its own user on this host alone.
    progress : {"blocking", "polling"}
        Whether the threads sleep when nothing happens, or poll.
    ucx : mapping or None
        UCX options by name, such as ``{"TLS": "tcp"}``.
    shared : bool or None
        Whether other servers serve the same values, such as those of a network directory. If this
        server is lost, stores of several servers then use another one. A directory that is not
        shared has one server that writes to it; others do not start. ``None`` means yes for remote
        object stores, given as a URL or as obstore's, and no for everything else.
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
    check : bool
        Ask an object store at the start whether it answers. If it does not, the server does not
        start. A store of zarr's is not asked.
    storage_options : mapping or None
        Options to open an object store's URL, by obstore's names, such as ``{"endpoint": ...}``.
        The others are taken from the environment, such as ``AWS_ENDPOINT_URL``. They may hold
        credentials, so they are not shown.
    scratch : {"memory://"} or None
        Offer scratch space in separate memory, beside the storage. If ``None``, a server of
        memory still offers it within that memory, unless it is read-only; other servers do not.
    scratch_limit : int, str or None
        Bytes that all scratch spaces may take, such as ``"8GiB"``; if ``None``, no limit, but of a
        server of memory what `memory` leaves.
    memory : int, str or None
        Bytes of memory that the values of a server of memory may take, and its scratch spaces
        within it, such as ``"64GiB"``: with their keys, and all that they need besides. `when_full`
        says what happens beyond it. If ``None``, 80 % of what the control group of this process
        allows, or of the machine's memory.
    when_full : str or None
        What a server of memory does with values that have no room. ``"refuse"`` (and ``None``):
        writes are refused, while reads go on. ``"evict:PREFIX[,PREFIX]"``: values below these
        prefixes are a cache, and those that are read least are lost. ``"evict"``: all values are a
        cache. A read of a lost value raises `EvictedError` until its key is set or deleted again;
        zarr's metadata is never lost. ``"spill:DIRECTORY"``: the values that are read least are
        moved to files, and read from there. The directory is made if it does not exist. Only one
        server can use it. It is emptied when the server starts and when it ends.
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
    ucx_shared_memory : bool
        Let clients of this host and user that ask for it (``UcxStore(local="ucx")``) use UCX's
        shared memory, to compare it with the above. Else UCX has none.
    socket : str, os.PathLike or None
        The path of that socket, for clients in other containers that share its folder. ``None``
        for a name of its own, which all processes of this host's network namespace find.
    mapped_limit : int, str or None
        Bytes of values that all clients of this host together may hold in the server's memory,
        such as ``"16GiB"``: views, and arrays that values are mapped into. What they hold cannot be
        freed, even once it is replaced or removed. Beyond it values are copied. Half of the memory
        of this host if ``None``. Files that clients map do not count: the kernel frees their pages.
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
    encrypt : bool
        Encrypt all that goes over UCX, keys and values, and refuse clients over UCX that do not:
        by AES-256-GCM, for which OpenSSL 3 must be installed at both sides. It needs a secret.
        Clients of this host that share its memory have no use for it.

    Raises
    ------
    ValueError, TypeError
        If an option is not usable; the message starts with its name.
    """

    bind: HostPort = option(  # noqa: RUF009
        LOOPBACK,
        "the address to listen at; port 0 takes any free one",
        group="where it listens, and for whom",
        check=checks.parse_bind,
        default_text="127.0.0.1:0",
        metavar="HOST:PORT",
    )
    data_ports: tuple[int, int] | None = option(
        None,
        "the ports at which UCX listens for clients of other hosts, one for each client",
        check=unless_none(checks.check_ports),
        default_text="any",
        metavar="FIRST-LAST",
    )
    threads: int = option(
        1, "threads that serve", "whole", check=checks.check_threads, default_text="1"
    )
    secret: Secret | None = unlisted(  # noqa: RUF009
        None, lambda _, value: Secret.of(value)
    )
    insecure: bool = option(
        False,
        "let other machines, and other users of this one, reach the server without a secret",
        "flag",
        check=checks.check_flag,
        default_text="no",
    )
    read_only: bool = option(
        False,
        "refuse writes",
        "flag",
        group="what it serves",
        check=checks.check_flag,
        default_text="no",
    )
    create: bool = option(
        False,
        "make the directory to serve, if it does not exist",
        "flag",
        check=checks.check_flag,
        default_text="no",
    )
    check: bool = option(
        True,
        "ask an object store at the start whether it answers",
        "flag",
        check=checks.check_flag,
        default_text="yes",
    )
    shared: bool | None = option(
        None,
        "other servers serve the same LOCATION, such as a network directory",
        "flag",
        check=unless_none(checks.check_flag),
        default_text="only for object stores",
    )
    durability: str | None = option(
        None,
        "what survives in a directory when the host crashes: atomic: each value whole, the old one "
        "or the new one; fsync: also all that was acknowledged; none: anything may be torn",
        "choice",
        check=unless_none(checks.check_durability),
        default_text="atomic",
        stands_for=DEFAULT_DURABILITY,
        choices=checks.DURABILITIES,
    )
    cache: int | None = option(
        None,
        "memory to cache an object store's values, such as 4GiB",
        "size",
        group="an object store, and the cache in front of it",
        check=unless_none(parse_size),
        default_text="1GiB",
        stands_for=DEFAULT_CACHE,
    )
    cache_dir: str | None = option(
        None,
        "a directory for cached values that do not fit in memory",
        check=unless_none(checks.check_directory),
        default_text="none",
        metavar="DIRECTORY",
    )
    cache_dir_size: int | None = option(
        None,
        "how much it may hold, such as 100GiB; cache_dir needs it",
        "size",
        check=unless_none(parse_size),
        default_text="none",
    )
    block_size: int | None = option(
        None,
        "fetch large objects in blocks of this size",
        "size",
        check=unless_none(checks.check_block_size),
        default_text="4MiB",
        stands_for=DEFAULT_BLOCK_SIZE,
    )
    freshness: float | None = option(  # infinity: for ever
        None,
        "how long to use a cached value before asking the object store for a newer one; 'always' "
        "to ask each time, 'forever' to never ask",
        "seconds",
        check=unless_none(checks.check_freshness),
        default_text="until it is changed through any server of it; if read-only: forever",
    )
    source_timeout: float | None = option(
        None,
        "how long a request to an object store may take, from when it is sent",
        "seconds",
        check=unless_none(check_timeout),
        default_text="20",
        stands_for=DEFAULT_SOURCE_TIMEOUT,
    )
    storage_options: Mapping[str, str] | None = option(
        None,
        "an option to open an object store's URL, such as endpoint=http://host; repeatable. Other "
        "users can see it: put credentials into the environment",
        "pairs",
        check=unless_none(checks.check_texts),
        default_text="those of the environment, such as AWS_ENDPOINT_URL",
        is_shown=False,
    )
    write_budget: int | None = option(
        None,
        "memory for values on their way to an object store",
        "size",
        check=unless_none(parse_size),
        default_text="256MiB",
        stands_for=DEFAULT_WRITE_BUDGET,
    )
    scratch: str | None = option(
        None,
        "offer scratch space in memory beside LOCATION; if LOCATION is memory://, it is offered "
        "anyway",
        group="memory",
        check=unless_none(checks.check_scratch),
        default_text="none",
        metavar="memory://",
    )
    scratch_limit: int | None = option(
        None,
        "memory for scratch space, such as 8GiB",
        "size",
        check=unless_none(parse_size),
        default_text="no limit",
    )
    memory: int | None = option(
        None,
        "memory for the values of memory://, such as 64GiB; when_full says what happens beyond it",
        "size",
        check=unless_none(checks.check_memory),
        default_text="80 % of what the control group or the machine has",
        stands_for=default_memory,
    )
    when_full: str | None = option(
        None,
        "what memory:// does where there is no room. refuse: refuse writes; evict, or "
        "evict:PREFIX,PREFIX: lose the values that are read least, those below the prefixes alone; "
        "spill:DIRECTORY: move these values to files, which are removed at the end",
        check=unless_none(checks.check_when_full),
        default_text="refuse",
        metavar="POLICY",
    )
    local: bool = option(
        True,
        "serve clients of this host without UCX, over a Unix socket; they see values in shared "
        "memory",
        "flag",
        group="clients of this host",
        check=checks.check_flag,
        default_text="yes",
    )
    ucx_shared_memory: bool = option(
        False,
        "let clients of this host and user that ask for it use UCX's shared memory, for comparison",
        "flag",
        check=checks.check_flag,
        default_text="no",
    )
    socket: str | None = option(
        None,
        "the path of that socket, for clients in containers that share its folder",
        check=unless_none(checks.check_socket),
        default_text="a name without a file, for this network namespace",
        metavar="PATH",
    )
    mapped_limit: int | None = option(
        None,
        "bytes of values that clients of this host may keep mapped; others are copied",
        "size",
        check=unless_none(parse_size),
        default_text="half of this host's memory",
        stands_for=_half_of_memory,
    )
    encrypt: bool = option(
        False,
        "encrypt what goes over UCX, and refuse clients that do not; needs a secret, and OpenSSL 3",
        "flag",
        group="connections and threads",
        check=checks.check_flag,
        default_text="no",
    )
    max_sessions: int = option(
        DEFAULT_MAX_SESSIONS,
        "how many clients may be connected at once; for one more, the server disconnects the one "
        "that has been idle for longest, of the host or user with the most clients",
        "whole",
        check=checks.check_max_sessions,
        default_text=str(DEFAULT_MAX_SESSIONS),
    )
    grace: float = option(
        DEFAULT_GRACE,
        "how long requests under way may take to finish after SIGTERM or Ctrl-C; a second one ends "
        "the server at once",
        "seconds",
        check=checks.check_grace,
        default_text=f"{DEFAULT_GRACE:g}",
    )
    progress: Progress = option(  # noqa: RUF009
        "blocking",
        "whether threads sleep when idle, or poll",
        "choice",
        check=lambda _, value: check_progress(value),
        default_text="blocking",
        choices=("blocking", "polling"),
    )
    ucx: Mapping[str, UcxValue] = option(
        dict,
        "a UCX option, such as TLS=tcp; repeatable",
        "pairs",
        check=lambda _, value: dict(normalize_ucx(value)),
        default_text="those of the environment, UCX_*",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.create and self.read_only:
            raise ValueError("create: a read-only server cannot make a directory")
        if self.data_ports is not None and "TCP_PORT_RANGE" in self.ucx:
            raise ValueError("data_ports: conflicts with TCP_PORT_RANGE in ucx")
        if self.cache_dir is None and self.cache_dir_size is not None:
            raise ValueError("cache_dir: missing; cache_dir_size needs it")
        if self.cache_dir is not None and self.cache_dir_size is None:
            raise ValueError("cache_dir_size: missing; cache_dir needs it")
        if self.socket is not None and not self.local:
            raise ValueError("socket: with local=False, a server has no socket")
        if self.mapped_limit is not None and not self.local:
            raise ValueError("mapped_limit: with local=False, clients map nothing")
        if self.encrypt and self.secret is None:
            raise ValueError("encrypt: it needs a secret, which the keys are made from")

    @classmethod
    def of(cls, bind: str | HostPort, options: ServerKeywords) -> "ServerOptions":
        """Check and normalise the options that a user gave.

        Raises
        ------
        ValueError, TypeError
            As the constructor. Also if the environment has a variable that begins with
            ``UCXSTORE_``, and is none of ours.
        """
        check_variables(os.environ)
        given: dict[str, Any] = {**options}
        return cls(bind=bind, **given)  # type: ignore[arg-type]  # the checks convert it

    @property
    def ucx_config(self) -> UcxConfig:
        """The configuration of UCX."""
        if self.data_ports is None:
            return UcxConfig.of(self.progress, self.ucx)
        first, last = self.data_ports
        return UcxConfig.of(self.progress, {**self.ucx, "TCP_PORT_RANGE": f"{first}-{last}"})

    @property
    def most_mapped(self) -> int:
        """The bytes of values that clients of this host may hold in memory."""
        return _half_of_memory() if self.mapped_limit is None else self.mapped_limit

    @property
    def has_scratch(self) -> bool:
        """Whether an option asks for scratch space beside the storage."""
        return self.scratch is not None or self.scratch_limit is not None

    def refuse_source_options(self) -> None:
        """Raise ``ValueError`` if an option is given that only applies to a source."""
        for name in _SOURCE_OPTIONS:
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: only an object store or a zarr store has a cache")
        if not self.check:
            raise ValueError("check: only an object store can be asked")
