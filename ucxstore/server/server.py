"""`Server`: holds values, and serves them to every client that knows the secret."""

import os
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ucxstore._native import core
from ucxstore.options import UcxConfig, UcxValue
from ucxstore.secret import Secret
from ucxstore.server.acceptor import Acceptor
from ucxstore.server.listen import advertise, listen, parse_bind
from ucxstore.server.parts import ServerParts
from ucxstore.server.sources.opening import Root, is_shared, open_root, open_scratch
from ucxstore.server.sources.options import ScratchOptions, StorageOptions
from ucxstore.server.spawn import START_SECONDS, ServerProcess

MAX_THREADS = 256

CLOSE_SECONDS = 5.0
# For a server that was forgotten: it must keep neither the collector nor the interpreter waiting.
_FORGOTTEN_SECONDS = 1.0


class Server:
    """A server in threads of this process. A context manager; leaving it closes the server.

    It listens and serves as soon as it is made.

    Parameters
    ----------
    root : str, os.PathLike, MemoryStorage, DirectoryStorage, obstore or zarr store
        What holds the values: ``"memory://"``, a directory (as a path or ``file://`` URL, made if
        it does not exist), a storage of the native core; or an object store behind a cache, by its
        URL (``s3://``, ``gs://``, ``az://``, ``http://``, ``https://``) or as an object of
        obstore's; or any zarr store behind a cache, which is then used by the server alone.
    bind : str
        ``host:port`` to listen at; port 0 takes any free one.
    threads : int
        Threads that serve. Sessions are spread over them.
    secret : str, bytes, Secret or None
        What clients must know.
    read_only : bool
        Refuse writes.
    insecure : bool
        Allow to be reached from other machines without a secret.
    progress : {"blocking", "polling"}
        Whether the threads sleep when nothing happens, or poll.
    ucx : mapping or None
        UCX options by name, such as ``{"TLS": "tcp"}``.
    shared : bool or None
        Whether other servers serve the very same values, as of a network directory: stores of
        several servers then turn to another one where this one is lost. ``None``: for object stores
        elsewhere, by their URL or as obstore's, and for nothing else.
    cache : int, str or None
        Bytes of an object store's values to keep in memory, such as ``"4GiB"``; 1 GiB if ``None``.
    block_size : int, str or None
        Bytes of a block: objects larger than two are fetched and kept in blocks; 4 MiB if
        ``None``.
    freshness : float, str or None
        Seconds for which a value in the cache is believed, before the object store is asked whether
        it has another one; ``"always"`` asks each time, ``"forever"`` (and ``None``) never.
    source_timeout : float
        Seconds that a request to an object store may take.
    storage_options : mapping or None
        How an object store's URL is opened, by obstore's names, such as ``{"endpoint": ...}``; what
        is not there is looked for in the environment, such as ``AWS_ENDPOINT_URL``.
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
        Bytes of values that may be on their way to an object store; clients wait with more. 256 MiB
        if ``None``. A value that is larger goes alone.

    Raises
    ------
    ValueError, TypeError
        If an option is not usable; the message starts with its name.
    OSError
        If a directory cannot be made or used, or the address not be bound.
    """

    def __init__(
        self,
        root: Root,
        bind: str = "127.0.0.1:0",
        threads: int = 1,
        secret: str | bytes | Secret | None = None,
        read_only: bool = False,
        insecure: bool = False,
        progress: str = "blocking",
        ucx: Mapping[str, UcxValue] | None = None,
        shared: bool | None = None,
        cache: int | str | None = None,
        block_size: int | str | None = None,
        freshness: float | str | None = None,
        source_timeout: float | None = None,
        storage_options: Mapping[str, str] | None = None,
        scratch: str | None = None,
        scratch_limit: int | str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_dir_size: int | str | None = None,
        write_budget: int | str | None = None,
    ) -> None:
        config = UcxConfig.of(progress, ucx)
        known = Secret.of(secret)
        key = b"" if known is None else known.reveal()
        _check_threads(threads)
        if shared is None:
            shared = is_shared(root)
        elif shared and root == "memory://":
            raise ValueError("shared: no other server serves the memory of this one")
        options = StorageOptions.of(
            cache=cache,
            block_size=block_size,
            freshness=freshness,
            source_timeout=source_timeout,
            storage_options=storage_options,
            cache_dir=cache_dir,
            cache_dir_size=cache_dir_size,
            write_budget=write_budget,
        )
        spaces = ScratchOptions.of(scratch, scratch_limit)
        place = parse_bind(bind)
        with ExitStack() as on_failure:
            listener = listen(place, anywhere=insecure or bool(key))
            on_failure.callback(listener.close)
            self._address = advertise(place, listener)
            storage, carrier = open_root(root, options)
            if carrier is not None:
                on_failure.callback(carrier.close, CLOSE_SECONDS)
            native = core.Server(
                storage,
                threads,
                dict(config.options),
                config.polling,
                read_only,
                open_scratch(storage, spaces, read_only=read_only),
            )
            acceptor = Acceptor(
                listener,
                native,
                threads,
                key,
                read_only=read_only,
                shared=shared,
                volatile=isinstance(storage, core.MemoryStorage) and not shared,
            )
            on_failure.pop_all()
        self._root = root
        self._parts = ServerParts(native, acceptor, carrier)
        self._finalizer = weakref.finalize(self, self._parts.close, _FORGOTTEN_SECONDS)

    @staticmethod
    def spawn(
        root: str | os.PathLike[str],
        bind: str = "127.0.0.1:0",
        threads: int = 1,
        secret: str | bytes | Secret | None = None,
        read_only: bool = False,
        insecure: bool = False,
        progress: str = "blocking",
        ucx: Mapping[str, UcxValue] | None = None,
        shared: bool | None = None,
        cache: int | str | None = None,
        block_size: int | str | None = None,
        freshness: float | str | None = None,
        source_timeout: float | None = None,
        scratch: str | None = None,
        scratch_limit: int | str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_dir_size: int | str | None = None,
        write_budget: int | str | None = None,
        *,
        die_with_parent: bool = True,
        start_timeout: float = START_SECONDS,
    ) -> ServerProcess:
        """Start a server in a process of its own, and wait until it listens.

        Parameters
        ----------
        root, bind, threads, secret, read_only, insecure, progress, ucx, shared, cache, \
        block_size, freshness, source_timeout, scratch, scratch_limit, cache_dir, cache_dir_size, \
        write_budget
            As for `Server`, except that `root` must be a path or a URL.
        die_with_parent : bool
            Let the server end when this process does, however it does.
        start_timeout : float
            Seconds that it may take to start.

        Raises
        ------
        ChildProcessError
            If it does not start; the message holds what it wrote.
        TimeoutError
            If it is not listening in time.
        """
        return ServerProcess(
            os.fsdecode(root),
            bind,
            threads=threads,
            secret=Secret.of(secret),
            read_only=read_only,
            insecure=insecure,
            ucx=UcxConfig.of(progress, ucx),
            shared=shared,
            storage=StorageOptions.of(
                cache=cache,
                block_size=block_size,
                freshness=freshness,
                source_timeout=source_timeout,
                cache_dir=cache_dir,
                cache_dir_size=cache_dir_size,
                write_budget=write_budget,
            ),
            scratch=ScratchOptions.of(scratch, scratch_limit),
            die_with_parent=die_with_parent,
            start_timeout=start_timeout,
        )

    @property
    def address(self) -> str:
        """Where clients reach the server: ``"ucx://127.0.0.1:41234"``."""
        return self._address

    @property
    def incarnation(self) -> bytes:
        """What tells this start of the server from any other at the same address."""
        return self._parts.incarnation

    @property
    def sessions(self) -> int:
        """How many clients are connected."""
        return self._parts.sessions

    def stats(self) -> dict[str, int]:
        """Count what was served, since the start; after `close`, until then."""
        return self._parts.stats()

    def drain(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Take no more clients, and wait until nothing is in flight; whether that came about."""
        return self._parts.drain(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Drain for up to `timeout` seconds, then end every session. Does nothing twice."""
        self._finalizer.detach()
        self._parts.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server({self._root!r}, address={self._address!r})"


def _check_threads(threads: int) -> None:
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads: a number is needed, not {threads!r}")
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"threads: {threads} is not between 1 and {MAX_THREADS}")
