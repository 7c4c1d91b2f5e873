"""The processes of a case: a client that makes a request, and a server, with what each holds."""

import ctypes
import gc
import os
import re
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.adversity.deaths import requests
from tests.adversity.deaths.cases import OVER_UCX, Kind, Lane
from tests.adversity.deaths.trips import Trip, disarm, tripped
from tests.adversity.servers import port_of
from tests.eventually import eventually
from ucxstore import UcxStore, UcxStoreError
from ucxstore.server import Server

_SECRET = "a secret that is long enough"
OPTIONS_OF_STORES: dict[Lane, dict[str, Any]] = {
    Lane.LOCAL: {"local": "auto", "network": "tcp"},
    Lane.TCP: {"local": "off", "network": "tcp"},
    Lane.ENCRYPTED: {"local": "off", "network": "tcp", "secret": _SECRET},
    Lane.UCX_TCP: {"local": "off", "network": "ucx", "ucx": {"TLS": "tcp"}},
    Lane.UCX_SHM: {"local": "ucx", "network": "ucx"},
}
OPTIONS_OF_SERVERS: dict[Lane, dict[str, Any]] = {
    Lane.LOCAL: {"local": True},
    Lane.TCP: {"local": False},
    Lane.ENCRYPTED: {"local": False, "secret": _SECRET, "encrypt": True},
    Lane.UCX_TCP: {"local": False, "ucx": {"TLS": "tcp"}},
    Lane.UCX_SHM: {"local": False, "ucx_shared_memory": True},
}
LANES_OF_STORES = {
    Lane.LOCAL: "local",
    Lane.TCP: "tcp",
    Lane.ENCRYPTED: "tcp",
    Lane.UCX_TCP: "tcp/",
    Lane.UCX_SHM: "posix",
}

# Seconds for requests in which nothing is to go wrong, however busy the machine is.
PATIENCE = 60.0

# Seconds within which what a client held goes after its store is closed.
ENDS_WITHIN = 10.0


@dataclass(slots=True)
class Fuse:
    """A signal to a process, so many microseconds after the request has begun."""

    pid: int
    number: int
    microseconds: int
    burned: bool = False

    def light(self) -> None:
        threading.Timer(self.microseconds / 1e6, self._burn).start()

    def _burn(self) -> None:
        self.burned = True
        os.kill(self.pid, self.number)


@dataclass(frozen=True, slots=True)
class Job:
    """What a client is to do.

    Parameters
    ----------
    lane : Lane
    address : str
    kind : Kind
    size : int
    checked : bool
        Whether messages have checksums.
    opened : bool
        Whether the client connects before the case begins.
    closes : bool
        Whether the request comes before the case begins, too, and the case is the close.
    timeout : float
        Of connecting, and of the request.
    """

    lane: Lane
    address: str
    kind: Kind
    size: int
    checked: bool
    opened: bool
    closes: bool
    timeout: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request.

    Parameters
    ----------
    right : bool or None
        Whether the answer is right; ``None`` for an exception.
    error : str
        The exception's type and text.
    is_ours : bool
        Whether it is an `UcxStoreError`.
    seconds : float
    gaps_untouched : bool
        Whether nothing was written beside the memory that was given.
    hurts : int
        How often its own trip wire or its fuse hurt before the end.
    """

    right: bool | None
    error: str
    is_ours: bool
    seconds: float
    gaps_untouched: bool
    hurts: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds.

    Parameters
    ----------
    descriptors, threads, shared : list of str
        By their names, sorted; shared memory that is mapped.
    """

    descriptors: list[str]
    threads: list[str]
    shared: list[str]

    @classmethod
    def now(cls) -> "Held":
        """Return what this process holds."""
        gc.collect()
        return cls(_descriptors(), _threads(), _shared())

    def beyond(self, before: "Held") -> str:
        """Say what there is more of than before; nothing if there is nothing."""
        more = []
        for name in ("descriptors", "threads", "shared"):
            one, other = getattr(self, name), getattr(before, name)
            if len(one) > len(other):
                more.append(f"{name}: {len(one)} after {len(other)}: {one} after {other}")
        return "; ".join(more)


# A server's page for a client goes as the next client comes; and its values are counted by bytes.
_OF_SERVERS = re.compile(r"/memfd:ucxstore-(session|value|\d+) ")


def _descriptors() -> list[str]:
    found = []
    for one in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(one.readlink()))
        except FileNotFoundError:  # that of the listing itself
            continue
    return sorted(name for name in found if not _OF_SERVERS.match(name))


# Threads of pools, and some that end by themselves.
_PASSING = {"close", "codec", "files", "free", "ops", "pins", "spill", "sweep", "trim", "walks"}


def _threads() -> list[str]:
    """Return those of the core, which have names of their own, and ours of Python."""
    names = [thread.name for thread in threading.enumerate()]
    names = [name for name in names if name.startswith("ucxstore")]
    own = Path("/proc/self/comm").read_text()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            name = (task / "comm").read_text()
            names += [name.strip()] if name != own else []
    passing = tuple(f"ucxstore-{name}" for name in _PASSING)
    return sorted(name for name in names if not name.startswith(passing))


def _shared() -> list[str]:
    with Path("/proc/self/maps").open() as maps:
        paths = (line.split(maxsplit=5)[5:] for line in maps)
        found = [path[0].strip() for path in paths if path]
    shared = [path for path in found if path.startswith(("/memfd:", "/dev/shm/", "/SYSV"))]
    return sorted(path for path in shared if not _OF_SERVERS.match(path))


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is left at a client after a case.

    Parameters
    ----------
    memory_untouched : bool
        Whether the caller's memory is still as the caller left it after the request.
    left_behind : str
        What the process holds more of than before; nothing if there is nothing.
    """

    memory_untouched: bool
    left_behind: str


def open_store(lane: Lane, address: str, **options: Any) -> UcxStore:
    """Open a store that goes this way."""
    return UcxStore(address, **OPTIONS_OF_STORES[lane], **options)


def go_to(host: int) -> None:
    """Go to the network of a host, named by a process there; 0 stays."""
    if host == 0:
        return
    with Path(f"/proc/{host}/ns/net").open() as network:
        os.setns(network.fileno(), os.CLONE_NEWNET)
    os.unshare(os.CLONE_NEWNS)
    mount = ctypes.CDLL(None, use_errno=True).mount
    private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
    assert mount(b"none", b"/", None, private, None) == 0
    assert mount(b"sysfs", b"/sys", b"sysfs", 0, None) == 0  # UCX looks for devices there


# ---- the client ----


class Client:
    """A client's side of one case."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.store = open_store(
            job.lane,
            job.address,
            integrity=job.checked,
            timeout=job.timeout,
            connect_timeout=job.timeout,
        )
        self._request = requests.Request(self.store, job.kind, job.size)
        if job.opened:
            # Stores share a connection, which one with patience makes.
            patience = {"timeout": PATIENCE, "connect_timeout": PATIENCE}
            with open_store(job.lane, job.address, integrity=job.checked, **patience) as patient:
                patient.ping_sync()
                self._request.open()
            stats = self.store.stats()
            assert any(LANES_OF_STORES[job.lane] in lane for lane in stats["lanes"]), stats
            assert stats["encrypted"] is (job.lane is Lane.ENCRYPTED), stats
        if job.closes:
            assert self._request.make()

    def act(self) -> Outcome:
        """Make the request, or close; then put something else into the memory."""
        begun = time.monotonic()
        right, error, is_ours = None, "", True
        try:
            right = self._act()
        except Exception as caught:
            is_ours = isinstance(caught, UcxStoreError)
            error = f"{type(caught).__name__}: {caught}"
            if not is_ours:
                error += "".join(traceback.format_exception(caught))
        seconds = time.monotonic() - begun
        untouched = self._request.memory.gaps_are(requests.UNTOUCHED)
        self._request.memory.fill(requests.AFTER)
        return Outcome(right, error, is_ours, seconds, untouched)

    def _act(self) -> bool:
        if self._job.closes:
            self.store.close()
            return True
        return self._request.make()

    def look(self, before: Held | None) -> Aftermath:
        """See what is left once all has ended."""
        self.store.close()
        left = ""

        def is_over() -> bool:
            nonlocal left
            left = "" if before is None else Held.now().beyond(before)
            return not left

        with suppress(AssertionError):  # what there is then is said
            eventually(is_over, ENDS_WITHIN, 0.02)
        return Aftermath(self._request.memory.is_all(requests.AFTER), left)


def be_client(channel: Connection, host: int = 0) -> None:
    """Do the jobs that come, until the channel ends; each as `Client`, step by step."""
    go_to(host)
    before: Held | None = None
    while True:
        try:
            job = channel.recv()
        except EOFError:
            return
        if job == "rest":  # nothing has gone wrong so far
            before = Held.now()
            channel.send(before)
            continue
        try:
            client = Client(job)
        except Exception as error:
            channel.send(f"{type(error).__name__}: {error}")
            continue
        channel.send("ready")
        trip, fuse = channel.recv()
        if trip is not None:
            trip.arm(port_of(job.address))
        if fuse is not None:
            fuse.light()
        before_it = tripped()
        outcome = client.act()
        burned = fuse is not None and fuse.burned
        channel.send(replace(outcome, hurts=tripped() - before_it + burned))
        assert channel.recv() == "look"
        disarm()
        channel.send(client.look(before))
        del client


# ---- one that is never hurt ----


@dataclass(frozen=True, slots=True)
class Check:
    """What a fresh client is to see at a server, and to put right again."""

    lane: Lane
    address: str
    kind: Kind
    size: int
    versions: frozenset[int]
    does: str  # "create", "check", or "check and restore"


def be_witness(channel: Connection, host: int = 0) -> None:
    """Carry out checks, each by a new store, until the channel ends."""
    go_to(host)
    while True:
        try:
            check = channel.recv()
        except EOFError:
            return
        options = {"timeout": PATIENCE, "connect_timeout": PATIENCE}
        try:
            with open_store(check.lane, check.address, **options) as store:
                channel.send(_carry_out(check, store))
        except Exception as error:
            channel.send("".join(traceback.format_exception(error)).replace("Traceback", "Trace"))


def _carry_out(check: Check, store: UcxStore) -> str:
    if check.does == "create":
        requests.create(store, check.kind, check.size)
        return ""
    wrong = requests.what_is_wrong(store, check.kind, check.size, check.versions)
    if check.does == "check and restore":
        requests.restore(store, check.kind, check.size)
    return wrong


# ---- the server ----


@dataclass(frozen=True, slots=True)
class AtServer:
    """What a server holds.

    Parameters
    ----------
    sessions : int
    busy : dict
        The counters of what is under way that are not 0.
    memory : int
        Bytes of values.
    resident : int
        Bytes of the process's own memory.
    held : Held
    tripped : int
    """

    sessions: int
    busy: Mapping[str, int]
    memory: int
    resident: int
    held: Held
    tripped: int


_UNDER_WAY = (
    "bytes_in_flight",
    "gets_waiting",
    "connected",
    "arena_bytes_waiting",
    "arena_bytes_held",
)


def be_server(channel: Connection, lane: Lane, root: str, bind: str, host: int = 0) -> None:
    """Be a server, and answer questions about it, until the channel ends or it is to close."""
    go_to(host)
    options = {**OPTIONS_OF_SERVERS[lane], "create": root != "memory://", "grace": 1.0}
    options["insecure"] = True
    if lane in OVER_UCX:
        os.environ["UCXSTORE_NETWORK"] = "ucx"
    with Server(root, bind, **options) as server:
        channel.send(server.address)
        while True:
            try:
                question = channel.recv()
            except EOFError:
                return
            if isinstance(question, Trip):
                question.arm(port_of(server.address))
                channel.send("armed")
            elif question == "close":
                server.close()
                channel.send("closed")
            elif question == "disarm":
                disarm()
                channel.send("disarmed")
            else:
                channel.send(_at(server))


def _at(server: Server) -> AtServer:
    stats = server.stats()
    busy = {name: stats[name] for name in _UNDER_WAY if stats[name]}
    for origin in stats["origins"]:
        busy |= {f"{origin['origin']} {name}": value for name, value in origin["held"].items()}
    with Path("/proc/self/status").open() as lines:
        resident = next(int(line.split()[1]) << 10 for line in lines if "RssAnon" in line)
    return AtServer(
        server.sessions,
        busy,
        max(stats["memory_used"], stats["value_bytes"]),
        resident,
        Held.now(),
        tripped(),
    )
