"""The keywords of `Server`, for type checkers and readers.

`make stubs` makes this file of the fields of `ServerOptions`.
"""

import os
from collections.abc import Mapping
from typing import TypedDict

from ucxstore.base.options import UcxValue
from ucxstore.base.secret import Secret


class WorkerKeywords(TypedDict, total=False):
    """The options of a server whose `bind` and `memory` others choose: see `ServerKeywords`."""

    network: str | None
    data_ports: str | tuple[int, int] | None
    threads: int
    secret: str | bytes | Secret | None
    insecure: bool
    read_only: bool
    create: bool
    check: bool
    shared: bool | None
    durability: str | None
    cache: int | str | None
    cache_dir: str | os.PathLike[str] | None
    cache_dir_size: int | str | None
    block_size: int | str | None
    freshness: float | str | None
    source_timeout: float | None
    storage_options: Mapping[str, str] | None
    write_budget: int | str | None
    scratch_limit: int | str | None
    decoded: int | str | None
    when_full: str | None
    local: bool
    socket: str | os.PathLike[str] | None
    mapped_limit: int | str | None
    encrypt: bool
    max_sessions: int
    grace: float
    ucx: Mapping[str, UcxValue] | None
    progress: str
    ucx_shared_memory: bool


class ServerKeywords(WorkerKeywords, total=False):
    """The options of a server as users give them, all but `bind`. ``None`` is the default.

    Parameters
    ----------
    network : {"auto", "tcp", "ucx"} or None
        What clients of other hosts may use. tcp: the TCP connection that they have made, alone;
        ucx: also UCX, which over TCP is for trusted networks only; auto: UCX if this host has RDMA,
        without UCX's TCP, or if ucx, data_ports, ucx_shared_memory or UCX_TLS in the environment
        ask for it (default: auto). By default as ``UCXSTORE_NETWORK`` in the environment says.
    data_ports : str | tuple[int, int] | None
        The ports at which UCX listens for clients of other hosts, one for each client (default:
        any). The first and the last one, such as ``"7500-7599"``. A client has its port while it is
        connected.
    threads : int
        Threads that serve (default: 1). Sessions are spread over them.
    secret : str | bytes | Secret | None
        The secret that clients must know (default: none).
    insecure : bool
        Let other machines, and other users of this one, reach the server without a secret (default:
        no). Without it, a server without a secret serves the processes of its own user on this host
        alone.
    read_only : bool
        Refuse writes (default: no). Scratch space can be written to all the same. A server of
        ``memory://`` that offers none has nothing to serve then, and does not start.
    create : bool
        Make the directory to serve, if it does not exist (default: no). Also the folders above it.
    check : bool
        Ask an object store at the start whether it answers (default: yes). If it does not, the
        server does not start. A store of zarr's is not asked.
    shared : bool | None
        Other servers serve the same values, such as those of a network directory (default: only for
        object stores). If this server is lost, stores of several servers then use another one. A
        directory that is not shared has one server that writes to it; others do not start. Object
        stores are those that are remote, given as a URL or as obstore's.
    durability : {"atomic", "fsync"} or None
        What survives in a directory when the host crashes: atomic: each value whole, the old one or
        the new one; fsync: also all that was acknowledged (default: atomic). A power loss is such a
        crash.
    cache : int | str | None
        Memory to cache an object store's values, such as 4GiB (default: 1GiB).
    cache_dir : str | os.PathLike[str] | None
        A directory for cached values that do not fit in memory (default: none). Only one server can
        use it. It is emptied when the server starts and when it ends.
    cache_dir_size : int | str | None
        How much it may hold, such as 100GiB; cache_dir needs it (default: none).
    block_size : int | str | None
        Fetch large objects in blocks of this size (default: 4MiB). Those that are larger than two
        blocks are fetched and kept so.
    freshness : float | str | None
        How long to use a cached value before asking the object store for a newer one; 'always' to
        ask each time, 'forever' to never ask (default: until it is changed through any server of
        it; if read-only: forever). A number counts seconds.
    source_timeout : float | None
        How long a request to an object store may take, from when it is sent (default: 20). A number
        of seconds. Requests that wait for their turn fail if the source answers nothing for as
        long.
    storage_options : Mapping[str, str] | None
        An option to open an object store's URL, such as endpoint=http://host; repeatable. Other
        users can see it: put credentials into the environment (default: those of the environment,
        such as AWS_ENDPOINT_URL). In Python, a mapping by obstore's names, such as ``{"endpoint":
        ...}``. It may hold credentials there: it is not shown. For a source at other servers, it
        may have ``secret``, ``secret_file``, ``encrypt``, ``integrity``, ``local`` and ``network``,
        as for `UcxStore`; by default the secret is the server's own.
    write_budget : int | str | None
        Memory for values on their way to an object store (default: 256MiB). Further writes wait. A
        larger value is sent alone.
    scratch_limit : int | str | None
        Offer scratch space in memory beside what is served, up to this size, such as 8GiB, or
        unlimited; memory:// offers it anyway, within its own memory (default: none, but of
        memory://). All scratch spaces together take so much. A read-only server of memory needs it,
        too.
    decoded : int | str | None
        Decode the chunks of compressed arrays here, once for all readers, and keep so much of them,
        such as 32GiB (default: none). Readers on this host map or copy them, as chunks that are not
        compressed. Readers decode all others.
    memory : int | str | None
        Memory for the values of memory://, such as 64GiB; when_full says what happens beyond it
        (default: 80 % of what the control group or the machine has). Scratch spaces take of it,
        too, and so do keys and all else that values need. The control group is that of this
        process.
    when_full : str | None
        What memory:// does where there is no room. refuse: refuse writes; evict, or
        evict:PREFIX,PREFIX: lose the values that are read least, those below the prefixes alone;
        spill:DIRECTORY: move these values to files, which are removed at the end (default: refuse).
        Reads go on where writes are refused. A read of a lost value raises `EvictedError` until its
        key is set or deleted again; zarr's metadata is never lost. The directory is made if it does
        not exist. Only one server can use it. It is emptied when the server starts and when it
        ends.
    local : bool
        Serve clients of this host without UCX, over a Unix socket; they see values in shared memory
        (default: yes). Only the server can write to that memory.
    socket : str | os.PathLike[str] | None
        The path of that socket, for clients in containers that share its folder (default: a name
        without a file, for this network namespace).
    mapped_limit : int | str | None
        Bytes of values that clients of this host may keep mapped; others are copied (default: half
        of this host's memory). All clients together, such as ``"16GiB"``: views, and arrays that
        values are mapped into. What they hold cannot be freed, even once it is replaced or removed.
        Files that clients map do not count: the kernel frees their pages.
    encrypt : bool
        Encrypt what goes over a network, and refuse clients that do not; needs a secret, and
        OpenSSL 3 (default: no). Keys and values, by AES-256-GCM; both sides need OpenSSL. Clients
        of this host that share the server's memory have no use for it. All others go over plain
        TCP: UCX encrypts nothing, and is not offered.
    max_sessions : int
        How many clients may be connected at once; for one more, the server disconnects the one that
        has been idle for longest, of the host or user with the most clients (default: 4096). That
        one connects anew when it needs to. If none is idle, whoever connects is refused. An eighth
        is kept for hosts, or users of this host, that have less than that.
    grace : float
        How long requests under way may take to finish after SIGTERM or Ctrl-C; a second one ends
        the server at once (default: 8). A number of seconds, which begin when the server is to end.
    ucx : Mapping[str, UcxValue] | None
        A UCX option, such as TLS=tcp; repeatable (default: those of the environment, UCX_*). A
        mapping by name, such as ``{"TLS": "tcp"}``.

    Other Parameters
    ----------------
    durability : {"none"}
        For measurements: values that were written shortly before a crash of the host may be cut
        short, or have zeros in them.
    progress : {"polling"}
        For measurements: threads poll when they are idle; by default they sleep. Polling is for
        machines with cores to spare.
    ucx_shared_memory : True
        For measurements: clients of this host and user that ask for it (``local="ucx"``) use UCX's
        shared memory. Else UCX has none.
    """

    memory: int | str | None
