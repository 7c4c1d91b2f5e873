"""The steps on the way to a server: `take` goes one after another, and says which fails."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ucxstore.base.address import HostPort
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.grants import is_grant
from ucxstore.base.options import ClientOptions
from ucxstore.base.showing import one_line, size_text
from ucxstore.cli.doctor.advice import advise_on_failure
from ucxstore.cli.doctor.measure import (
    NotMovedError,
    Way,
    measure,
    move_one_value,
    rely_on_what_is_there,
    speed_text,
)
from ucxstore.cli.doctor.ports import Ports, examine_ports
from ucxstore.client.connect import Deadline, Greeting, Resolved, dial, resolve
from ucxstore.client.connections import Connector
from ucxstore.cluster.record import Record
from ucxstore.protocol.frames import PROTOCOL_VERSION, Welcome
from ucxstore.stores.store import UcxStore, connectors_of

type State = Literal["ok", "failed", "left out", "not reached"]


@dataclass(frozen=True)
class Outcome:
    """What has come of a step.

    Attributes
    ----------
    step : str
        Its name.
    state : {"ok", "failed", "left out", "not reached"}
        Steps after one that has failed are not reached.
    what : str
        What was found, or why it failed or was left out.
    change : str
        What to do; empty if there is nothing to change.
    """

    step: str
    state: State
    what: str = ""
    change: str = ""


@dataclass(kw_only=True)
class Visit:
    """What the steps so far have found of one server.

    Parameters
    ----------
    server : HostPort
    store : UcxStore
        Of this server alone.
    options : ClientOptions
        Those of the store.
    write : bool
        Whether a value may be written to what is served.
    """

    server: HostPort
    store: UcxStore
    options: ClientOptions
    write: bool
    addresses: list[Resolved] = field(default_factory=list)
    same_host: bool = False
    welcome: Welcome | None = None
    connector: Connector | None = None  # it closes its connection once nobody has it
    lanes: list[str] = field(default_factory=list)
    ports: Ports | None = None
    way: Way | None = None
    outcomes: list[Outcome] = field(default_factory=list)


def take(visit: Visit) -> Iterator[Outcome]:
    """Take all steps to a server, note what has come of each, and yield that."""
    for name, step in STEPS:
        if visit.outcomes and visit.outcomes[-1].state in ("failed", "not reached"):
            outcome = Outcome(name, "not reached")
        else:
            outcome = _take_one(name, step, visit)
        visit.outcomes.append(outcome)
        yield outcome
    visit.connector = None


def _take_one(name: str, step: Callable[[Visit], str], visit: Visit) -> Outcome:
    try:
        return Outcome(name, "ok", step(visit))
    except NotMovedError as error:
        return Outcome(name, "left out", str(error))
    except (UcxStoreError, OSError) as error:
        change = advise_on_failure(name, error, visit.server)
        return Outcome(name, "failed", one_line(error), change)


def _look_up(visit: Visit) -> str:
    deadline = Deadline(visit.options.connect_timeout)
    visit.addresses = resolve(visit.server, deadline)
    hosts = [str(address[0]) for _, address in visit.addresses]
    if hosts == [visit.server.host]:
        return f"{hosts[0]} is an address"
    return f"{visit.server.host} is {', '.join(hosts)}"


def _find_route(visit: Visit) -> str:
    """Ask the kernel which way a packet would take; to connect a datagram socket sends none."""
    reached: list[Resolved] = []
    sources: dict[str, None] = {}
    for number, (family, address) in enumerate(visit.addresses, 1):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                sources[str(probe.getsockname()[0])] = None
                reached.append((family, address))
        except OSError:
            if number == len(visit.addresses) and not reached:
                raise
    visit.addresses = reached
    return f"from {', '.join(sources)}"


def _reach_port(visit: Visit) -> str:
    deadline = Deadline(visit.options.connect_timeout)
    with dial(visit.server, visit.addresses, deadline) as sock:
        own, peer = (str(end[0]) for end in (sock.getsockname(), sock.getpeername()))
    visit.same_host = own == peer or peer.startswith("127.")
    where = "on this machine" if visit.same_host else "on another machine, or in a container"
    return f"{HostPort(peer, visit.server.port)} takes connections, {where}"


def _shake_hands(visit: Visit) -> str:
    options = visit.options
    with Greeting(
        visit.server, options.secret, options.connect_timeout, options.encrypt
    ) as greeting:
        visit.welcome = greeting.welcome
    given = "no secret"
    if options.secret is not None:
        given = "a grant" if is_grant(options.secret.reveal()) else "the secret"
    return f"version {PROTOCOL_VERSION} of the protocol, with {given}"


def _identify(visit: Visit) -> str:
    welcome = visit.welcome
    assert welcome is not None
    words = [f"storage {welcome.identity.hex()}"]
    if welcome.volatile:
        words.append("in memory")
    if welcome.read_only:
        words.append("read-only")
    if welcome.shared:
        words.append("shared with other servers")
    if record := Record.decode(welcome.record):
        words.append(f"of a set of {len(record.members)}")
    return ", ".join(words)


def _choose_lane(visit: Visit) -> str:
    visit.connector = connectors_of(visit.store)[visit.server]
    connection = visit.connector.connect(visit.options.connect_timeout)
    rely_on_what_is_there(visit.store)
    visit.lanes = connection.native.lanes
    visit.ports = examine_ports(visit.server)
    return ", ".join(visit.lanes)


def _move_one(visit: Visit) -> str:
    nbytes = move_one_value(visit.store, write=visit.write)
    return f"{size_text(nbytes)} were written, read and compared"


def _measure(visit: Visit) -> str:
    visit.way = measure(
        visit.store, lanes=visit.lanes, same_host=visit.same_host, write=visit.write
    )
    return speed_text(visit.way)


# In this order. Each returns what it has found, and raises what keeps it from going on.
STEPS: tuple[tuple[str, Callable[[Visit], str]], ...] = (
    ("name", _look_up),
    ("route", _find_route),
    ("port", _reach_port),
    ("handshake", _shake_hands),
    ("identity", _identify),
    ("lane", _choose_lane),
    ("one value", _move_one),
    ("speed", _measure),
)
