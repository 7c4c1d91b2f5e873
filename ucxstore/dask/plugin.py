"""The part of a deployment that runs in each Dask worker: a server, in threads of its own."""

import asyncio
import ctypes
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.diagnostics.plugin import WorkerPlugin

from ucxstore.address import Address, HostPort
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.server.options import ServerOptions
from ucxstore.server.sources.locations import Kind, parse_location

if TYPE_CHECKING:
    from ucxstore._core import MemoryStorage
    from ucxstore.server import Server

# The worker's metric with the bytes that servers hold in its memory: a column of the dashboard's
# table of workers, since Dask itself can only call them unmanaged.
METRIC = "ucxstore_bytes"

_INPROC = "inproc://"  # Dask's workers in threads: nobody else needs to reach their servers


class Running(NamedTuple):
    """A server in a worker."""

    server: HostPort
    incarnation: bytes


class ServerPlugin(WorkerPlugin):
    """Runs a server in a worker, from when it is registered until the worker ends.

    Parameters
    ----------
    name : str
        The deployment's name.
    storage : str
        ``"memory://"``, a directory that all workers see, or an object store's URL.
    memory : int
        Bytes of values that a server may hold in memory.
    options : ServerOptions
        With a secret that pickles its text: Dask brings the plugin to its workers as a pickle. It
        has no address yet, as that is the worker's.
    """

    def __init__(self, name: str, storage: str, memory: int, options: ServerOptions) -> None:
        self.name = name
        self._location = storage
        self._memory = memory
        self._options = options
        self._held: DeploymentSecret | None = None
        self._storage: MemoryStorage | None = None
        self._server: Server | None = None

    @property
    def running(self) -> Running | None:
        """The server, if it has started."""
        if self._server is None:
            return None
        (server,) = Address.parse(self._server.address).servers
        return Running(server, self._server.incarnation)

    @property
    def bytes_held(self) -> int:
        """Bytes of values in the worker's memory."""
        if self._storage is not None:
            return self._storage.held
        if self._server is None:
            return 0
        stats = self._server.stats()
        return stats.get("cached_bytes", 0) + stats["scratch_bytes"]

    async def setup(self, worker: Worker) -> None:
        # In a thread: it loads UCX and starts others, and the worker's event loop must not stand.
        await asyncio.to_thread(self._start, worker.address)
        worker.metrics[METRIC] = bytes_held

    async def teardown(self, worker: Worker) -> None:
        if not any(isinstance(plugin, ServerPlugin) for plugin in worker.plugins.values()):
            worker.metrics.pop(METRIC, None)
        await asyncio.to_thread(self._stop)
        if self._held is not None:
            self._held.let_go()
        self._held = None

    def _start(self, worker: str) -> None:
        from ucxstore._native import core  # loads UCX, which a client may not need
        from ucxstore.server import Server

        kind, location = parse_location("storage", self._location)
        if kind is Kind.MEMORY:
            self._storage = core.MemoryStorage(self._memory)
        elif kind is Kind.DIRECTORY:
            check_mark(location, self.name, worker)
        host = "127.0.0.1" if worker.startswith(_INPROC) else get_address_host(worker)
        secret = self._options.secret
        assert secret is not None
        self._held = DeploymentSecret.hold(self.name, secret.reveal())
        self._server = Server.from_options(
            location if self._storage is None else self._storage,
            replace(self._options, bind=HostPort(host, 0), secret=self._held),
        )

    def _stop(self) -> None:
        server, self._server, self._storage = self._server, None, None
        if server is not None:
            server.close()
            del server  # with the values it held
            _trim()


def _trim() -> None:
    """Give freed memory back to the system, as the worker lives on: glibc keeps small values'."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # not in every C library
        trim(0)


# ---- what clients run in workers ----


def servers_in(dask_worker: Worker) -> dict[str, Running]:
    """Return the servers in a worker, by their deployments."""
    return {
        plugin.name: plugin.running
        for plugin in dask_worker.plugins.values()
        if isinstance(plugin, ServerPlugin) and plugin.running is not None
    }


def bytes_held(worker: Worker) -> int:
    """Return how many bytes of values all servers in a worker hold in its memory."""
    plugins = worker.plugins.values()
    return sum(plugin.bytes_held for plugin in plugins if isinstance(plugin, ServerPlugin))


# Servers of one directory stand in for each other. Of different ones under one name, say /tmp of
# several machines, what one of them lacks would be read as fill values; so a file tells whether it
# is the same, of a name that is no key.


def make_mark(directory: str, name: str) -> None:
    """Mark the directory; it is made if it does not exist."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    _mark(directory, name).touch()


def remove_mark(directory: str, name: str) -> None:
    """Remove the mark, if it is there."""
    _mark(directory, name).unlink(missing_ok=True)


def check_mark(directory: str, name: str, worker: str) -> None:
    """Raise ``ValueError`` if the directory is not the one that was marked."""
    if not _mark(directory, name).exists():
        raise ValueError(
            f"storage: {directory!r} at the worker {worker} is not the directory of that name that "
            "another worker sees; all must see the same one"
        )


def _mark(directory: str, name: str) -> Path:
    return Path(directory) / f".ucxstore-{name}.partial"
