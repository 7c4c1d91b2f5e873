"""`HostServer`: the server that all workers of a host share, in a process of its own.

The first worker of a host starts it, and the others find it. It stays while one of them lives, and
for a while after that; if it is lost, one of them starts another one.
"""

import logging
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from os import getuid
from pathlib import Path
from typing import NamedTuple

from ucxstore.base import logs
from ucxstore.base.address import Address, HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.options import ClientOptions
from ucxstore.base.secret import Secret
from ucxstore.client import requests
from ucxstore.client.identities import Identities, Known
from ucxstore.cluster.channels import channel_over, connectors_to
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.process.host_child import port_of
from ucxstore.server.process.host_folder import HostFolder, HostLock, HostState, wait_until
from ucxstore.server.source_thread.presence import this_process

_START_SECONDS = 50.0

# Seconds between looks at the server.
_LOOK_SECONDS = 1.0

# Seconds that the server's counters may take.
_STATS_SECONDS = 5.0

# Seconds that the server may take to end, beside the time for what is under way.
_END_SECONDS = 7.0


class Running(NamedTuple):
    """A server that a worker has, or shares with others of its host."""

    server: HostPort
    identity: bytes


class HostServer:
    """One worker's part in the server of its host.

    Parameters
    ----------
    name : str
        The deployment's.
    host : str
        The worker's address: workers with one address, of one network namespace, share a server.
    location : str
        What it serves.
    options : ServerOptions
        Its secret is held here.
    found : callable
        Called with the server, now and whenever another one has taken its place.
    """

    def __init__(
        self,
        name: str,
        host: str,
        location: str,
        options: ServerOptions,
        found: Callable[[Running], None],
    ) -> None:
        # `name` is random, so no other user knows the path before it is there.
        where = "\0".join((*map(str, this_process()[:2]), host)).encode()
        digest = blake2b(where, digest_size=6).hexdigest()
        self._folder = HostFolder(Path(tempfile.gettempdir()) / f"{name}-{getuid()}-{digest}")
        self._location = location
        self._options = replace(options, bind=HostPort(host, 0))
        self._found = found
        self._attending: HostLock | None = None
        self._reporting: HostLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: Running | None = None
        self._stats: bytes | None = None
        self._left = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ucxstore-host", daemon=True)

    @property
    def running(self) -> Running | None:
        """The server, once it was found."""
        return self._running

    @property
    def stats(self) -> bytes | None:
        """The server's last counters, as JSON; ``None`` where another worker tells them."""
        return self._stats

    def join(self) -> None:
        """Find the server of the host, or start it; blocking.

        Raises
        ------
        TimeoutError
            If it does not listen in time.
        Exception
            What the server's process says if it does not start.
        """
        deadline = time.monotonic() + _START_SECONDS
        self._attend(deadline)
        try:
            self._take(self._find(deadline))
        except BaseException:
            self._let_go()
            raise
        self._watcher.start()

    def end(self) -> None:
        """Let the server end, also while others attend."""
        self._folder.end()

    def leave(self) -> None:
        """Attend no more; wait for the server's end, if it ends now."""
        self._left.set()
        if self._watcher.ident is not None:
            self._watcher.join(_STATS_SECONDS + _LOOK_SECONDS)
        self._let_go()
        seconds = self._options.grace + _END_SECONDS
        if self._folder.ends and not wait_until(self._has_ended, seconds):
            logs.cluster.warning("the server in %s has not ended", self._folder.path)

    def _has_ended(self) -> bool:
        started = self._process
        return not self._folder.path.exists() and (started is None or started.poll() is not None)

    def _let_go(self) -> None:
        for lock in (self._attending, self._reporting):
            if lock is not None:
                lock.release()
        # The server removes the folder at its end, but not if it did not start, or was lost.
        with suppress(FileNotFoundError), self._folder.attending(shared=False) as alone:
            if alone.take() and not self._folder.is_served:
                self._folder.remove()

    def _attend(self, deadline: float) -> None:
        """Take the lock of all that attend; if the server before is just ending, once it has."""
        while True:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                self._folder.make()
                lock = self._folder.attending(shared=True)
                if lock.take(_LOOK_SECONDS):
                    self._attending = lock
                    return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self._folder.path}: cannot get the lock of a host's server")

    def _find(self, deadline: float) -> HostState:
        """Return where the server is; start it if there is none, and nobody else starts it."""
        while True:
            state = self._folder.read()
            if state is not None and self._folder.is_served:
                return state
            with self._folder.starting() as lock:
                if lock.take():
                    state = self._folder.read()
                    if state is not None and self._folder.is_served:
                        return state
                    return self._start(state, deadline)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self._folder.path}: no worker of the host starts a server")
            self._left.wait(_LOOK_SECONDS / 10)

    def _start(self, before: HostState | None, deadline: float) -> HostState:
        folder = self._folder
        for old in (folder.failure, folder.path / "server.json"):
            old.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ucxstore.server.process.host_child", str(folder.path)]
        # In a session of its own, so that what ends the worker does not end it.
        started = self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        assert started.stdin is not None
        with suppress(BrokenPipeError), started.stdin:
            started.stdin.write(self._order(before))
        while (state := folder.read()) is None:
            if started.poll() is not None:
                raise self._failure(started.returncode)
            if time.monotonic() >= deadline:
                started.kill()
                started.wait()
                raise TimeoutError("the server of the host does not listen in time")
            self._left.wait(_LOOK_SECONDS / 50)
        return state

    def _order(self, before: HostState | None) -> bytes:
        """Pickle what the process is to serve. It holds secrets, and goes through a pipe."""
        secret = self._options.secret
        assert secret is not None
        bind = HostPort(self._options.bind.host, port_of(before))
        options = replace(
            self._options, bind=bind, secret=Secret(secret.reveal(), pickle_text=True)
        )
        level = min(logs.level_of(logs.server), logging.WARNING)
        return pickle.dumps((self._location, options, level))

    def _failure(self, status: int) -> Exception:
        try:
            error = pickle.loads(self._folder.failure.read_bytes())
        except (OSError, pickle.UnpicklingError, EOFError):
            return ChildProcessError(f"the server of the host has ended with status {status}")
        return error if isinstance(error, Exception) else ChildProcessError(repr(error))

    def _take(self, state: HostState) -> None:
        (server,) = Address.parse(state.address).servers
        running = Running(server, state.identity)
        if running != self._running:
            self._running = running
            self._found(running)

    # ---- in a thread of its own ----

    def _watch(self) -> None:
        while not self._left.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:
                logs.cluster.warning("the server of this host: %s", error)

    def _look(self) -> None:
        if self._folder.ends:
            return
        if self._process is not None:
            self._process.poll()  # leaves no zombie
        state = self._folder.read()
        if state is None or not self._folder.is_served:
            logs.cluster.warning("the server of this host is lost; another one is started")
            state = self._find(time.monotonic() + _START_SECONDS)
        self._take(state)
        if self._reporting is None:
            reporting = self._folder.reporting()
            if not reporting.take():
                return
            self._reporting = reporting
        self._stats = self._ask_for_stats()

    def _ask_for_stats(self) -> bytes:
        assert self._running is not None
        server, identity = self._running
        options = ClientOptions.of(
            timeout=_STATS_SECONDS,
            connect_timeout=_STATS_SECONDS,
            secret=self._options.secret,
            select_pipeline=False,
        )
        connectors = connectors_to((server,), options)
        identities = Identities((server,), Known(told={server: identity}))
        return channel_over(connectors, identities, Counters(), options).ask_sync(requests.stats())
