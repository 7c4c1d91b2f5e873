"""`ServerOptions`: all options of a server but its storage."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ucxstore.base.address import HostPort
from ucxstore.base.environment import check_variables
from ucxstore.base.options import (
    Network,
    Progress,
    UcxConfig,
    UcxValue,
    check_network,
    check_timeout,
)
from ucxstore.base.secret import Secret
from ucxstore.server.options import checks
from ucxstore.server.options.available import default_memory
from ucxstore.server.options.checks import parse_bind as parse_bind
from ucxstore.server.options.described import check_fields, option
from ucxstore.server.options.keywords import ServerKeywords

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


def _half_of_memory() -> int:
    """Return half of the bytes of this host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `Server`, `Server.spawn`, ``ucxstore serve`` and `ucxstore.dask.deploy`.

    The constructor checks and normalises them, and takes every form that `Server` takes. If one is
    not usable, it raises ``ValueError`` or ``TypeError``; the message starts with the option's
    name. `of` does the same with types that type checkers accept. `ServerKeywords` has the same
    options as keywords.
    """

    bind: HostPort = option(  # noqa: RUF009
        LOOPBACK,
        "the address to listen at; port 0 takes any free one",
        check=checks.parse_bind,
        metavar="HOST:PORT",
        group="where it listens, and for whom",
    )
    network: Network | None = option(  # noqa: RUF009
        None,
        "what clients of other hosts may use. tcp: the TCP connection that they have made, alone; "
        "ucx: also UCX, which over TCP is for trusted networks only; auto: UCX if this host has "
        "RDMA, without UCX's TCP, or if ucx, data_ports, ucx_shared_memory or UCX_TLS in the "
        "environment ask for it",
        """By default as ``UCXSTORE_NETWORK`` in the environment says.""",
        check=checks.check_way,
        choices=("auto", "tcp", "ucx"),
        default_text="auto",
        stands_for=partial(check_network, None),
    )
    data_ports: tuple[int, int] | None = option(
        None,
        "the ports at which UCX listens for clients of other hosts, one for each client",
        """The first and the last one, such as ``"7500-7599"``. A client has its port while it is
        connected.""",
        check=checks.check_ports,
        default_text="any",
        metavar="FIRST-LAST",
    )
    threads: int = option(
        1,
        "threads that serve",
        "Sessions are spread over them.",
        check=partial(checks.check_whole, least=1, most=checks.MAX_THREADS),
    )
    secret: Secret | None = option(  # noqa: RUF009
        None,
        "the secret that clients must know",
        check=checks.check_secret,
        is_listed=False,
    )
    insecure: bool = option(
        False,
        "let other machines, and other users of this one, reach the server without a secret",
        """Without it, a server without a secret serves the processes of its own user on this host
        alone.""",
    )
    read_only: bool = option(
        False,
        "refuse writes",
        """Scratch space can be written to all the same. A server of ``memory://`` that offers none
        has nothing to serve then, and does not start.""",
        group="what it serves",
    )
    create: bool = option(
        False,
        "make the directory to serve, if it does not exist",
        "Also the folders above it.",
    )
    check: bool = option(
        True,
        "ask an object store at the start whether it answers",
        "If it does not, the server does not start. A store of zarr's is not asked.",
    )
    shared: bool | None = option(
        None,
        "other servers serve the same values, such as those of a network directory",
        """If this server is lost, stores of several servers then use another one. A directory that
        is not shared has one server that writes to it; others do not start. Object stores are those
        that are remote, given as a URL or as obstore's.""",
        form="flag",
        default_text="only for object stores",
    )
    durability: str | None = option(
        None,
        "what survives in a directory when the host crashes: atomic: each value whole, the old one "
        "or the new one; fsync: also all that was acknowledged",
        "A power loss is such a crash.",
        check=checks.check_durability,
        stands_for=DEFAULT_DURABILITY,
        choices=checks.DURABILITIES,
        for_measurements={
            "none": "values that were written shortly before a crash of the host may be cut short, "
            "or have zeros in them"
        },
    )
    cache: int | None = option(
        None,
        "memory to cache an object store's values, such as 4GiB",
        form="size",
        default_text="1GiB",
        stands_for=DEFAULT_CACHE,
        group="an object store, and the cache in front of it",
    )
    cache_dir: str | None = option(
        None,
        "a directory for cached values that do not fit in memory",
        "Only one server can use it. It is emptied when the server starts and when it ends.",
        check=checks.check_directory,
        metavar="DIRECTORY",
    )
    cache_dir_size: int | None = option(
        None, "how much it may hold, such as 100GiB; cache_dir needs it", form="size"
    )
    block_size: int | None = option(
        None,
        "fetch large objects in blocks of this size",
        "Those that are larger than two blocks are fetched and kept so.",
        form="size",
        check=partial(checks.check_size, least=checks.LEAST_BLOCK),
        default_text="4MiB",
        stands_for=DEFAULT_BLOCK_SIZE,
    )
    freshness: float | None = option(  # infinity: for ever
        None,
        "how long to use a cached value before asking the object store for a newer one; 'always' "
        "to ask each time, 'forever' to never ask",
        "A number counts seconds.",
        form="seconds",
        check=checks.check_freshness,
        default_text="until it is changed through any server of it; if read-only: forever",
    )
    source_timeout: float | None = option(
        None,
        "how long a request to an object store may take, from when it is sent",
        """A number of seconds. Requests that wait for their turn fail if the source answers nothing
        for as long.""",
        form="seconds",
        check=check_timeout,
        stands_for=DEFAULT_SOURCE_TIMEOUT,
    )
    storage_options: Mapping[str, str] | None = option(
        None,
        "an option to open an object store's URL, such as endpoint=http://host; repeatable. Other "
        "users can see it: put credentials into the environment",
        """In Python, a mapping by obstore's names, such as ``{"endpoint": ...}``. It may hold
        credentials there: it is not shown. For a source at other servers, it may have ``secret``,
        ``secret_file``, ``encrypt``, ``integrity``, ``local`` and ``network``, as for `UcxStore`;
        by default the secret is the server's own.""",
        form="pairs",
        check=checks.check_texts,
        default_text="those of the environment, such as AWS_ENDPOINT_URL",
        is_shown=False,
    )
    write_budget: int | None = option(
        None,
        "memory for values on their way to an object store",
        "Further writes wait. A larger value is sent alone.",
        form="size",
        default_text="256MiB",
        stands_for=DEFAULT_WRITE_BUDGET,
    )
    scratch_limit: int | None = option(
        None,
        "offer scratch space in memory beside what is served, up to this size, such as 8GiB, or "
        "unlimited; memory:// offers it anyway, within its own memory",
        "All scratch spaces together take so much. A read-only server of memory needs it, too.",
        form="size",
        check=checks.check_scratch_limit,
        default_text="none, but of memory://",
        group="memory",
    )
    decoded: int | None = option(
        None,
        "decode the chunks of compressed arrays here, once for all readers, and keep so much of "
        "them, such as 32GiB",
        """Readers on this host map or copy them, as chunks that are not compressed. Readers decode
        all others.""",
        form="size",
        check=partial(checks.check_size, least=checks.LEAST_MEMORY),
        default_text="none",
    )
    memory: int | None = option(
        None,
        "memory for the values of memory://, such as 64GiB; when_full says what happens beyond it",
        """Scratch spaces take of it, too, and so do keys and all else that values need. The control
        group is that of this process.""",
        form="size",
        check=partial(checks.check_size, least=checks.LEAST_MEMORY),
        default_text="80 % of what the control group or the machine has",
        stands_for=default_memory,
    )
    when_full: str | None = option(
        None,
        "what memory:// does where there is no room. refuse: refuse writes; evict, or "
        "evict:PREFIX,PREFIX: lose the values that are read least, those below the prefixes alone; "
        "spill:DIRECTORY: move these values to files, which are removed at the end",
        """Reads go on where writes are refused. A read of a lost value raises `EvictedError` until
        its key is set or deleted again; zarr's metadata is never lost. The directory is made if it
        does not exist. Only one server can use it. It is emptied when the server starts and when it
        ends.""",
        check=checks.check_when_full,
        default_text="refuse",
        metavar="POLICY",
    )
    local: bool = option(
        True,
        "serve clients of this host without UCX, over a Unix socket; they see values in shared "
        "memory",
        "Only the server can write to that memory.",
        group="clients of this host",
    )
    socket: str | None = option(
        None,
        "the path of that socket, for clients in containers that share its folder",
        check=checks.check_socket,
        default_text="a name without a file, for this network namespace",
        metavar="PATH",
    )
    mapped_limit: int | None = option(
        None,
        "bytes of values that clients of this host may keep mapped; others are copied",
        """All clients together, such as ``"16GiB"``: views, and arrays that values are mapped into.
        What they hold cannot be freed, even once it is replaced or removed. Files that clients map
        do not count: the kernel frees their pages.""",
        form="size",
        default_text="half of this host's memory",
        stands_for=_half_of_memory,
    )
    encrypt: bool = option(
        False,
        "encrypt what goes over a network, and refuse clients that do not; needs a secret, and "
        "OpenSSL 3",
        """Keys and values, by AES-256-GCM; both sides need OpenSSL. Clients of this host that share
        the server's memory have no use for it. All others go over plain TCP: UCX encrypts nothing,
        and is not offered.""",
        group="connections and threads",
    )
    max_sessions: int = option(
        DEFAULT_MAX_SESSIONS,
        "how many clients may be connected at once; for one more, the server disconnects the one "
        "that has been idle for longest, of the host or user with the most clients",
        """That one connects anew when it needs to. If none is idle, whoever connects is refused. An
        eighth is kept for hosts, or users of this host, that have less than that.""",
        check=partial(checks.check_whole, least=1),
    )
    grace: float = option(
        DEFAULT_GRACE,
        "how long requests under way may take to finish after SIGTERM or Ctrl-C; a second one ends "
        "the server at once",
        "A number of seconds, which begin when the server is to end.",
        check=checks.check_grace,
    )
    ucx: Mapping[str, UcxValue] = option(
        dict,
        "a UCX option, such as TLS=tcp; repeatable",
        """A mapping by name, such as ``{"TLS": "tcp"}``.""",
        form="pairs",
        check=checks.check_ucx,
        default_text="those of the environment, UCX_*",
    )
    progress: Progress = option(  # noqa: RUF009
        "blocking",
        "whether threads sleep when idle, or poll",
        "Polling is for machines with cores to spare.",
        check=checks.check_polling,
        choices=("blocking", "polling"),
        group="for measurements",
        for_measurements={"polling": "threads poll when they are idle; by default they sleep"},
    )
    ucx_shared_memory: bool = option(
        False,
        "let clients of this host and user that ask for it use UCX's shared memory, for comparison",
        "Else UCX has none.",
        for_measurements={
            "yes": 'clients of this host and user that ask for it (``local="ucx"``) use '
            "UCX's shared memory"
        },
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.create and self.read_only:
            raise ValueError("create: a read-only server cannot make a directory")
        if self.data_ports is not None and "TCP_PORT_RANGE" in self.ucx:
            raise ValueError("data_ports: conflicts with TCP_PORT_RANGE in ucx")
        if self.network == "tcp" and self.asks_for_ucx:
            raise ValueError(
                "network: with 'tcp', a server has no UCX, which ucx, data_ports and "
                "ucx_shared_memory ask for"
            )
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
        if self.encrypt and self.network == "ucx":
            raise ValueError(
                "network: 'ucx' and encrypt exclude one another, as UCX encrypts nothing"
            )

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
    def network_way(self) -> Network:
        """What clients of other hosts may use."""
        return check_network(self.network)

    @property
    def asks_for_ucx(self) -> bool:
        """Whether an option other than `network` asks for UCX."""
        return bool(self.ucx) or self.data_ports is not None or self.ucx_shared_memory

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

    def refuse_source_options(self) -> None:
        """Raise ``ValueError`` if an option is given that only applies to a source."""
        for name in _SOURCE_OPTIONS:
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: only an object store or a zarr store has a cache")
        if not self.check:
            raise ValueError("check: only an object store can be asked")


ServerOptions.__doc__ = f"{ServerOptions.__doc__}\n{ServerKeywords.__doc__}"
