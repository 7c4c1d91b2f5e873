"""`ServerPlugin`: the Dask worker plugin that runs a server in a worker."""

import asyncio
import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.diagnostics.plugin import WorkerPlugin

from ucxstore.base.address import Address, HostPort
from ucxstore.base.counters import keep_totals
from ucxstore.base.stats import ServerStats, parse_server_stats
from ucxstore.dask.dashboard import METRIC as FIGURES
from ucxstore.dask.figures import figures_of, figures_without
from ucxstore.dask.host_server import HostServer, Running
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.server.locations import LocationKind, parse_location
from ucxstore.server.opening.directories import check_directory
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.options.when_full import WhenFull
from ucxstore.server.sources.upstream_options import with_secret_of_source

if TYPE_CHECKING:
    from ucxstore._core import MemoryStorage
    from ucxstore.server import Server

# The worker's metric for the bytes of values in its memory. It is a column of the dashboard's table
# of workers; Dask itself only knows these bytes as unmanaged memory.
METRIC = "ucxstore_bytes"

_INPROC = "inproc://"  # workers in threads of one process: loopback is enough


class ServerPlugin(WorkerPlugin):
    """A worker plugin that runs a server until the plugin is removed or the worker ends.

    Or it shares its host's server, which is a process of its own.

    Parameters
    ----------
    name : str
        The deployment's name.
    storage : str
        ``"memory://"``, a directory that all workers see, or an object store's URL.
    memory : int
        Bytes of values that a server may hold in memory.
    options : ServerOptions
        The secret must pickle its text, since Dask sends the plugin to workers as a pickle. `bind`
        is set in the worker, to the worker's address.
    shares : bool
        Whether the workers of a host have one server together.
    """

    def __init__(
        self, name: str, storage: str, memory: int, options: ServerOptions, *, shares: bool
    ) -> None:
        self.name = name
        self.shares = shares
        self._location = storage
        self._memory = memory
        self._options = options
        self._held: DeploymentSecret | None = None
        self._storage: MemoryStorage | None = None
        self._leave: Callable[[], None] | None = None
        self._server: Server | None = None
        self._of_host: HostServer | None = None

    @property
    def running(self) -> Running | None:
        """The server, if it has started."""
        if self._of_host is not None:
            return self._of_host.running
        if self._server is None:
            return None
        (server,) = Address.parse(self._server.address).servers
        return Running(server, self._server.identity)

    @property
    def bytes_held(self) -> int:
        """Bytes of values in the worker's memory, or that the server of its host has."""
        if self._of_host is not None:
            stats = self._of_host.stats
            return 0 if stats is None else _held(parse_server_stats(stats))
        if self._storage is not None:
            return self._storage.held
        if self._server is None:
            return 0
        return _held(self._server.stats())

    def figures(self) -> dict[str, Any] | None:
        """Return the counters of the server and of this process's stores; ``None`` without one."""
        running = self.running
        if running is None:
            return None
        if self._of_host is not None:
            told = self._of_host.stats
            if told is None:
                return figures_without(str(running.server), self._totals)
            counted = told
        else:
            assert self._server is not None
            counted = self._server.stats_json()
        return figures_of(str(running.server), self.bytes_held, self._memory, counted, self._totals)

    async def setup(self, worker: Worker) -> None:
        # In a thread, so that the worker's event loop is not blocked while UCX is loaded.
        await asyncio.to_thread(self._start, worker.address, str(worker.name))
        worker.metrics[METRIC] = bytes_held
        worker.metrics[FIGURES] = figures_in

    async def teardown(self, worker: Worker) -> None:
        if not _plugins(worker):
            worker.metrics.pop(METRIC, None)
            worker.metrics.pop(FIGURES, None)
        await asyncio.to_thread(self._stop)
        if self._held is not None:
            self._held.let_go()
        self._held = None

    def _start(self, worker: str, name: str) -> None:
        from ucxstore.server import Server  # a Dask client does not need it
        from ucxstore.server.opening.memory import open_memory

        kind, location = parse_location("storage", self._location)
        if kind is LocationKind.DIRECTORY:
            check_mark(location, self.name, worker)
        host = "127.0.0.1" if worker.startswith(_INPROC) else get_address_host(worker)
        secret = self._options.secret
        assert secret is not None
        self._totals = keep_totals()  # before a task makes a store
        self._held = DeploymentSecret.hold(self.name, secret.reveal())
        if kind is LocationKind.SERVERS:
            self._options = with_secret_of_source(self._options)
        if self.shares:
            self._join(kind, location, host)
            return
        if kind is LocationKind.MEMORY:
            # With a policy, the limit is that of the memory itself, as of other servers.
            hint = None if self._options.when_full is None else ""
            options = _of_worker(self._options, name)
            self._storage, self._leave = open_memory(self._memory, options, hint)
        try:
            self._server = Server.from_options(
                location if self._storage is None else self._storage,
                replace(self._options, bind=HostPort(host, 0), secret=self._held, when_full=None),
            )
        except BaseException:
            self._stop()
            raise

    def _join(self, kind: LocationKind, location: str, host: str) -> None:
        """Share the server of this host."""
        held = self._held
        assert held is not None
        options = _of_worker(replace(self._options, secret=held), host)
        if kind is LocationKind.MEMORY:
            options = replace(options, memory=self._memory)

        def found(running: Running) -> None:
            # In memory, each host has other values.
            held.home = None if kind is LocationKind.MEMORY else running

        of_host = HostServer(self.name, host, location, options, found)
        of_host.join()
        self._of_host = of_host

    def end_host(self) -> None:
        """Let the server of this host end, also while others share it."""
        if self._of_host is not None:
            self._of_host.end()

    def _stop(self) -> None:
        of_host, self._of_host = self._of_host, None
        if of_host is not None:
            of_host.leave()
        server, self._server, self._storage = self._server, None, None
        leave, self._leave = self._leave, None
        if server is not None:
            server.close()
            del server  # frees the values in its memory
            _trim()
        if leave is not None:
            leave()


def _plugins(worker: Worker) -> list[ServerPlugin]:
    return [each for each in worker.plugins.values() if isinstance(each, ServerPlugin)]


def _of_worker(options: ServerOptions, name: str) -> ServerOptions:
    """Give a worker a folder of its own in the directory that values are moved to."""
    full = WhenFull.parse("when_full", options.when_full or "refuse")
    if full.does != "spill":
        return options
    folder = Path(full.directory) / quote(name, safe="")
    return replace(options, when_full=f"spill:{folder}")


def _held(stats: ServerStats) -> int:
    """Return the bytes of values in a server's memory."""
    return stats["memory_used"] or stats.cached_bytes + stats.scratch_bytes


def _trim() -> None:
    """Return freed memory to the system: the worker goes on, and glibc keeps small blocks."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # not in every C library
        trim(0)


# ---- functions that a client runs in workers ----


def servers_in(dask_worker: Worker) -> dict[str, Running]:
    """Return the servers in a worker, by their deployments."""
    running = {plugin.name: plugin.running for plugin in _plugins(dask_worker)}
    return {name: server for name, server in running.items() if server is not None}


def end_hosts(name: str, dask_worker: Worker) -> None:
    """Let the servers of hosts end that workers of a deployment share."""
    for plugin in _plugins(dask_worker):
        if plugin.name == name:
            plugin.end_host()


def bytes_held(worker: Worker) -> int:
    """Return how many bytes of values all servers in a worker hold in its memory."""
    return sum(plugin.bytes_held for plugin in _plugins(worker))


def figures_in(dask_worker: Worker) -> dict[str, dict[str, Any]]:
    """Return the counters of the servers in a worker, by their deployments."""
    found = {plugin.name: plugin.figures() for plugin in _plugins(dask_worker)}
    return {name: figures for name, figures in found.items() if figures is not None}


# Servers of a directory replace one another, so all must see the same one. With a different
# directory under the same name, such as /tmp on another machine, missing chunks would be read as
# fill values. So a file marks the directory, with a name that cannot be a key.


def make_mark(directory: str, name: str, create: bool = False) -> None:
    """Mark the directory with a file; with `create`, make it if it does not exist."""
    if create:
        Path(directory).mkdir(parents=True, exist_ok=True)
    else:
        check_directory(directory)
    _mark(directory, name).touch()


def remove_mark(directory: str, name: str) -> None:
    """Remove the mark, if it is there."""
    _mark(directory, name).unlink(missing_ok=True)


def check_mark(directory: str, name: str, worker: str) -> None:
    """Raise ``ValueError`` if the directory is not the one that was marked."""
    if not _mark(directory, name).exists():
        raise ValueError(
            f"storage: {directory!r} at the worker {worker} is not the directory that the first "
            "worker sees; all workers must see the same one"
        )


def _mark(directory: str, name: str) -> Path:
    return Path(directory) / f".ucxstore-{name}.partial"
