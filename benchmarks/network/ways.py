"""The ways that are measured: how each starts a server, and clients of it."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from benchmarks import peers
from benchmarks.network import content, programs
from benchmarks.network.links import End, Link
from benchmarks.network.programs import Program, ProgramError

SIZES = [content.SMALL, content.MIDDLE, content.LARGE]

# As ucxstore sets them; and without what it loads UCX without.
UCX_OF_OURS = {
    "UCX_TLS": "tcp",
    "UCX_TCP_TX_SEG_SIZE": "256K",
    "UCX_TCP_RX_SEG_SIZE": "256K",
    "UCX_TCP_CONN_NB": "y",
    "UCX_MEM_MMAP_HOOK_MODE": "none",
}
# Microseconds for which ucxstore's thread polls UCX after the last event.
_LINGER = 600

_SECRET = "the secret of a benchmark, which keeps none"
_FILL_SECONDS = 120.0
# Threads of numpy's would be forked.
_PYTHON = {"OPENBLAS_NUM_THREADS": "1"}


class Load(NamedTuple):
    """What clients do: get or set values of a size, so many clients at the same time."""

    op: str
    nbytes: int
    clients: int


class Served(NamedTuple):
    """A server: where it listens, as ``host:port``, and its process."""

    address: str
    pid: int


class Way(Protocol):
    """A way to move values."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str | None:
        """Say why it cannot be measured here, if that is so."""

    def serve(self, link: Link) -> AbstractContextManager[Served]:
        """Start a server, which has the values."""

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        """Start clients; they are ready once they have answered."""


@dataclass(frozen=True, slots=True)
class RawTcp:
    """``sendmsg`` and ``recvmsg``.

    Parameters
    ----------
    streams : int
        Over how many connections a value goes; the server has as many threads.
    zero_copy : bool
        Whether large values are sent by ``MSG_ZEROCOPY``.
    linger : int
        For how many microseconds after the last event both sides ask again before they sleep.
    """

    name: str
    streams: int = 1
    zero_copy: bool = False
    linger: int = 0

    @property
    def _mode(self) -> list[str]:
        return ["zerocopy" if self.zero_copy else "copy", str(self.linger)]

    def missing(self) -> str | None:
        return _compiles(programs.raw_tcp)

    def serve(self, link: Link) -> AbstractContextManager[Served]:
        serve = [programs.raw_tcp(), "serve", link.server.ip, str(self.streams), *self._mode]
        return _serving(link.server, serve, {})

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        host, _, port = served.address.partition(":")
        what = [load.op, str(load.nbytes), str(load.clients), str(self.streams)]
        return Program(
            [*link.client.inside, programs.raw_tcp(), "clients", host, port, *what, *self._mode]
        )


@dataclass(frozen=True, slots=True)
class UcxMessages:
    """UCX's active messages, by a small program over its C API.

    Parameters
    ----------
    settings : mapping
        Of the program, see ``ucx_messages.cpp``.
    variables : mapping
        Of UCX, beside those that ucxstore sets.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def _settings(self) -> list[str]:
        given = {"linger": str(_LINGER), **self.settings}
        return [f"{name}={value}" for name, value in given.items()]

    def missing(self) -> str | None:
        return _compiles(programs.ucx_messages)

    def serve(self, link: Link) -> AbstractContextManager[Served]:
        serve = [programs.ucx_messages(), "serve", link.server.ip, *self._settings]
        return _serving(link.server, serve, self._environment(link.server))

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        host, _, port = served.address.partition(":")
        what = [load.op, str(load.nbytes), str(load.clients), *self._settings]
        return Program(
            [*link.client.inside, programs.ucx_messages(), "clients", host, port, *what],
            self._environment(link.client),
        )

    def _environment(self, end: End) -> dict[str, str]:
        return {**UCX_OF_OURS, "UCX_NET_DEVICES": end.device, **self.variables}


@dataclass(frozen=True, slots=True)
class Ucxstore:
    """ucxstore over a network.

    Parameters
    ----------
    network : str
        ``"tcp"`` or ``"ucx"``.
    integrity : bool
        Whether checksums are used.
    encrypt : bool
        Whether it is encrypted.
    optional : bool
        Whether ucxstore may refuse this.
    """

    name: str
    network: str
    integrity: bool = False
    encrypt: bool = False
    optional: bool = False

    @property
    def of_client(self) -> dict[str, Any]:
        """The options of `UcxStore`."""
        found = {"local": "off", "network": self.network, "integrity": self.integrity}
        ucx = {"ucx": {"TLS": "tcp"}} if self.network == "ucx" else {}
        secret = {"secret": _SECRET, "encrypt": True} if self.encrypt else {}
        return {**found, **ucx, **secret}

    def missing(self) -> str | None:
        return None

    @contextmanager
    def serve(self, link: Link) -> Iterator[Served]:
        secret = {"secret": _SECRET, "encrypt": True} if self.encrypt else {}
        ucx = {"ucx": {"TLS": "tcp"}} if self.network == "ucx" else {}
        task = {
            "peer": "ucxstore",
            "ip": link.server.ip,
            "options": {"local": False, **ucx, **secret},
        }
        with _serving(link.server, programs.python("server", task), _PYTHON) as served:
            _fill(link, self.task(served))
            yield served

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        return _python_clients(link, self.task(served), load)

    def task(self, served: Served) -> dict[str, Any]:
        """Return what clients in Python must know."""
        address = f"ucx://{served.address}"
        return {"peer": "ucxstore", "address": address, "options": self.of_client}


@dataclass(frozen=True, slots=True)
class Redis:
    """A Redis server as it comes, with one thread for its clients; they are in Python.

    Parameters
    ----------
    bare : bool
        Whether they call the kernel and no more, without redis-py and its parser in C.
    """

    name: str
    bare: bool = False

    def missing(self) -> str | None:
        if peers.find_redis() is None:
            return "neither redis-server nor valkey-server is on PATH"
        if not self.bare and importlib.util.find_spec("redis") is None:
            return "redis-py is not installed"
        return None

    @contextmanager
    def serve(self, link: Link) -> Iterator[Served]:
        program = peers.find_redis()
        assert program is not None
        with peers.redis_over_tcp(program, link.server.ip, link.server.inside) as (port, pid):
            served = Served(f"{link.server.ip}:{port}", pid)
            _fill(link, self.task(served))
            yield served

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        return _python_clients(link, self.task(served), load)

    def task(self, served: Served) -> dict[str, Any]:
        """Return what clients in Python must know."""
        peer = "Redis" if self.bare else "redis-py"
        return {"peer": peer, "address": served.address}


@dataclass(frozen=True, slots=True)
class Flight:
    """Arrow Flight, by pyarrow at both sides: a value is a table of one row."""

    name: str

    def missing(self) -> str | None:
        if importlib.util.find_spec("pyarrow") is None:
            return "pyarrow is not installed"
        return None

    def serve(self, link: Link) -> AbstractContextManager[Served]:
        task = {"peer": "Flight", "ip": link.server.ip, "sizes": SIZES}
        return _serving(link.server, programs.python("server", task), _PYTHON)

    def clients(self, link: Link, served: Served, load: Load) -> Program:
        task = {"peer": "Flight", "address": served.address}
        return _python_clients(link, task, load)


def _compiles(program: Any) -> str | None:
    try:
        program()
    except (ProgramError, OSError) as error:  # no compiler, no headers of UCX
        return str(error)
    return None


@contextmanager
def _serving(end: End, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Served]:
    """Run a server that says where it listens."""
    with Program([*end.inside, *command], environment) as server:
        said = server.hear()
        yield Served(said.get("address") or f"{end.ip}:{said['port']}", server.pid)


def _fill(link: Link, task: Mapping[str, Any]) -> None:
    command = programs.python("client", {**task, "op": "fill", "sizes": SIZES})
    with Program([*link.client.inside, *command], _PYTHON) as filling:
        filling.hear(_FILL_SECONDS)


def _python_clients(link: Link, task: Mapping[str, Any], load: Load) -> Program:
    of_load = {"op": load.op, "bytes": load.nbytes, "clients": load.clients}
    command = programs.python("client", {**task, **of_load})
    return Program([*link.client.inside, *command], _PYTHON)
