"""Serve in the foreground of a process until a signal or its parent ends it."""

import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path

from ucxstore.base import logs
from ucxstore.base.showing import one_line
from ucxstore.server.locations import hide_password
from ucxstore.server.opening.opening import Storage
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.process.log_file import LogFile
from ucxstore.server.process.notifying import Manager
from ucxstore.server.process.pid_file import PidFile
from ucxstore.server.server import Server

_ENDS = (signal.SIGTERM, signal.SIGINT)

# How long the threads may take to answer, for the watchdog.
_ANSWER_SECONDS = 5.0


def serve(
    storage: Storage,
    options: ServerOptions,
    *,
    started: Callable[[Server], object] | None = None,
    watch: int | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or the end of `watch`; then drain.

    Before it serves, these signals do what they do by default: they end the process.

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
    signals = Signals()
    with Server.from_options(storage, options) as server:
        signals.take(_ENDS)
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
    """Serve as ``ucxstore serve``: until SIGTERM or SIGINT.

    SIGHUP reloads the secret and the log. If neither is in a file, it ends the server, too: its
    terminal has closed. But not under a service manager, which means to reload, nor if whoever
    started the process has SIGHUP ignored, as ``nohup`` does.

    Before it serves, signals that end it do what they do by default: they end the process.

    Parameters
    ----------
    options : ServerOptions
    command : CommandOptions
        How the process behaves. Metrics are on loopback only, unless networks may read them, or the
        options are `insecure`.
    log : LogFile or None
        The file of the log, if it has one.
    describe : callable or None
        Returns what is printed after the addresses.
    """
    _allow_many_descriptors()
    signals = Signals()
    manager = Manager.of(os.environ)
    ends = {*_ENDS}
    if command.has_files or manager.is_there:
        signals.take([signal.SIGHUP])
    elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ends.add(signal.SIGHUP)
    with ExitStack() as stack:
        pid_file = None
        if command.pid_file is not None:
            pid_file = stack.enter_context(PidFile(command.pid_file))
        server = stack.enter_context(Server.from_options(command.location, options))
        stack.enter_context(
            _metrics(server, command.metrics, command.metrics_allow, anywhere=options.insecure)
        )
        signals.take(ends)
        if pid_file is not None:
            pid_file.write()
        status = announce(command.location, server)
        if describe is not None:
            _say(describe(server))
        manager.ready(status)
        watch = _Watch(server, manager)
        while not (came := signals.wait((), watch.left())) & ends:
            if signal.SIGHUP in came:
                manager.reloading()
                _reload(server, options, command, log)
                manager.ready(status)
            if watch.left() == 0:
                watch.look()
        if signal.SIGHUP in came:  # the terminal has closed
            _say_no_more()
        manager.stopping()
        _end(server, options)


class _Watch:
    """Tell the service manager in time that the server's threads answer, whatever else comes."""

    def __init__(self, server: Server, manager: Manager) -> None:
        self._server = server
        self._manager = manager
        self._half = math.inf if manager.watchdog is None else manager.watchdog / 2
        self._patience = min(self._half / 2, _ANSWER_SECONDS)
        self._due = time.monotonic() + self._half

    def left(self) -> float | None:
        """Return the seconds until `look` is due; ``None`` if nobody waits for it."""
        return None if self._half == math.inf else max(self._due - time.monotonic(), 0.0)

    def look(self) -> None:
        """See whether the threads answer; say so, or look again soon."""
        trouble = self._server.dead(self._patience)
        if not trouble:
            self._manager.alive()
        self._due = time.monotonic() + (self._patience if trouble else self._half)


class Signals:
    """Signals that the process waits for in place of what they would do."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def take(self, numbers: Iterable[signal.Signals]) -> None:
        """Wait for these, too, from now on."""
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
    try:
        print(text, flush=True)
    except OSError:  # nobody reads it: serve all the same
        _say_no_more()


def _say_no_more() -> None:
    """Let standard output lead nowhere, so that the process does not fail at its end."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _end(server: Server, options: ServerOptions) -> None:
    # A second signal ends the process at once. But a terminal that closes may send several SIGHUP.
    for number in _ENDS:
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
            logs.server.error(
                "cannot reopen the log; still writing to the old file: %s", one_line(error)
            )
    if options.secret is None:
        return
    try:
        secret = command.find_secret()
        if secret is None:
            raise ValueError("secret: the environment no longer has one")
        server.change_secret(secret)
    except (OSError, ValueError) as error:
        logs.server.error(
            "keeping the old secret: %s", one_line(error), extra={"event": "secret_kept"}
        )
    else:
        logs.server.info("the secret was read again", extra={"event": "secret_read"})


def _metrics(
    server: Server, bind: str | None, allow: Sequence[str], *, anywhere: bool
) -> AbstractContextManager[object]:
    if bind is None:
        if allow:
            raise ValueError("metrics_allow: needs --metrics")
        return nullcontext()
    from ucxstore.server.process.metrics import Metrics  # an HTTP server, which most do not need

    metrics = Metrics(server, bind, anywhere=anywhere, allow=allow)
    _say(f"metrics at {metrics.url}")
    return metrics


def _allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one: UCX takes a dozen descriptors for each client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
