"""`ServerPlugin`: the Dask worker plugin that runs a server in a worker."""

import asyncio
import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.diagnostics.plugin import WorkerPlugin

from ucxstore.base.address import Address, HostPort
from ucxstore.base.counters import keep_totals
from ucxstore.dask.dashboard import METRIC as FIGURES
from ucxstore.dask.figures import figures_of
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.server.locations import LocationKind, parse_location
from ucxstore.server.opening.directories import check_directory
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.options.when_full import WhenFull

if TYPE_CHECKING:
    from ucxstore._core import MemoryStorage
    from ucxstore.server import Server

# The worker's metric for the bytes of values in its memory. It is a column of the dashboard's table
# of workers; Dask itself only knows these bytes as unmanaged memory.
METRIC = "ucxstore_bytes"

_INPROC = "inproc://"  # workers in threads of one process: loopback is enough


class Running(NamedTuple):
    """A server in a worker."""

    server: HostPort
    identity: bytes


class ServerPlugin(WorkerPlugin):
    """A worker plugin that runs a server until the plugin is removed or the worker ends.

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
    """

    def __init__(self, name: str, storage: str, memory: int, options: ServerOptions) -> None:
        self.name = name
        self._location = storage
        self._memory = memory
        self._options = options
        self._held: DeploymentSecret | None = None
        self._storage: MemoryStorage | None = None
        self._leave: Callable[[], None] | None = None
        self._server: Server | None = None

    @property
    def running(self) -> Running | None:
        """The server, if it has started."""
        if self._server is None:
            return None
        (server,) = Address.parse(self._server.address).servers
        return Running(server, self._server.identity)

    @property
    def bytes_held(self) -> int:
        """Bytes of values in the worker's memory."""
        if self._storage is not None:
            return self._storage.held
        if self._server is None:
            return 0
        stats = self._server.stats()
        return stats.cached_bytes + stats.scratch_bytes

    def figures(self) -> dict[str, Any] | None:
        """Return the counters of the server and of this process's stores; ``None`` without one."""
        server, running = self._server, self.running
        if server is None or running is None:
            return None
        counted = server.stats_json()
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
        if kind is LocationKind.MEMORY:
            # With a policy, the limit is that of the memory itself, as of other servers.
            hint = None if self._options.when_full is None else ""
            options = _of_worker(self._options, name)
            self._storage, self._leave = open_memory(self._memory, options, hint)
        elif kind is LocationKind.DIRECTORY:
            check_mark(location, self.name, worker)
        host = "127.0.0.1" if worker.startswith(_INPROC) else get_address_host(worker)
        secret = self._options.secret
        assert secret is not None
        self._totals = keep_totals()  # before a task makes a store
        self._held = DeploymentSecret.hold(self.name, secret.reveal())
        try:
            self._server = Server.from_options(
                location if self._storage is None else self._storage,
                replace(self._options, bind=HostPort(host, 0), secret=self._held, when_full=None),
            )
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
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
