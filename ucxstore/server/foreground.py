"""Serve in the foreground of a process until a signal or its parent ends it."""

import os
import resource
import select
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from ucxstore import logs
from ucxstore.server.command_options import CommandOptions
from ucxstore.server.options import ServerOptions
from ucxstore.server.server import Server
from ucxstore.server.sources.locations import hide_password
from ucxstore.server.sources.opening import Storage

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PLAIN = CommandOptions()


def serve(
    storage: Storage,
    options: ServerOptions,
    command: CommandOptions = _PLAIN,
    *,
    started: Callable[[str], object] | None = None,
    watch: int | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or the end of `watch`; then drain.

    Parameters
    ----------
    storage
        As `Server` takes it.
    options : ServerOptions
    command : CommandOptions
        How the process behaves. Metrics are on loopback only, unless the options are `insecure`.
    started : callable or None
        Called with the server's address once it listens.
    watch : int or None
        A descriptor. The server ends when something can be read from it, or its end.
    """
    _allow_many_descriptors()
    signalled = _signals_as_pipe()
    with (
        Server.from_options(storage, options) as server,
        _metrics(server, command.metrics, anywhere=options.insecure),
    ):
        with suppress(OSError):  # serve even if nobody reads this line
            print(f"serving {hide_password(str(storage))} at {server.address}", flush=True)
        if started is not None:
            started(server.address)
        select.select([signalled] if watch is None else [signalled, watch], [], [])
        for number in _SIGNALS:  # a second signal ends the process at once
            signal.signal(number, signal.SIG_DFL)
        if not server.drain():
            logs.server.warning("requests were still in flight after %g s", options.grace)
        server.close(0.0)


def _metrics(server: Server, bind: str | None, *, anywhere: bool) -> AbstractContextManager[object]:
    if bind is None:
        return nullcontext()
    from ucxstore.server.metrics import Metrics  # needs prometheus_client, from an extra

    metrics = Metrics(server, bind, anywhere=anywhere)
    with suppress(OSError):
        print(f"metrics at {metrics.url}", flush=True)
    return metrics


def _allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one: UCX takes a dozen descriptors for each client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _signals_as_pipe() -> int:
    """Return a descriptor that can be read once a signal has come, in whichever thread."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return reader
