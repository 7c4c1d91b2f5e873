"""``ucxstore serve``: a server in the foreground, until a signal ends it."""

import logging
import os
import resource
import select
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

from ucxstore.options import UcxValue
from ucxstore.secret import Secret
from ucxstore.server import Server

# How long requests in flight may take to finish once the process is told to end.
DRAIN_SECONDS = 10.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``ucxstore serve`` was asked for; the first ones as for `Server`.

    Parameters
    ----------
    metrics : str or None
        ``host:port`` to tell Prometheus at; loopback only, unless `insecure`.
    ready_fd : int or None
        Where to write the address, as a line, and then close, once the server listens.
    parent_fd : int or None
        The process ends, as if by SIGTERM, when this pipe does.
    """

    root: str
    bind: str
    threads: int
    secret: Secret | None
    read_only: bool
    insecure: bool
    progress: str
    ucx: Mapping[str, UcxValue]
    shared: bool | None
    metrics: str | None = None
    cache: str | None = None
    block_size: str | None = None
    freshness: str | None = None
    source_timeout: float | None = None
    scratch: str | None = None
    scratch_limit: str | None = None
    cache_dir: str | None = None
    cache_dir_size: str | None = None
    write_budget: str | None = None
    ready_fd: int | None = None
    parent_fd: int | None = None


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM, SIGINT or the parent's end; then drain, and return the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    _allow_many_descriptors()
    stop = _signals_as_pipe()
    with (
        Server(
            options.root,
            options.bind,
            threads=options.threads,
            secret=options.secret,
            read_only=options.read_only,
            insecure=options.insecure,
            progress=options.progress,
            ucx=options.ucx,
            shared=options.shared,
            cache=options.cache,
            block_size=options.block_size,
            freshness=options.freshness,
            source_timeout=options.source_timeout,
            scratch=options.scratch,
            scratch_limit=options.scratch_limit,
            cache_dir=options.cache_dir,
            cache_dir_size=options.cache_dir_size,
            write_budget=options.write_budget,
        ) as server,
        _metrics(options, server),
    ):
        _announce(options, server.address)
        select.select([stop] if options.parent_fd is None else [stop, options.parent_fd], [], [])
        for number in _SIGNALS:  # the next one does not wait
            signal.signal(number, signal.SIG_DFL)
        if not server.drain(DRAIN_SECONDS):
            logging.warning("requests were still in flight after %g s", DRAIN_SECONDS)
        server.close(0.0)
    return 0


def _metrics(options: ServeOptions, server: Server) -> AbstractContextManager[object]:
    if options.metrics is None:
        return nullcontext()
    from ucxstore.server.metrics import Metrics  # which needs an extra

    metrics = Metrics(server, options.metrics, anywhere=options.insecure)
    with suppress(OSError):
        print(f"metrics at {metrics.url}", flush=True)
    return metrics


def _allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one: UCX takes a dozen descriptors for each client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _signals_as_pipe() -> int:
    """Turn signals into something that can be read; whichever thread the system gives them to."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return reader


def _announce(options: ServeOptions, address: str) -> None:
    with suppress(OSError):  # that nobody reads it is no reason not to serve
        print(f"serving {options.root} at {address}", flush=True)
    if options.ready_fd is not None:
        with os.fdopen(options.ready_fd, "w") as ready:
            ready.write(f"{address}\n")
