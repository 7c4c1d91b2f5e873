"""The world that members live in: servers and their clocks, clients, a network, a source, faults.

Everything that happens is an event, a tuple of plain data, which `World.do` carries out. A driver
says which comes next, and when: `chances.py` draws, and `orders.py` tries all. What is between a
machine and the source in a real server is modelled here, too: conditional writes, time-outs, the
cache.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import astuple, dataclass, replace
from math import inf
from typing import Any, Protocol

from tests.simulator.cache import Cache
from tests.simulator.monitor import ADD, GET, MISSING, REMOVE, SET, Register, Value
from tests.simulator.monitor import MADE as CHANGE_MADE
from tests.simulator.monitor import NOT_MADE as CHANGE_NOT_MADE
from tests.simulator.monitor import UNKNOWN as CHANGE_UNKNOWN
from tests.simulator.network import SOURCE, Network
from tests.simulator.source import (
    ANYTHING,
    CHANGED,
    LOST,
    REFUSED,
    Get,
    Put,
    Remove,
    Request,
    Source,
)
from ucxstore.server.peers import events
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence

SECOND = 1_000_000  # times are microseconds

# A request to the source that has no answer by then is given up.
SOURCE_TIMEOUT = 10 * SECOND

# A server that leaves has so long for saying goodbye.
_GOODBYE = SECOND

# A connection that cannot be made is tried again so much later, until its process has gone.
_DIAL_AGAIN = SECOND // 4

# So often in a row a machine may want to be woken at once.
_RESTLESS = 20

type Event = tuple[Any, ...]


class ViolationError(Exception):
    """What must not be."""


class Agenda(Protocol):
    """Who decides when something happens."""

    def soon(self, event: Event) -> None:
        """Let something happen when the network, or the source, gets to it."""

    def at(self, time: int, event: Event) -> None:
        """Let something happen then."""

    def orphan(self, at: int) -> bool:
        """Tell whether a request whose process has ended is carried out much later."""

    def tosses(self, request: int) -> bool:
        """Tell whether a request is carried out for which nobody waits any more."""


class Machine(Protocol):
    """A member: what `ucxstore.server.peers` has."""

    def wakes_at(self) -> float:
        """Return when it wants a `Tick`, in seconds on its own clock; infinite for never."""

    def start(self) -> Sequence[events.Action]:
        """Return what is to be done first."""

    def handle(self, event: events.Event, now: float) -> Sequence[events.Action]:
        """Take an event, and return what is to be done."""

    def may_send(self, change: int, now: float) -> bool:
        """Tell whether the request of a change may be sent again."""

    def copy(self) -> "Machine":
        """Return an equal one that shares no state."""

    def key(self, now: float) -> Hashable:
        """Return what tells it from others, with times relative to `now`."""


@dataclass(slots=True)
class Operation:
    """What a client has asked for.

    Attributes
    ----------
    name : str
        A key, or a prefix that is removed.
    stage : str
        "new", "due" once it may be sent, "sent" once the source is asked, "looking" for a version,
        "concluded".
    made : bool
        Whether the source has carried out some of it.
    found : bool
        Whether an `ADD` has found a value.
    told : str
        The outcome that the client was told; the server may still be at it.
    in_doubt : bool
        Whether an attempt may have succeeded whose answer was lost.
    left : tuple of str
        Keys that are still to be removed.
    """

    number: int
    client: int
    kind: str
    name: str
    value: Value
    process: int
    keys: tuple[str, ...] = ()
    stage: str = "new"
    made: bool = False
    found: bool = False
    told: str = ""
    attempts: int = 0
    in_doubt: bool = False
    condition: Value = ANYTHING
    left: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        one = frozenset([self.name])
        return Names(prefixes=one) if self.name.endswith("/") else Names(one)


class Process:
    """One start of a server: a machine, and what a server has around it.

    Attributes
    ----------
    number : int
        The start's. No other start of any server has it.
    """

    __slots__ = (
        "cache", "ending", "machine", "number", "owns", "restless", "seen", "server", "versions",
        "waking", "world",
    )  # fmt: skip

    def __init__(self, world: "World", number: int, server: int, machine: Machine) -> None:
        self.world = world
        self.number = number
        self.server = server
        self.machine = machine
        self.cache = Cache()
        self.versions: dict[str, Value] = {}
        self.waking: int | None = None
        self.restless = 0
        self.ending = False
        self.owns = True  # the machine; a copy shares it until it changes
        self.seen: tuple[float, Hashable] | None = None  # its key, and from when that is seen

    def copy(self, world: "World") -> "Process":
        other = Process.__new__(Process)
        other.world = world
        other.number = self.number
        other.server = self.server
        self.owns = other.owns = False
        other.machine = self.machine
        other.seen = self.seen
        other.cache = self.cache.copy()
        other.versions = dict(self.versions)
        other.waking = self.waking
        other.restless = self.restless
        other.ending = self.ending
        return other

    @property
    def now(self) -> float:
        """The time on the server's clock, in seconds."""
        return self.world.local(self.server)

    def feed(self, event: events.Event) -> None:
        """Let the machine take an event, and do what it says."""
        if not self.owns:
            self.machine = self.machine.copy()
            self.owns = True
        self.seen = None
        self._obey(self.machine.handle(event, self.now))
        wake = self.machine.wakes_at()
        if wake == inf:
            self.waking = None
            return
        world = self.world
        at = max(world.time_of(self.server, wake), world.now + 1)
        if at != self.waking:
            self.waking = at
            world.agenda.at(at, ("wake", self.number, at))

    def machine_key(self) -> Hashable:
        """Return what tells the machine from others, seen from now."""
        now = self.now
        if self.seen is None or self.seen[0] != now:
            self.seen = now, self.machine.key(now)
        return self.seen[1]

    def start(self) -> None:
        """Begin."""
        self._obey(self.machine.start())
        self.feed(events.Contacted())

    def _obey(self, actions: Sequence[events.Action]) -> None:
        for action in actions:
            _ACTIONS[type(action)](self, action)

    # ---- what the machine asks for ----

    def _tell(self, action: events.Tell) -> None:
        self.world.send(self.number, action.link, action.message)

    def _hang_up(self, action: events.HangUp) -> None:
        self.world.close(self.number, action.link)

    def _dial(self, action: events.Dial) -> None:
        self.world.dial(self.number, int(action.presence.server), action.dial)

    def _request(self, action: events.AskSource) -> None:
        if isinstance(action.what, events.IsOver):
            over = self.world.is_over(action.what.presence)
            self.world.agenda.soon(("tell", self.number, action.request, over))
        else:
            self.world.request(self, action.what, ("machine", action.request))

    def _carry(self, action: events.Carry) -> None:
        self.world.operations[action.change].stage = "due"
        self.world.agenda.soon(("turn", self.number, action.change))

    def _go(self, action: events.Go) -> None:
        world = self.world
        operation = world.operations[action.change]
        operation.stage = "sent"
        if operation.kind == REMOVE:
            operation.left = operation.keys
            self._remove_next(operation)
        else:
            absent = operation.kind == ADD
            known = MISSING if absent else self.versions.get(operation.name, MISSING)
            operation.condition = known if world.conditional or absent else ANYTHING
            self._put(operation)
        world.agenda.at(world.now + SOURCE_TIMEOUT, ("give up", self.number, action.change))

    def _reply(self, action: events.Reply) -> None:
        operation = self.world.operations.get(action.change)
        if operation is None:
            raise ViolationError(f"the outcome of change {action.change} is told twice")
        for key in operation.keys:
            self.cache.change(key, operation.value if action.keep else None)
        outcome = _OUTCOMES[type(action.outcome)]
        if isinstance(action.outcome, events.Refused) and action.outcome.partly:
            outcome = CHANGE_UNKNOWN
        self.world.conclude(operation, CHANGE_MADE if operation.found else outcome)

    def _ask_for(self, action: events.AskFor) -> None:
        self.world.note(self, "asks for {}", action.names)
        self.cache.ask_for(action.names)

    def _trust(self, action: events.Trust) -> None:
        self.world.note(self, "trusts {}", action.names)
        self.cache.trust(action.names)

    def _believe(self, action: events.Believe) -> None:
        if (self.cache.until > self.now) != (action.until > self.now):
            self.world.note(self, "{} its cache", "believes" if action.until else "disbelieves")
        self.cache.until = action.until

    def _forget_all(self, _: events.ForgetAll) -> None:
        self.cache.forget_all()

    def _report(self, action: events.Notice) -> None:
        self.world.note(self, "reports: {} {}", action.event, action.why)

    # ---- clients ----

    def read(self, operation: Operation) -> None:
        """Answer a read from the cache if that may be, else ask the source."""
        found = self.cache.find(operation.name, self.now)
        if found is not None:
            self.world.answer_read(operation, found, hit=True)
            return
        at = self.cache.fly(operation.name, self.now, operation.number)
        if at:
            self.world.request(self, Get(operation.name), ("flight", at))

    def change(self, operation: Operation) -> None:
        """Begin a change."""
        self.feed(events.Asked(operation.number, operation.names, operation.value or None))

    # ---- changes at the source ----

    def _put(self, operation: Operation) -> None:
        if operation.told:  # nobody waits for it any more
            self._end(operation, CHANGE_UNKNOWN if operation.in_doubt else CHANGE_NOT_MADE)
            return
        if not self.machine.may_send(operation.number, self.now):
            if operation.in_doubt:
                self._end(operation, CHANGE_UNKNOWN)
            else:
                self._wait_again(operation)
            return
        operation.attempts += 1
        asked = Put(operation.name, operation.value, operation.condition)
        self.world.request(self, asked, ("change", operation.number), operation.number)

    def _wait_again(self, operation: Operation) -> None:
        self.world.note(self, "sends change {} no more for now", operation.number)
        operation.stage = "new"
        operation.attempts = 0
        self.feed(events.Ended(operation.number, events.NotSent(operation.made)))

    def _remove_next(self, operation: Operation) -> None:
        if operation.name.endswith("/"):
            if operation.told:
                self._end(operation, CHANGE_UNKNOWN if operation.made else CHANGE_NOT_MADE)
                return
            if not self.machine.may_send(operation.number, self.now):
                self._wait_again(operation)
                return
        key, operation.left = operation.left[0], operation.left[1:]
        self.versions.pop(key, None)
        self.world.request(self, Remove(key), ("change", operation.number), operation.number)

    def hear(self, request: Request, at: int, answer: Any) -> None:
        """Take an answer of the source, or `LOST`."""
        kind, what = request.token
        if answer != LOST:
            self.feed(events.Heard())
        if kind == "machine":
            if answer in (LOST, REFUSED):
                answer = events.Failed(answer, passing=answer == LOST)
            self.feed(events.Answered(what, answer))
        elif kind == "flight":
            self._land(what, request.asked.key, None if answer in (LOST, REFUSED) else answer)
        elif kind == "doubt":
            self.feed(events.Landed(what))
        else:
            if answer == LOST:
                self.doubt(request, at)
            operation = self.world.operations.get(what)
            if operation is not None and operation.stage in ("sent", "looking"):
                self._hear_change(operation, answer)

    def _land(self, flight: int, key: str, value: Value | None) -> None:
        waiting = self.cache.land(flight, value)
        if value is not None:
            self.versions[key] = value
        for number in waiting:
            operation = self.world.operations.get(number)
            if operation is None:
                continue
            if value is None:
                self.world.drop(operation)
            else:
                self.world.answer_read(operation, value)

    def doubt(self, request: Request, at: int) -> None:
        """Tell the machine of a request that was given up."""
        if request.is_done or not request.change or isinstance(request.asked, Get):
            return
        condition = request.asked.condition if isinstance(request.asked, Put) else ANYTHING
        request.doubt = at
        names = Names(frozenset([request.asked.key]))
        self.feed(events.Doubted(at, names, condition_text(condition)))

    def _hear_change(self, operation: Operation, answer: Any) -> None:
        if operation.kind == REMOVE:
            if answer in (LOST, REFUSED):
                some = answer == LOST or operation.made
                self._end(operation, CHANGE_UNKNOWN if some else CHANGE_NOT_MADE)
            elif operation.left:
                self._remove_next(operation)
            else:
                self._end(operation, CHANGE_MADE)
        elif operation.stage == "looking":
            self._looked(operation, answer)
        elif answer == LOST:
            operation.in_doubt = True
            if operation.condition == ANYTHING or operation.attempts > 1:
                self._end(operation, CHANGE_UNKNOWN)
            else:
                self._put(operation)
        elif answer == REFUSED:
            self._end(operation, CHANGE_UNKNOWN if operation.in_doubt else CHANGE_NOT_MADE)
        elif answer == CHANGED:
            if operation.kind == ADD:
                operation.found = not operation.in_doubt
                self._end(operation, CHANGE_UNKNOWN if operation.in_doubt else CHANGE_MADE)
                return
            operation.stage = "looking"
            self.world.request(
                self, Get(operation.name), ("change", operation.number), operation.number
            )
        else:
            self.versions[operation.name] = operation.value
            self._end(operation, CHANGE_MADE)

    def _looked(self, operation: Operation, answer: Any) -> None:
        if answer in (LOST, REFUSED):
            self._end(operation, CHANGE_UNKNOWN if operation.in_doubt else CHANGE_NOT_MADE)
        elif not operation.in_doubt:
            operation.stage = "sent"
            operation.condition = answer
            self._put(operation)
        elif answer == operation.value:
            self.versions[operation.name] = answer
            self._end(operation, CHANGE_MADE)
        else:
            self._end(operation, CHANGE_UNKNOWN)

    def give_up(self, operation: Operation) -> None:
        """Wait for the source no longer."""
        if operation.stage in ("sent", "looking"):
            self.world.note(self, "gives up change {}", operation.number)
            sure = operation.stage == "looking" and not operation.in_doubt
            for at, request in list(self.world.source.requests.items()):
                if request.token == ("change", operation.number):
                    self.doubt(request, at)
                    request.token = ("doubt", at) if request.doubt else None
                    self.world.limit(at)
            self._end(operation, CHANGE_NOT_MADE if sure else CHANGE_UNKNOWN)

    def _end(self, operation: Operation, outcome: str) -> None:
        operation.stage = "concluded"
        # One that has found a value has changed nothing.
        end = _ENDS[CHANGE_NOT_MADE if operation.found else outcome]
        self.feed(events.Ended(operation.number, end))


_ACTIONS: dict[type, Callable[[Process, Any], None]] = {
    events.Tell: Process._tell,
    events.HangUp: Process._hang_up,
    events.Dial: Process._dial,
    events.AskSource: Process._request,
    events.Carry: Process._carry,
    events.Go: Process._go,
    events.Reply: Process._reply,
    events.AskFor: Process._ask_for,
    events.Trust: Process._trust,
    events.Believe: Process._believe,
    events.ForgetAll: Process._forget_all,
    events.Notice: Process._report,
}
_ENDS: dict[str, events.Outcome] = {
    CHANGE_MADE: events.Done(),
    CHANGE_NOT_MADE: events.Refused("refused"),
    CHANGE_UNKNOWN: events.Unknown("unknown"),
}
_OUTCOMES: dict[type, str] = {type(one): name for name, one in _ENDS.items()}


def condition_text(condition: Value) -> str:
    """Return a condition as machines are told of it."""
    return {ANYTHING: "", MISSING: "create"}.get(condition, f"version {condition}")


def holds(condition: str, value: object) -> bool:
    """Tell whether a condition may hold once a key has a value; ``None`` if it is removed."""
    return not condition or (condition == "create" and value is None)


class Server:
    """A server: its clock, and its process if it runs."""

    __slots__ = ("backlog", "number", "paused", "process", "rate")

    def __init__(self, number: int, rate: float) -> None:
        self.number = number
        self.rate = rate
        self.process: Process | None = None
        self.paused = False
        self.backlog: list[Event] = []

    def copy(self, world: "World") -> "Server":
        other = Server(self.number, self.rate)
        other.process = None if self.process is None else self.process.copy(world)
        other.paused = self.paused
        other.backlog = list(self.backlog)
        return other

    def key(self) -> Hashable:
        """Return what tells it from others."""
        process = self.process
        if process is None:
            return ()
        now = process.now
        return (
            process.number,
            process.machine_key(),
            process.cache.key(now),
            frozenset(process.versions.items()),
            process.ending,
            self.paused,
            tuple(self.backlog),
        )


class World:
    """Everything.

    Parameters
    ----------
    servers : int
    keys : sequence of str
    machine : callable
        Makes a machine, given the number of its process.
    agenda : Agenda
    conditional : bool
        Whether the source heeds conditions.
    same_host : bool
        Whether the servers see one another's ends.
    rates : sequence of float, optional
        Of the servers' clocks.
    """

    def __init__(
        self,
        servers: int,
        keys: Sequence[str],
        machine: Callable[[int], Machine],
        agenda: Agenda,
        *,
        conditional: bool = True,
        same_host: bool = False,
        rates: Sequence[float] = (),
    ) -> None:
        self.now = 0
        self.keys = tuple(keys)
        self.conditional = conditional
        self.same_host = same_host
        self.agenda = agenda
        self.source = Source()
        self.network = Network()
        self.make = machine
        self.servers = [
            Server(number, rates[number] if rates else 1.0) for number in range(servers)
        ]
        self.registers = {key: Register() for key in self.keys}
        self.operations: dict[int, Operation] = {}
        self.dials: dict[tuple[int, int], int] = {}  # by process and dial: the server
        self.last_read = MISSING
        self.last_told = ""
        self.last_operation = self.starts = 0
        self.not_made: set[int] = set()  # changes of which this was told
        self.hits = self.events = 0
        self.finished: list[int] = []  # clients whose operation has ended
        self.trace: list[tuple[int, str]] | None = None

    def copy(self, agenda: Agenda) -> "World":
        """Return an equal one that goes its own way."""
        other = World.__new__(World)
        for name, value in vars(self).items():
            setattr(other, name, value)
        other.agenda = agenda
        other.source = self.source.copy()
        other.network = self.network.copy()
        other.servers = [one.copy(other) for one in self.servers]
        other.registers = {key: one.copy() for key, one in self.registers.items()}
        other.operations = {at: replace(one) for at, one in self.operations.items()}
        other.dials = dict(self.dials)
        other.not_made = set(self.not_made)
        other.finished = list(self.finished)
        if self.trace is not None:
            other.trace = list(self.trace)
        return other

    def key(self) -> Hashable:
        """Return what tells it from others, seen from now."""
        return (
            tuple(one.key() for one in self.servers),
            self.source.key(),
            self.network.key(),
            tuple(one.key() for one in self.registers.values()),
            tuple(tuple(astuple(one)) for _, one in sorted(self.operations.items())),
            frozenset(self.dials.items()),
            frozenset(self.not_made),
        )

    # ---- telling ----

    def note(self, process: Process | None, text: str, *about: object) -> None:
        if self.trace is not None:
            who = "" if process is None else f"server {process.server} "
            self.trace.append((self.now, who + text.format(*about)))

    def local(self, server: int) -> float:
        """Return the time on a server's clock, in seconds."""
        return self.now * self.servers[server].rate / SECOND

    def time_of(self, server: int, seconds: float) -> int:
        """Return the time at which a server's clock has passed that."""
        return int(seconds / self.servers[server].rate * SECOND) + 1

    def is_over(self, presence: Presence) -> bool:
        """Tell whether others know that the process of a presence has ended."""
        return self.same_host and self.process(int(presence.server)) is None

    # ---- processes ----

    def process(self, number: int) -> Process | None:
        """Return the process of a number, if it still runs."""
        found = self.servers[number % len(self.servers)].process
        return found if found is not None and found.number == number else None

    def start(self, server: int) -> None:
        """Start a server."""
        one = self.servers[server]
        if one.process is not None:
            return
        self.starts += 1
        number = self.starts * len(self.servers) + server
        one.process = Process(self, number, server, self.make(number))
        self.note(one.process, "starts, as process {}", number)
        one.process.start()

    def kill(self, server: int) -> None:
        """End a server at once."""
        one = self.servers[server]
        process = one.process
        if process is None:
            return
        self.note(process, "is gone")
        one.process = None
        one.paused = False
        one.backlog.clear()
        for operation in list(self.operations.values()):
            if operation.process == process.number:
                if operation.kind == GET:
                    self.drop(operation)
                else:
                    self.conclude(operation, CHANGE_UNKNOWN)
        self.source.forget(process.number)
        for request_number, request in list(self.source.requests.items()):
            if request.owner == process.number:
                at = request_number
                later = self.source.number(process.number)
                if request.change and self.agenda.orphan(later):
                    at = later  # under another number, so that it does not come now
                    self.source.requests[at] = self.source.requests.pop(request_number)
                self.limit(at)
        for number, link in list(self.network.links.items()):
            if process.number in link.ends:
                self._leave_link(number, link.ends.index(process.number))

    def end(self, server: int, drain: int) -> None:
        """Ask a server to end: it takes nothing more, and leaves after so long."""
        process = self.servers[server].process
        if process is None or process.ending:
            return
        self.note(process, "is asked to end")
        process.ending = True
        self.agenda.at(self.now + drain, ("leave", process.number))

    def pause(self, server: int) -> None:
        one = self.servers[server]
        if one.process is not None:
            self.note(one.process, "stands still")
            one.paused = True

    def go_on(self, server: int) -> None:
        one = self.servers[server]
        if one.paused:
            one.paused = False
            self.note(one.process, "goes on")
            backlog, one.backlog = one.backlog, []
            for event in backlog:
                self.agenda.soon(event)

    # ---- what happens ----

    def do(self, event: Event) -> None:
        """Let an event happen now."""
        self.events += 1
        getattr(self, _HANDLERS[event[0]])(*event[1:])

    def _awake(self, number: int, event: Event) -> Process | None:
        """Return a process that runs. If it stands still, the event waits."""
        server = self.servers[number % len(self.servers)]
        process = server.process
        if process is None or process.number != number:
            return None
        if server.paused:
            server.backlog.append(event)
            return None
        return process

    def _wake(self, number: int, at: int) -> None:
        process = self._awake(number, ("wake", number, at))
        if process is not None and process.waking == at:
            process.waking = None
            process.feed(events.Tick())
            process.restless = process.restless + 1 if process.waking == self.now + 1 else 0
            if process.restless > _RESTLESS:
                raise ViolationError(f"server {process.server} wants to be woken without end")

    def _tell(self, number: int, request: int, answer: events.Answer) -> None:
        process = self._awake(number, ("tell", number, request, answer))
        if process is not None:
            process.feed(events.Answered(request, answer))

    def _turn(self, number: int, change: int) -> None:
        process = self._awake(number, ("turn", number, change))
        if process is not None and change in self.operations:
            process.feed(events.TurnCame(change))

    def _give_up(self, number: int, change: int) -> None:
        process = self._awake(number, ("give up", number, change))
        operation = self.operations.get(change)
        if process is not None and operation is not None:
            process.give_up(operation)

    def _leave(self, number: int) -> None:
        process = self._awake(number, ("leave", number))
        if process is not None:
            self.note(process, "leaves")
            process.feed(events.Leave())
            self.agenda.at(self.now + _GOODBYE, ("gone", number))

    def _gone(self, number: int) -> None:
        process = self._awake(number, ("gone", number))
        if process is not None:
            self.kill(process.server)

    # ---- the network ----

    def send(self, sender: int, number: int, message: Any) -> None:
        link = self.network.links.get(number)
        if link is None:
            return
        side = link.ends.index(sender)
        if not link.open[side]:
            return
        self.note(self.process(sender), "-> {}: {}", link.ends[1 - side], message)
        link.queues[1 - side].append(message)
        self.agenda.soon(("deliver", number, 1 - side))

    def close(self, closer: int, number: int) -> None:
        link = self.network.links.get(number)
        if link is not None:
            self._leave_link(number, link.ends.index(closer))

    def _leave_link(self, number: int, side: int) -> None:
        link = self.network.links[number]
        if not link.open[side]:
            return
        link.open[side] = False
        link.queues[side].clear()
        if link.open[1 - side]:
            link.queues[1 - side].append(None)
            self.agenda.soon(("deliver", number, 1 - side))
        else:
            del self.network.links[number]

    def dial(self, dialler: int, process: int, dial: int) -> None:
        """Connect to the server of a process, or to what has taken its place there."""
        server = process % len(self.servers)
        self.dials[dialler, dial] = server
        self.note(self.process(dialler), "dials server {}", server)
        self.agenda.soon(("dial", dialler, dial))

    def is_cut(self, one: int, other: int) -> bool:
        return (one, other) in self.network.cut

    def _dial(self, dialler: int, dial: int) -> None:
        server = self.dials.get((dialler, dial))
        if server is None:
            return
        if self.process(dialler) is None:
            del self.dials[dialler, dial]
            return
        mine = dialler % len(self.servers)
        there = self.servers[server]
        if self.is_cut(mine, server) or self.is_cut(server, mine) or there.paused:
            self.agenda.at(self.now + _DIAL_AGAIN, ("dial", dialler, dial))
            return
        process = self._awake(dialler, ("dial", dialler, dial))
        if process is None:
            return
        del self.dials[dialler, dial]
        if there.process is None:
            process.feed(events.NotDialled(dial))
        else:
            link = self.network.connect(dialler, dial, there.process.number)
            there.process.feed(events.Accepted(link))
            process.feed(events.Dialled(dial, link))

    def _deliver(self, number: int, side: int) -> None:
        link = self.network.links.get(number)
        if link is None or not link.queues[side]:
            return
        receiver = link.ends[side]
        servers = len(self.servers)
        if self.is_cut(link.ends[1 - side] % servers, receiver % servers):
            return  # until it is whole again
        process = self._awake(receiver, ("deliver", number, side))
        if process is None:
            return
        message = link.queues[side].popleft()
        if message is None:
            self._leave_link(number, side)
            process.feed(events.Broke(number))
        else:
            process.feed(events.Received(number, message))

    def reset(self, number: int) -> None:
        """Break a link: what is on its way is lost."""
        link = self.network.links.get(number)
        if link is None:
            return
        self.note(None, "a link breaks between processes {} and {}", *link.ends)
        for side in (0, 1):
            link.queues[side].clear()
            if link.open[side]:
                link.queues[side].append(None)
                self.agenda.soon(("deliver", number, side))

    def cut(self, one: int, other: int) -> None:
        """Let nothing pass from one to the other."""
        self.note(None, "cut: {} -> {}", _named(one), _named(other))
        self.network.cut.add((one, other))

    def mend(self, one: int, other: int) -> None:
        """Let what was held up pass again."""
        if (one, other) not in self.network.cut:
            return
        self.note(None, "mended: {} -> {}", _named(one), _named(other))
        self.network.cut.discard((one, other))
        servers = len(self.servers)
        if other == SOURCE:
            for at, request in self.source.requests.items():
                if request.owner % servers == one:
                    self.agenda.soon(("answer" if request.is_done else "carry out", at))
            return
        for at, link in self.network.links.items():
            for side in (0, 1):
                if (link.ends[1 - side] % servers, link.ends[side] % servers) == (one, other):
                    for _ in link.queues[side]:
                        self.agenda.soon(("deliver", at, side))

    # ---- the source ----

    def request(self, process: Process, asked: Any, token: Any, change: int = 0) -> None:
        at = self.source.send(process.number, asked, token, change)
        self.note(process, "asks the source: {}", asked)
        self.agenda.soon(("carry out", at))
        if not change:
            self.agenda.at(self.now + SOURCE_TIMEOUT, ("lose", at))

    def _carry_out(self, at: int) -> None:
        request = self.source.requests.get(at)
        if request is None or request.is_done:
            return
        if request.token is not None and self.is_cut(request.owner % len(self.servers), SOURCE):
            return  # it does not get there until that is mended
        changed = self.source.carry_out(request, self.is_over)
        if not isinstance(request.asked, Get):
            self.note(
                None,
                "the source carries out of {}: {}{}",
                request.owner,
                request.asked,
                "" if request.answer != CHANGED else ": no",
            )
        if changed:
            self._see(request)
        if request.token is None:
            del self.source.requests[at]
        else:
            self.agenda.soon(("answer", at))

    def _see(self, request: Request) -> None:
        """Look at a change that the source has carried out."""
        if request.change in self.not_made:
            raise ViolationError(f"change {request.change}, told as not made, is made")
        operation = self.operations.get(request.change)
        if operation is not None:
            operation.made = True
        # docs/consistency.md names as what remains: a change that was given up, and whose condition
        # holds again after a later change, which was made through another server, or so late that
        # the same one waits no longer. Or its server was shut out. That stays out.
        removes = isinstance(request.asked, Remove)
        for at, one in list(self.source.requests.items()):
            if one.is_done or not one.change or one is request:
                continue
            ended = one.change not in self.operations  # as its server leaves
            if not (ended or self._is_given_up(one) or self._is_shut_out(one.owner)):
                continue
            asked = one.asked
            may_be = isinstance(asked, Remove) or (
                isinstance(asked, Put)
                and (asked.condition == ANYTHING or (removes and asked.condition == MISSING))
            )
            late = one.owner != request.owner or self.now - one.given_up > SOURCE_TIMEOUT
            if may_be and asked.key == request.asked.key and late:
                del self.source.requests[at]

    @staticmethod
    def _is_given_up(request: Request) -> bool:
        return request.token is None or request.token[0] == "doubt"

    def _is_shut_out(self, process: int) -> bool:
        presences = [one for one in self.source.presences.values() if isinstance(one, Presence)]
        return all(one.server != str(process) for one in presences)

    def _answer(self, at: int) -> None:
        request = self.source.requests.get(at)
        if request is None or not request.is_done:
            return
        if self.is_cut(request.owner % len(self.servers), SOURCE):
            return
        if self.process(request.owner) is None:
            del self.source.requests[at]
            return
        process = self._awake(request.owner, ("answer", at))
        if process is None:
            return
        del self.source.requests[at]
        if request.token is not None:
            process.hear(request, at, request.answer)

    def refuse(self, at: int) -> None:
        """Let the source refuse a request, without carrying it out."""
        request = self.source.requests.get(at)
        if request is not None and not request.is_done:
            self.note(None, "the source refuses {}", request.asked)
            request.is_done = True
            request.answer = REFUSED
            self.agenda.soon(("answer", at))

    def _lose(self, at: int) -> None:
        """Let a request have no answer. It may still be carried out."""
        request = self.source.requests.get(at)
        if request is None or request.token is None or request.token[0] == "doubt":
            return
        process = self._awake(request.owner, ("lose", at))
        if process is None:
            return
        self.note(process, "gets no answer to: {}", request.asked)
        process.hear(request, at, LOST)
        request.token = None
        self.limit(at)

    def limit(self, at: int) -> None:
        """Let a change without a condition, which was given up, end within the time-out.

        docs/consistency.md names it as what remains that it may also end later.
        """
        request = self.source.requests.get(at)
        if request is None or not self._is_given_up(request):
            return
        request.given_up = self.now
        if request.is_done:
            if request.token is None:
                del self.source.requests[at]
        elif isinstance(request.asked, Get):
            del self.source.requests[at]
        elif request.change and (
            isinstance(request.asked, Remove) or request.asked.condition == ANYTHING
        ):
            self.agenda.at(self.now + SOURCE_TIMEOUT - SECOND, ("resolve", at))

    def _resolve(self, at: int) -> None:
        request = self.source.requests.get(at)
        if request is not None and not request.is_done:
            if self.agenda.tosses(at):
                request.token = None
                self._carry_out(at)
            self.source.requests.pop(at, None)

    # ---- clients ----

    def begin(self, client: int, kind: str, name: str, server: int) -> bool:
        """Begin an operation of a client; tell whether the server was there."""
        one = self.servers[server]
        process = one.process
        if process is None or process.ending:
            return False
        self.last_operation += 1
        number = self.last_operation
        value = number if kind in (SET, ADD) else MISSING
        keys = (name,) if not name.endswith("/") else self.keys
        operation = Operation(number, client, kind, name, value, process.number, keys)
        self.operations[number] = operation
        self.note(process, "is asked by client {}: {} {} ({})", client, kind, name, number)
        for key in keys:
            self.registers[key].begin(number, kind, value)
        if one.paused and kind == GET:
            # Clients of its host look into its memory without asking it.
            found = process.cache.find(name, process.now)
            if found is not None:
                self.answer_read(operation, found, hit=True)
                return True
        self._serve(number)
        return True

    def _serve(self, number: int) -> None:
        operation = self.operations.get(number)
        if operation is None:
            return
        process = self._awake(operation.process, ("serve", number))
        if process is not None:
            (process.read if operation.kind == GET else process.change)(operation)

    def answer_read(self, operation: Operation, value: Value, *, hit: bool = False) -> None:
        """Tell a client what it has read."""
        self.hits += hit
        self.last_read = value
        where = "the cache" if hit else "the source"
        self.note(None, "client {} reads {} ({}): {}, from {}", operation.client, operation.name,
                  operation.number, value, where)  # fmt: skip
        del self.operations[operation.number]
        self.finished.append(operation.client)
        if not self.registers[operation.name].read(operation.number, value):
            raise ViolationError(f"client {operation.client} reads {operation.name}: {value}")

    def lose_patience(self, number: int) -> None:
        """Let the client of a change wait no longer."""
        operation = self.operations.get(number)
        if operation is None or operation.told or operation.kind == GET:
            return
        self._tell_outcome(operation, CHANGE_UNKNOWN)
        self._give_up_waiting(number)

    def _give_up_waiting(self, number: int) -> None:
        operation = self.operations.get(number)
        if operation is not None:
            process = self._awake(operation.process, ("given up", number))
            if process is not None:
                process.feed(events.GivenUp(number))

    def conclude(self, operation: Operation, outcome: str) -> None:
        """Note what has become of a change."""
        del self.operations[operation.number]
        if outcome == CHANGE_NOT_MADE:
            if operation.made:
                raise ViolationError(
                    f"change {operation.number} was made, and is told as one that was not"
                )
            self.not_made.add(operation.number)
        if not operation.told:
            self._tell_outcome(operation, outcome)

    def _tell_outcome(self, operation: Operation, outcome: str) -> None:
        operation.told = self.last_told = outcome
        self.note(None, "client {} is told of change {}: {}{}", operation.client,
                  operation.number, outcome, ", found" if operation.found else "")  # fmt: skip
        self.finished.append(operation.client)
        for key in operation.keys:
            register = self.registers[key]
            right = (
                register.found(operation.number)
                if outcome == CHANGE_MADE and operation.found
                else register.answer(operation.number, outcome)
            )
            if not right:
                raise ViolationError(f"change {operation.number} of {key} cannot be {outcome}")

    def drop(self, operation: Operation) -> None:
        """Let a read fail."""
        self.note(None, "client {} reads {}: it fails", operation.client, operation.name)
        del self.operations[operation.number]
        self.finished.append(operation.client)
        self.registers[operation.name].fail(operation.number)


def _named(one: int) -> str:
    return "the source" if one == SOURCE else f"server {one}"


_HANDLERS = {
    "wake": "_wake",
    "give up": "_give_up",
    "leave": "_leave",
    "gone": "_gone",
    "tell": "_tell",
    "turn": "_turn",
    "resolve": "_resolve",
    "impatient": "lose_patience",
    "given up": "_give_up_waiting",
    "dial": "_dial",
    "deliver": "_deliver",
    "carry out": "_carry_out",
    "answer": "_answer",
    "refuse": "refuse",
    "lose": "_lose",
    "serve": "_serve",
    "start": "start",
    "kill": "kill",
    "end": "end",
    "pause": "pause",
    "go on": "go_on",
    "cut": "cut",
    "mend": "mend",
    "reset": "reset",
}
