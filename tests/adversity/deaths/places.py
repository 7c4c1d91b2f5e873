"""Places for cases: a server, a client, and a witness that is never hurt, each a process."""

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.adversity.deaths.cases import Kind, Lane, Side, Storage
from tests.adversity.deaths.processes import (
    AtServer,
    Check,
    Job,
    be_client,
    be_server,
    be_witness,
)
from tests.adversity.deaths.requests import versions_after
from tests.adversity.nursery import Child, Nursery
from tests.eventually import eventually
from tests.hosts.network import Host

# Bytes that a server's values may take more than before: memory is taken in large steps.
STEPS = 70_000_000

# The same of its process's own memory: what it recycles, and a few values.
RECYCLED = 150_000_000

# What the first job of a client is about.
FIRST = (Kind.GET_STRIDED, 5_000)

# Seconds until a server has noticed that a client is gone. Over a link that was down, the kernel
# first waits before it sends again.
NOTICED = 20.0


@dataclass
class Clients:
    """The client of a lane, and a witness that is never hurt.

    Parameters
    ----------
    host : int
        See `go_to`.
    client, witness : Child or None
    """

    host: int
    client: Child | None = None
    witness: Child | None = None

    def close(self) -> None:
        """End them, which must end well."""
        for child in (self.client, self.witness):
            if child is not None:
                child.close()


@dataclass
class Place:
    """Where the cases of a lane and a storage happen. A process that has died is made anew.

    Parameters
    ----------
    lane : Lane
    storage : Storage
    root : Path
        Of a server of a directory.
    nursery : Nursery
    clients : Clients
        Those that the places of a lane share.
    hosts : sequence of Host
        The server's, and the client's; empty where both are at this one.
    """

    lane: Lane
    storage: Storage
    root: Path
    nursery: Nursery
    clients: Clients
    hosts: Sequence[Host] = ()
    server: Child | None = None
    address: str = ""
    base: AtServer | None = None
    made: set[tuple[Kind, int]] = field(default_factory=set)

    def ready(self, kind: Kind, size: int) -> None:
        """See that all processes run, and that the server has the values of a request."""
        if self.clients.witness is None:
            self.clients.witness = self.nursery.start(be_witness, self.clients.host)
        if self.server is None:
            self._start_server()
        self._make(kind, size)
        self._make(*FIRST)
        if self.clients.client is None:
            self._start_client()
        if self.base is None:
            # Some of what it holds comes with the first client.
            self.see(*FIRST, "check", versions_after(FIRST[0], acknowledged=True))
            self.base = self.at_server()

    def _make(self, kind: Kind, size: int) -> None:
        if (kind, size) not in self.made:
            self.see(kind, size, "create")
            self.made.add((kind, size))
            self.base = None

    def see(self, kind: Kind, size: int, does: str, versions: Set[int] = frozenset()) -> None:
        """Let the witness carry out a check, which must succeed."""
        assert self.clients.witness is not None
        check = Check(self.lane, self.address, kind, size, frozenset(versions), does)
        wrong = self.clients.witness.ask(check, 120.0)
        assert not wrong, f"a fresh client: {wrong}"

    def at_server(self) -> AtServer:
        """Ask the server what it holds."""
        assert self.server is not None
        found = self.server.ask("")
        assert isinstance(found, AtServer)
        return found

    def see_rest(self, *, may_leak: bool = False) -> None:
        """See that the server holds nothing more than before any case.

        Parameters
        ----------
        may_leak : bool
            Whether it may have descriptors and mappings that it had not.
        """
        base, now = self.base, self.at_server()
        assert base is not None

        def problem() -> str:
            if now.sessions or now.busy:
                return f"{now.sessions} sessions, {now.busy}"
            if now.memory > base.memory + STEPS or now.resident > base.resident + RECYCLED:
                return f"memory: {now.memory}, {now.resident} after {base.memory}, {base.resident}"
            return "" if may_leak else now.held.beyond(base.held)

        def rests() -> bool:
            nonlocal now
            now = self.at_server()
            return not problem()

        eventually(rests, NOTICED, 0.02, lambda: f"the server: {problem()}")

    def of(self, side: Side) -> Child:
        """Return the process of a side."""
        child = self.server if side is Side.SERVER else self.clients.client
        assert child is not None
        return child

    def lost(self, side: Side) -> None:
        """Note that a process has ended, and see that it printed nothing that it should not."""
        child = self.of(side)
        if side is Side.SERVER:
            self.server = self.base = None
            if self.storage is Storage.MEMORY:
                self.made.clear()
        else:
            self.clients.client = None
        child.close()

    def ended(self) -> str:
        """Say which processes have ended that were to live, and how."""
        said = []
        for name, child in self._children().items():
            if child is not None and child.has_ended() and child.wait() not in (0, -signal.SIGKILL):
                said.append(f"the {name} ended with {child.wait()}: {child.output}")
        return "; ".join(said)

    def renew(self) -> None:
        """End what may have leaked, which must end well; what comes next starts anew."""
        for side, child in ((Side.SERVER, self.server), (Side.CLIENT, self.clients.client)):
            if child is not None:
                child.close()
                self.lost(side)

    def forget(self) -> None:
        """End all processes, after a failure."""
        for child in self._children().values():
            if child is not None:
                child.end()
        self.server = self.clients.client = self.clients.witness = self.base = None
        self.made.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        """End the server, which must end well."""
        if self.server is not None:
            self.server.close()

    def _children(self) -> dict[str, Child | None]:
        own = {"server": self.server}
        return own | {"client": self.clients.client, "witness": self.clients.witness}

    def _start_server(self) -> None:
        ip, host = (self.hosts[0].ip, self.hosts[0].pid) if self.hosts else ("127.0.0.1", 0)
        root = "memory://" if self.storage is Storage.MEMORY else str(self.root)
        self.server = self.nursery.start(be_server, self.lane, root, f"{ip}:0", host)
        self.address = str(self.server.hear())

    def _start_client(self) -> None:
        """Start a client, let it do a job in which nothing goes wrong, and note what it holds."""
        client = self.clients.client = self.nursery.start(be_client, self.clients.host)
        job = Job(
            self.lane, self.address, *FIRST, checked=False, opened=True, closes=False, timeout=60.0
        )
        assert client.ask(job) == "ready"
        client.channel.send((None, None))
        outcome = client.hear()
        assert outcome.right, outcome
        assert client.ask("look").memory_untouched
        client.ask("rest")


class Places:
    """All places, made as they are needed.

    Parameters
    ----------
    folder : Path
    nursery : Nursery
        It has the library of the trip wires.
    hosts : callable
        Makes two hosts, at its first call.
    """

    def __init__(self, folder: Path, nursery: Nursery, hosts: Callable[[], Sequence[Host]]) -> None:
        self._folder = folder
        self._nursery = nursery
        self._hosts = hosts
        self._places: dict[tuple[Lane, Storage, bool], Place] = {}
        self._clients: dict[tuple[Lane, bool], Clients] = {}

    def of(self, lane: Lane, storage: Storage, *, far: bool) -> Place:
        """Return the place of a lane and a storage; `far` if its sides are on two hosts."""
        key = (lane, storage, far)
        if key not in self._places:
            hosts = self._hosts() if far else ()
            clients = Clients(hosts[1].pid if far else 0)
            clients = self._clients.setdefault((lane, far), clients)
            root = self._folder / f"{lane}-{storage}-{far}"
            self._places[key] = Place(lane, storage, root, self._nursery, clients, hosts)
        return self._places[key]

    def forget(self, lane: Lane) -> None:
        """End all processes of a lane, however they end."""
        for place in self._places.values():
            if place.lane is lane:
                place.forget()

    def close(self) -> None:
        """End everything."""
        with ExitStack() as stack:
            for place in self._places.values():
                stack.callback(place.close)
            for clients in self._clients.values():
                stack.callback(clients.close)


@contextmanager
def places(folder: Path, trip: Path, hosts: Callable[[], Sequence[Host]]) -> Iterator[Places]:
    """Make places, and end them.

    Parameters
    ----------
    folder : Path
    trip : Path
        The library of the trip wires.
    hosts : callable
        See `Places`.
    """
    with Nursery(folder, trip) as nursery:
        made = Places(folder, nursery, hosts)
        try:
            yield made
        finally:
            made.close()
