"""`Server`: serve a storage to every client that knows the secret."""

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from ucxstore.base import grants, logs, process
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ConnectError
from ucxstore.base.native import core
from ucxstore.base.options import UcxConfig
from ucxstore.base.rdma import has_rdma
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_details, html_table
from ucxstore.base.stats import ServerStats, figures, parse_server_stats
from ucxstore.protocol.frames import Welcome
from ucxstore.server.accepting.acceptor import Acceptor
from ucxstore.server.accepting.data_ports import DataPorts
from ucxstore.server.accepting.joining import Joining
from ucxstore.server.accepting.listen import (
    addresses,
    advertise,
    hidden_name,
    is_loopback,
    listen,
    listen_locally,
)
from ucxstore.server.accepting.reception import Reception
from ucxstore.server.accepting.sessions import NewSessions
from ucxstore.server.accepting.users import admit_all, admit_own_user
from ucxstore.server.disk_space import DiskSpace, Space
from ucxstore.server.identity import identify
from ucxstore.server.locations import hide_password
from ucxstore.server.opening.opening import (
    NativeStorage,
    Storage,
    is_shared,
    open_decoded,
    open_scratch,
    open_storage,
)
from ucxstore.server.operating import Operating
from ucxstore.server.options.keywords import ServerKeywords
from ucxstore.server.options.server_options import LOOPBACK, ServerOptions
from ucxstore.server.options.ucx_offer import UcxOffer, offer_of
from ucxstore.server.spawn import START_SECONDS, ServerProcess
from ucxstore.server.tier_records import keep_records

if TYPE_CHECKING:
    from ucxstore.server.source_thread.carrier import Carrier

# For the thread of a source, if the server could not be made.
_UNMADE_SECONDS = 5.0

# For a server that nobody closed: the garbage collector and the interpreter's exit wait for it.
_FORGOTTEN_SECONDS = 1.0

# To join the other servers of a source. If that takes longer, the source is asked meanwhile.
_JOIN_SECONDS = 3.0

# The least time that UCX gets to cancel what is in flight, once the time to finish it is over.
_RELEASE_SECONDS = 0.5


class Server:
    """A server in threads of this process. A context manager; leaving it closes the server.

    It listens and serves as soon as it is made.

    Parameters
    ----------
    storage : str, os.PathLike, MemoryStorage, DirectoryStorage, obstore or zarr store
        Where the values are. ``"memory://"``; a directory, as a path or ``file://`` URL, which
        ``create=True`` makes if it does not exist; or a storage of the native core. Or a source
        behind a cache: an object store, by its URL (``s3://``, ``gs://``, ``az://``, ``http://``,
        ``https://``) or as an object of obstore's; or any zarr store, which only the server may use
        from then on.
    bind : str
        ``host:port`` to listen at; port 0 takes any free one. Loopback by default.
    **options
        See `ServerOptions`.

    Raises
    ------
    ValueError, TypeError
        If an option is not usable; the message starts with its name.
    OSError
        If a directory is missing, or cannot be made or used, or the address cannot be bound.
    StorageError
        If an object store does not answer as it should, or another server writes to the directory.
    """

    def __init__(
        self,
        storage: Storage,
        bind: str | HostPort = LOOPBACK,
        **options: Unpack[ServerKeywords],
    ) -> None:
        self._start(storage, ServerOptions.of(bind, options))

    @classmethod
    def from_options(cls, storage: Storage, options: ServerOptions) -> Self:
        """Start a server with a `ServerOptions` object."""
        server = cls.__new__(cls)
        server._start(storage, options)
        return server

    @staticmethod
    def spawn(
        storage: Storage,
        bind: str | HostPort = LOOPBACK,
        *,
        die_with_parent: bool = True,
        start_timeout: float = START_SECONDS,
        **options: Unpack[ServerKeywords],
    ) -> ServerProcess:
        """Start a server in a process of its own, and wait until it listens.

        Parameters
        ----------
        storage
            As for `Server`, if it can be sent to another process. Text can, and so can most stores
            of obstore's and zarr's. Values in the memory of this process cannot.
        bind : str
            ``host:port`` to listen at; port 0 takes any free one.
        die_with_parent : bool
            Let the server end when this process ends, also after a crash.
        start_timeout : float
            Seconds that it may take to start.
        **options
            As for `Server`.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable, or the storage cannot be sent; the message starts with the
            option's name.
        ChildProcessError
            If it does not start; the message has its output.
        TimeoutError
            If it does not listen in time.
        """
        return ServerProcess(
            storage,
            ServerOptions.of(bind, options),
            die_with_parent=die_with_parent,
            start_timeout=start_timeout,
        )

    def _start(self, storage: Storage, options: ServerOptions) -> None:
        logs.refresh()
        secret = b"" if options.secret is None else _reveal(options.secret)
        if options.encrypt:
            _check_openssl()
        shared = is_shared(storage) if options.shared is None else options.shared
        if shared and storage == "memory://":
            raise ValueError("shared: no other server can serve the memory of this one")
        with ExitStack() as on_failure:
            listener = listen(options.bind, anywhere=options.insecure or bool(secret))
            on_failure.callback(listener.close)
            self._address = advertise(options.bind, listener)
            _warn_if_hidden(options, listener)
            offer = offer_of(options, os.environ, rdma=has_rdma())
            _warn_if_open(offer, options, listener)
            data_ports = _find_data_ports(options)
            opened, carrier, leave, identity = open_storage(storage, options)
            if carrier is not None:
                on_failure.callback(carrier.close, _UNMADE_SECONDS)
            on_failure.callback(leave)
            joining = None
            if options.local:
                joining = Joining(listen_locally(options.socket))
                on_failure.callback(joining.close)
            identity = identity or identify(storage, options)
            native = _make_native(opened, options, offer)
            on_failure.callback(native.close, _UNMADE_SECONDS)
            records = keep_records(storage, carrier, options)
            native.set_operators(Operating(native, carrier, records))
            of_source = {} if carrier is None else carrier.counted
            for each in figures():
                if each.of_source:
                    native.tell(each.name, of_source.get(each.name, core.Counter()))
            reception = Reception(
                NewSessions(native, options.threads, data_ports),
                secret,
                identity,
                _terms_of(options, identity.value, opened, offer, shared=shared),
                joining,
                admit_all if options.insecure or secret else admit_own_user,
                core.Agreement if options.encrypt else None,
            )
            acceptor = Acceptor(listener, reception)
            if carrier is not None and carrier.members.is_shared:
                reception.on_peer = carrier.members.adopt
                hosts = addresses(options.bind, listener)
                port = listener.getsockname()[1]
                from ucxstore.server.source_thread.peer_driver import Contact

                carrier.members.join(Contact(hosts, port, secret, options.encrypt), _JOIN_SECONDS)
            on_failure.pop_all()
        logs.server.info(
            "serving %s at %s",
            hide_password(str(storage)),
            self._address,
            extra={"event": "started", "detail": f"{hide_password(str(storage))}"},
        )
        self._storage = storage
        self._secret = options.secret
        self._grace = options.grace
        self._identity = identity.value
        self._disk = _find_disk(opened, options)
        self._threads = _Threads(native, acceptor, carrier, leave)
        self._finalizer = process.Finalizer(
            self, process.Exit.SERVERS, self._threads.close, _FORGOTTEN_SECONDS
        )

    @property
    def address(self) -> str:
        """The address of the server: ``"ucx://127.0.0.1:41234"``."""
        return self._address

    @property
    def identity(self) -> bytes:
        """The identity of its storage: that of memory is another one whenever a server starts."""
        return self._identity

    @property
    def sessions(self) -> int:
        """The number of clients that are connected."""
        return 0 if self._threads.closed else self._threads.native.sessions

    def change_secret(self, secret: str | bytes | Secret) -> None:
        """Ask clients for another secret from now on. Those that are connected stay.

        The server must have had a secret from the start.

        Raises
        ------
        ValueError
            If it is no secret for a server, or the server has had none.
        """
        changed = Secret(secret) if not isinstance(secret, Secret) else secret
        text, carrier = _reveal(changed), self._threads.carrier
        self._threads.acceptor.reception.change_secret(text)
        if carrier is not None and carrier.members.is_shared:
            carrier.members.change_secret(text)
        self._secret = changed

    def _reached_by(self) -> tuple[str, Secret | None]:
        """Do as `ucxstore.base.options.reached_by` says, for `UcxStore(server)`."""
        return self._address, self._secret

    def stats(self) -> ServerStats:
        """Return the counters since the start; once closed, those at the end.

        Returns
        -------
        ServerStats
            As `UcxStore.server_stats`: a frozen dataclass that prints as a table. It is a
            dictionary, too.
        """
        return parse_server_stats(self.stats_json())

    def stats_json(self) -> bytes:
        """Return the same as JSON, as it goes over the wire."""
        last = self._threads.last_stats
        return self._threads.native.stats_json() if last is None else last

    def disk_space(self) -> Space | None:
        """Return how full the disk is that the directory is on, or that of the cache.

        Returns
        -------
        Space or None
            Its `free` bytes and its `size`. ``None`` if the server has neither, or the file system
            does not answer within a second.
        """
        return None if self._disk is None or self._threads.closed else self._disk.read()

    def failures(self) -> dict[str, int]:
        """Return how many requests have failed, by why: see docs/operations.md."""
        threads = self._threads
        return dict(threads.last_failures) if threads.closed else threads.native.failures()

    def latencies(self) -> dict[str, tuple[list[int], float]]:
        """Return how long requests took, by their kind.

        Each is a list, of requests that took up to 10 us, up to twice that and so on, and at the
        end of all others; and the seconds of all together. The time runs from when a request has
        come until its reply has gone.
        """
        threads = self._threads
        return dict(threads.last_latencies) if threads.closed else threads.native.latencies()

    def dead(self, timeout: float = 2.0) -> str:
        """Return which of its threads does not answer within `timeout` seconds; "" if all do."""
        threads = self._threads
        if threads.closed:
            return "the server is closed"
        end = time.monotonic() + timeout
        accepting = threads.acceptor.ask()  # both at once
        serving = threads.native.answers(timeout)
        if not threads.draining and not (
            accepting is not None and accepting.wait(max(end - time.monotonic(), 0.0))
        ):
            return "the thread that accepts clients does not answer"
        if threads.carrier is not None and not threads.carrier.is_alive:
            return "the thread for the source has ended"
        if not serving:
            return f"a thread has not answered for {timeout:g} s"
        return ""

    def unready(self, timeout: float = 2.0) -> str:
        """Return why it takes no requests now, or cannot answer them; "" if it does.

        A source is asked whether it answers, at most once a second.

        Parameters
        ----------
        timeout : float
            Seconds that this may take.
        """
        threads = self._threads
        if threads.draining and not threads.closed:
            return "the server is draining"
        return self.dead(timeout) or (
            "" if threads.carrier is None else threads.carrier.trouble(timeout)
        )

    def drain(self, timeout: float | None = None) -> bool:
        """Accept no more clients, tell those that are there, and wait for what is under way.

        Clients finish what they have begun, send nothing more, and go: to another server, if there
        are several of the same values, or to the one that takes this one's place.

        Parameters
        ----------
        timeout : float, optional
            Seconds; the server's `grace` by default.

        Returns
        -------
        bool
            Whether nothing is under way any more.
        """
        seconds = self._grace if timeout is None else timeout
        return not self._finalizer.is_mine or self._threads.drain(seconds)

    def close(self, timeout: float | None = None) -> None:
        """Drain for up to `timeout` seconds, then end every session. A second call does nothing.

        Parameters
        ----------
        timeout : float, optional
            Seconds; the server's `grace` by default.
        """
        self._finalizer(self._grace if timeout is None else timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _state(self) -> str:
        return "closed" if self._threads.closed else "serving"

    def __repr__(self) -> str:
        storage = hide_password(repr(self._storage))
        return f"<Server {storage} at {self._address!r}, {self._state()}>"

    def _repr_html_(self) -> str:
        rows = [
            ("storage", hide_password(repr(self._storage))),
            ("state", self._state()),
            ("clients", str(self.sessions)),
        ]
        counters = html_details("Counters", self.stats().html())
        return html_block("Server", self._address, html_table(rows), counters)


def _find_data_ports(options: ServerOptions) -> DataPorts | None:
    """Return the ports for UCX; raise ``OSError`` if none is free."""
    if options.data_ports is None:
        return None
    ports = DataPorts(*options.data_ports)
    free = ports.count_free()
    if not free:
        raise OSError(errno.EADDRINUSE, f"data_ports: no port of {ports} is free")
    # A few are kept by Linux for a minute after each restart.
    if 2 * free <= len(ports):
        logs.server.warning("data_ports: %d of the %d ports %s are free", free, len(ports), ports)
    return ports


def _warn_if_hidden(options: ServerOptions, listener: socket.socket) -> None:
    """Say so if the name that was to be bound is an address of this host alone."""
    if (here := hidden_name(options.bind, listener)) is not None:
        logs.server.warning(
            "bind: %s is %s on this host (see /etc/hosts), so no other host reaches this "
            "server; 0.0.0.0:%d listens at all addresses, and needs a secret",
            options.bind.host,
            here,
            options.bind.port,
        )


def _warn_if_open(offer: UcxOffer | None, options: ServerOptions, listener: socket.socket) -> None:
    """Say so if whoever reaches this host reaches UCX's TCP, too."""
    if offer is not None and offer.over_tcp and not is_loopback(listener.getsockname()[0]):
        logs.server.warning(
            "network: UCX over TCP believes whoever connects to its ports, and encrypts nothing: "
            "use it in trusted networks only (docs/security.md)"
        )


def _terms_of(
    options: ServerOptions,
    identity: bytes,
    opened: NativeStorage | core.CachedSource,
    offer: UcxOffer | None,
    *,
    shared: bool,
) -> Welcome:
    return Welcome(
        token=b"",
        identity=identity,
        read_only=options.read_only,
        shared=shared,
        volatile=isinstance(opened, core.MemoryStorage) and not shared,
        shares_memory=offer is not None and options.ucx_shared_memory,
        offers_ucx=offer is not None,
        decodes=options.decoded is not None,
    )


def _make_native(
    opened: NativeStorage | core.CachedSource, options: ServerOptions, offer: UcxOffer | None
) -> core.Server:
    config = UcxConfig() if offer is None else offer.config
    # What a user has said of UCX is tried at once.
    at_once = offer is not None and offer.is_asked
    return core.Server(
        opened,
        options.threads,
        (
            dict(config.options),
            config.polling,
            not at_once or (options.local and config == UcxConfig()),
            options.ucx_shared_memory,
        ),
        options.read_only,
        open_scratch(opened, options),
        options.max_sessions,
        open_decoded(options),
    )


def _find_disk(opened: object, options: ServerOptions) -> DiskSpace | None:
    """Return the disk of the directory that is served, or of the cache."""
    if isinstance(opened, core.DirectoryStorage):
        return DiskSpace(opened.fileno())
    if options.cache_dir is not None:
        return DiskSpace(str(Path(options.cache_dir).absolute()))
    return None


def _reveal(secret: Secret) -> bytes:
    text = secret.reveal()
    if grants.is_grant(text):
        raise ValueError("secret: a grant is for clients; a server needs the secret itself")
    return text


def _check_openssl() -> None:
    """Raise ``ValueError`` if nothing can be encrypted here."""
    try:
        agreed = core.Agreement().public_key
        core.SealedStream(agreed, agreed)  # which needs more of OpenSSL; nothing is sent by it
    except ConnectError as error:
        raise ValueError(f"encrypt: {error}") from error


class _Threads:
    """The threads of a server: drain and close them. A forked child has none of them.

    They do not refer to the `Server`, so it can be collected, and its finalizer closes them.

    Parameters
    ----------
    native : core.Server
    acceptor : Acceptor
    carrier : Carrier or None
        The thread for a source behind a cache; ``None`` for other storages.
    leave : callable
        Leaves the storage to other servers, once nothing is served any more.

    Attributes
    ----------
    draining : bool
    last_stats, last_failures, last_latencies
        What the server has counted, once it is closed.
    """

    def __init__(
        self,
        native: core.Server,
        acceptor: Acceptor,
        carrier: "Carrier | None",
        leave: Callable[[], None],
    ) -> None:
        self.native = native
        self.acceptor = acceptor
        self.carrier = carrier
        self._leave = leave
        self._lock = process.lock()
        self.last_stats: bytes | None = None
        self.last_failures: dict[str, int] = {}
        self.last_latencies: dict[str, tuple[list[int], float]] = {}
        self.draining = False

    @property
    def closed(self) -> bool:
        return self.last_stats is not None

    def drain(self, timeout: float) -> bool:
        if not self.draining:
            self.draining = True
            sessions = self.native.sessions
            logs.server.info(
                "draining: %d clients finish what they have begun",
                sessions,
                extra={"event": "draining", "count": sessions},
            )
        end = time.monotonic() + timeout
        self.acceptor.stop(timeout)
        return self.native.drain(max(end - time.monotonic(), 0.0))

    def close(self, timeout: float) -> None:
        if self.acceptor.is_current_thread or (
            self.carrier is not None and self.carrier.is_current_thread
        ):
            # The garbage collector called this. A thread cannot wait for its own end.
            threading.Thread(
                target=self.close, args=(timeout,), name="ucxstore-end", daemon=True
            ).start()
            return
        with self._lock:
            if self.last_stats is None:
                end = time.monotonic() + timeout
                self.drain(timeout)
                self.last_failures = self.native.failures()
                self.last_latencies = self.native.latencies()
                self.last_stats = self.native.stats_json()
                self.native.close(max(end - time.monotonic(), _RELEASE_SECONDS))
                if self.carrier is not None:
                    self.carrier.close(max(end - time.monotonic(), _RELEASE_SECONDS))
                self._leave()
                logs.server.info("ended", extra={"event": "ended"})
