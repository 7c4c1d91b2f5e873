"""Serve in the foreground of a process until a signal or its parent ends it."""

import os
import resource
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING

from ucxstore import logs
from ucxstore.server.command_options import CommandOptions
from ucxstore.server.log_file import LogFile
from ucxstore.server.notifying import Manager
from ucxstore.server.options import ServerOptions
from ucxstore.server.pid_file import PidFile
from ucxstore.server.server import Server
from ucxstore.server.sources.locations import hide_password
from ucxstore.server.sources.opening import Storage

if TYPE_CHECKING:
    pass

_ENDS = (signal.SIGTERM, signal.SIGINT)

# How long the thread that accepts clients may take to answer, for the watchdog.
_ANSWER_SECONDS = 5.0


def serve(
    storage: Storage,
    options: ServerOptions,
    *,
    started: Callable[[Server], object] | None = None,
    watch: int | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or the end of `watch`; then drain.

    Parameters
    ----------
    storage
        As `Server` takes it.
    options : ServerOptions
    started : callable or None
        Called with the server once it listens.
    watch : int or None
        A descriptor. The server ends when something can be read from it, or its end.
    """
    _allow_many_descriptors()
    signals = Signals(_ENDS)
    with Server.from_options(storage, options) as server:
        announce(storage, server)
        if started is not None:
            started(server)
        signals.wait(() if watch is None else (watch,), None)
        _end(server, options)


def serve_command(
    options: ServerOptions,
    command: CommandOptions,
    *,
    log: LogFile | None = None,
    describe: Callable[[Server], str] | None = None,
) -> None:
    """Serve as ``ucxstore serve``: until SIGTERM or SIGINT; SIGHUP reloads the secret and the log.

    Parameters
    ----------
    options : ServerOptions
    command : CommandOptions
        How the process behaves. Metrics are on loopback only, unless the options are `insecure`.
    log : LogFile or None
        The file of the log, if it has one.
    describe : callable or None
        Returns what is printed after the addresses.
    """
    _allow_many_descriptors()
    signals = Signals((*_ENDS, signal.SIGHUP))
    manager = Manager.of(os.environ)
    with ExitStack() as stack:
        pid_file = None
        if command.pid_file is not None:
            pid_file = stack.enter_context(PidFile(command.pid_file))
        server = stack.enter_context(Server.from_options(command.location, options))
        stack.enter_context(
            _metrics(server, command.metrics, command.metrics_allow, anywhere=options.insecure)
        )
        if pid_file is not None:
            pid_file.write()
        status = announce(command.location, server)
        if describe is not None:
            _say(describe(server))
        manager.ready(status)
        pause = None if manager.watchdog is None else manager.watchdog / 2
        while not (came := signals.wait((), pause)) & {*_ENDS}:
            if signal.SIGHUP in came:
                manager.reloading()
                _reload(server, options, command, log)
                manager.ready(status)
            elif pause is not None and not server.dead(min(pause, _ANSWER_SECONDS)):
                manager.alive()
        manager.stopping()
        _end(server, options)


class Signals:
    """Signals that the process waits for in place of what they would do.

    Parameters
    ----------
    numbers : sequence of signal.Signals
    """

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

    def wait(self, others: Sequence[int], timeout: float | None) -> set[int]:
        """Wait for a signal, or for `others` to be readable; return the signals that have come."""
        select.select([self._reader, *others], [], [], timeout)
        with suppress(BlockingIOError):
            return {*os.read(self._reader, 4096)}
        return set()


def announce(storage: Storage, server: Server) -> str:
    """Print what is served, and where, in one line; return it."""
    line = f"serving {hide_password(str(storage))} at {server.address}"
    _say(line)
    return line


def _say(text: str) -> None:
    with suppress(OSError):  # serve even if nobody reads it
        print(text, flush=True)


def _end(server: Server, options: ServerOptions) -> None:
    for number in _ENDS:  # a second signal ends the process at once
        signal.signal(number, signal.SIG_DFL)
    if not server.drain():
        logs.server.warning("requests were still in flight after %g s", options.grace)
    server.close(0.0)


def _reload(
    server: Server, options: ServerOptions, command: CommandOptions, log: LogFile | None
) -> None:
    """Open the log anew, and read the secret again. What fails leaves things as they are."""
    if log is not None:
        try:
            log.reopen()
        except OSError as error:
            logs.server.error("the log goes on in the old file: %s", error)
    if options.secret is None:
        return
    try:
        secret = command.find_secret()
        if secret is None:
            raise ValueError("secret: the environment has none any more")
        server.change_secret(secret)
    except (OSError, ValueError) as error:
        logs.server.error("the old secret stays: %s", error, extra={"event": "secret_kept"})
    else:
        logs.server.info("the secret was read again", extra={"event": "secret_read"})


def _metrics(
    server: Server, bind: str | None, allow: Sequence[str], *, anywhere: bool
) -> AbstractContextManager[object]:
    if bind is None:
        if allow:
            raise ValueError("metrics_allow: without metrics (--metrics) nobody reads any")
        return nullcontext()
    from ucxstore.server.metrics import Metrics  # an HTTP server, which most do not need

    metrics = Metrics(server, bind, anywhere=anywhere, allow=allow)
    _say(f"metrics at {metrics.url}")
    return metrics


def _allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one: UCX takes a dozen descriptors for each client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
