"""Long histories, drawn at random by a seed: what clients do, what befalls servers, and delays."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from tests.simulator.monitor import ADD, GET, MADE, REMOVE, SET
from tests.simulator.network import SOURCE
from tests.simulator.world import (
    SECOND,
    SOURCE_TIMEOUT,
    Event,
    Machine,
    ViolationError,
    World,
    holds,
)
from ucxstore.server.peers import times
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.state import State

# All keys of a history, and the prefix of them.
KEYS = ("a/0", "a/1")
PREFIX = "a/"

# After the last fault: until all that is under way has ended, a read sees what the source has, and
# caches answer again.
CALM = 120 * SECOND
BACK = 200 * SECOND

# Microseconds, in the mean: of messages, and of requests to the source.
_MESSAGE = 400
_REQUEST = 4_000

# Elements of a machine's state at the end, for each server and key.
SIZE = 200

# Seconds that a change waits while the source answers nothing, as `SOURCE_TIMEOUT`.
PATIENCE = SOURCE_TIMEOUT / SECOND

# A request that was given up is carried out within a minute here, and not within a quarter of an
# hour: what waits for that is the same, and histories are shorter.
LATE = 60 * SECOND
_TIMES = {"LATE_SECONDS": LATE / SECOND + 20.0, "IDLE_SECONDS": 10.0}

_PROBE = -1  # the number of the client that looks at the end


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that befalls servers, from `at` on for so long. Times are microseconds."""

    at: int
    lasting: int
    kind: str
    about: tuple[Any, ...]
    stage: str = ""  # it waits a while for a change through one of them that has got so far

    def __str__(self) -> str:
        about = ", ".join(map(str, self.about))
        when = f", once a change is {self.stage}" if self.stage else ""
        return (
            f"{self.at / SECOND:.3f} s{when}, for {self.lasting / SECOND:.3f} s: "
            f"{self.kind} {about}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What is drawn before a history begins."""

    seed: int
    servers: int
    keys: int
    conditional: bool
    same_host: bool
    rates: tuple[float, ...]
    starts: tuple[int, ...]
    clients: tuple[tuple[tuple[int, str, str, int], ...], ...]
    faults: tuple[Fault, ...]
    message: int
    request: int
    turn: int
    impatience: float
    length: int


@dataclass(slots=True)
class Result:
    """What became of a history."""

    violation: str = ""
    events: int = 0
    reads: int = 0
    hits: int = 0
    seconds: float = 0.0
    sure: bool = True
    largest: int = 0
    trace: list[tuple[int, str]] = field(default_factory=list)


def draw(seed: int) -> Plan:
    """Draw a plan."""
    chance = random.Random(seed)
    servers = chance.choices((1, 2, 3, 4), (2, 10, 12, 1))[0]
    keys = chance.choice((1, 2))
    names = KEYS[:keys]
    spread = chance.choice((0.0, 0.0, 0.024))
    is_long = chance.random() < 0.3  # long faults of one server, which lead to its being shut out
    length = int((30 if is_long else chance.choice((4, 12, 30))) * SECOND)
    writes = chance.choice((0.15, 0.4, 0.7))
    kinds = (GET, SET, ADD, REMOVE)
    shares = (1 - writes, writes * 0.67, writes * 0.08, writes * 0.25)
    clients = []
    hurry = chance.choice((1.0, 1.0, 0.3))  # nothing is written in the end
    for client in range(chance.randint(1, 3)):
        operations = []
        home = client % servers
        count = chance.randint(4, 20)
        for _ in range(count):
            kind = chance.choices(kinds, shares)[0]
            name = chance.choice(names)
            if kind == REMOVE and chance.random() < 0.3:
                name = PREFIX
            at = home if chance.random() < 0.7 else chance.randrange(servers)
            think = int(hurry * length / count * min(5.0, chance.expovariate(1.0) ** 2))
            operations.append((think, kind, name, at))
        clients.append(tuple(operations))
    for server in range(servers):
        if chance.random() < 0.7:  # somebody who looks there all the time
            count = chance.choice((20, 60, 200))
            name = chance.choice(names)
            clients.append(((length // count, GET, name, server),) * count)
    return Plan(
        seed=seed,
        servers=servers,
        keys=keys,
        conditional=chance.random() < 0.7,
        same_host=chance.random() < 0.3,
        rates=tuple(1 + chance.uniform(-spread, spread) for _ in range(servers)),
        starts=tuple(
            0 if number == 0 or chance.random() < 0.6 else chance.randrange(length)
            for number in range(servers)
        ),
        clients=tuple(clients),
        faults=_draw_faults(chance, servers, length, is_long=is_long),
        message=int(_MESSAGE * chance.choice((1, 1, 1, 20, 200))),
        request=int(_REQUEST * chance.choice((1, 1, 5, 50))),
        turn=int(_MESSAGE * chance.choice((1, 1, 200, 1000))),
        impatience=chance.choice((0.0, 0.0, 0.3)),
        length=length,
    )


_KINDS = {
    "cut": 4, "cut one way": 4, "cut off": 2, "cut from the source": 1, "cut from all": 1,
    "break": 2, "pause": 3, "kill": 3, "end": 3, "kill all": 4, "source": 10,
}  # fmt: skip


# Faults that come at a bad moment more often than chance has it.
_AT_A_STAGE = {"cut", "cut one way", "cut off", "cut from all", "pause", "kill", "end", "kill all"}

# How often, and after how many microseconds again, it is looked whether the moment is there.
_LOOKS, _LOOK = 500, 4_000


def _draw_faults(
    chance: random.Random, servers: int, length: int, *, is_long: bool
) -> tuple[Fault, ...]:
    """Draw faults, of which some follow others closely."""
    faults: list[Fault] = []
    at = chance.randrange(length // 3 if is_long else length)
    one = chance.randrange(servers)
    for _ in range(chance.choices((0, 1, 2, 3, 5), (1, 4, 5, 4, 1))[0] + is_long):
        seconds = (4, 10, 25) if is_long else (0.1, 1, 4, 10, 25)
        faults.append(_draw_fault(chance, servers, one, min(at, length - SECOND), seconds))
        if is_long or chance.random() < 0.6:
            at += int(chance.choice((0.02, 0.3, 3, 8)) * SECOND * chance.random())
        else:
            at = chance.randrange(length)
        if chance.random() < (0.4 if is_long else 1.0):
            one = chance.randrange(servers)
    return tuple(faults)


def _draw_fault(
    chance: random.Random, servers: int, one: int, at: int, seconds: tuple[float, ...]
) -> Fault:
    kind = chance.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
    if kind == "kill all":
        seconds = (0.1, 1, 4)
    lasting = int(chance.choice(seconds) * SECOND * chance.uniform(0.5, 1.5))
    other = (one + chance.randrange(1, servers)) % servers if servers > 1 else one
    about: tuple[Any, ...] = (one,)
    if kind in ("cut", "cut one way", "break"):
        about = one, other
    elif kind == "kill all":
        about = ()
    elif kind == "end":
        about = one, int(chance.choice((0, 0, 0.05, 3)) * SECOND)
    elif kind == "source":
        mode = chance.choice(("slow", "refuse", "lose", "lose", "late"))
        about = chance.choice((one, one, None)), mode
    stage = (
        chance.choice(("", "new", "due", "sent", "sent", "looking")) if kind in _AT_A_STAGE else ""
    )
    return Fault(at, lasting, kind, about, stage)


class _Chances:
    """The agenda of a history: a time for each event."""

    def __init__(self, plan: Plan, salt: int) -> None:
        self.random = random.Random(plan.seed * 1000 + salt).random
        self.world: World
        self.modes: dict[int, str] = {}
        self.events: list[tuple[int, int, Event]] = []
        self._last = 0
        self._message = plan.message
        self._request = plan.request
        self.turn = plan.turn

    def at(self, time: int, event: Event) -> None:
        self._last += 1
        heappush(self.events, (time, self._last, event))

    def soon(self, event: Event) -> None:
        kind = event[0]
        chance = self.random()
        # Mostly about the mean, and at times fifty times that.
        delay = 0.2 + chance / (1.02 - chance)
        if kind in ("carry out", "answer"):
            if self.modes:
                request = self.world.source.requests[event[1]]
                mode = self.modes.get(request.owner % len(self.world.servers))
                if mode is not None and (kind == "carry out" or mode == "slow"):
                    self._in_mode(mode, event)
                    return
            delay *= self._request
        elif kind == "turn":
            delay *= self.turn
        else:
            delay *= self._message
        self.at(self.world.now + int(delay), event)

    def orphan(self, at: int) -> bool:
        """Tell whether a request whose process has ended is held up; it is carried out later."""
        if self.random() < 0.3:
            return False
        self.at(self.world.now + int(self.random() ** 3 * LATE), ("carry out", at))
        return True

    def tosses(self, _: int) -> bool:
        return self.random() < 0.5

    def _in_mode(self, mode: str, event: Event) -> None:
        chance, now, at = self.random(), self.world.now, event[1]
        if mode == "slow":
            self.at(now + int(chance * 8 * SECOND), event)
        elif mode == "refuse":
            self.at(now + self._request, ("refuse", at) if chance < 0.8 else event)
        elif mode == "late":
            self.at(now + int((3 + chance * 40) * SECOND), event)
        elif chance < 0.4:  # the answer is lost
            self.at(now + self._request, event)
            self.at(now + self._request, ("lose", at))
        elif chance < 0.8:  # the request is given up, and carried out later
            self.at(now + self._request, ("lose", at))
            self.at(now + int(self._request + self.random() ** 2 * LATE), event)
        else:
            self.at(now + self._request, event)


class History:
    """A history under way.

    Parameters
    ----------
    plan : Plan
    machine : callable
        Makes a machine, given the number of its process.
    salt : int
        Another one draws other delays for the same plan.
    trace : bool
        Whether to keep what happens as text.
    """

    def __init__(
        self,
        plan: Plan,
        machine: Callable[[int], Machine],
        *,
        salt: int = 0,
        trace: bool = False,
    ) -> None:
        self.plan = plan
        self._agenda = _Chances(plan, salt)
        self.world = self._agenda.world = World(
            plan.servers,
            KEYS[: plan.keys],
            machine,
            self._agenda,
            conditional=plan.conditional,
            same_host=plan.same_host,
            rates=plan.rates,
        )
        if trace:
            self.world.trace = []
        self._next = [0] * len(plan.clients)
        self._is_over = False
        self._largest = 0

    def run(self) -> Result:
        """Let it happen, and judge it."""
        result = Result()
        world = self.world
        try:
            self._happen()
            self._calm()
        except ViolationError as error:
            result.violation = str(error)
        result.events = world.events
        result.hits = world.hits
        result.seconds = world.now / SECOND
        result.sure = all(one.is_sure for one in world.registers.values())
        result.trace = world.trace or []
        result.largest = self._largest
        return result

    # ---- until the faults have ended ----

    def _happen(self) -> None:
        at, plan = self._agenda.at, self.plan
        for server, time in enumerate(plan.starts):
            at(time, ("start", server))
        for client, operations in enumerate(plan.clients):
            if operations:
                at(SECOND // 2 + operations[0][0], ("client", client))
        for number, fault in enumerate(plan.faults):
            at(fault.at, ("begin", number, _LOOKS))
        self._until(plan.length + SECOND)

    def _until(self, time: int) -> None:
        world, events = self.world, self._agenda.events
        do = world.do
        finished = world.finished
        while events and events[0][0] <= time:
            world.now, _, event = heappop(events)
            kind = event[0]
            if kind == "client":
                self._begin(event[1])
            elif kind == "begin":
                self._await(event[1], event[2])
            elif kind == "over":
                self._end(self.plan.faults[event[1]])
            else:
                do(event)
            if finished:
                for client in finished:
                    self._follow(client)
                finished.clear()
        world.now = time

    def _begin(self, client: int) -> None:
        if self._is_over:
            return
        _, kind, name, server = self.plan.clients[client][self._next[client]]
        if not self.world.begin(client, kind, name, server):
            self._follow(client)
        elif kind != GET and self._agenda.random() < self.plan.impatience:
            at = self.world.now + int(self._agenda.random() ** 3 * SOURCE_TIMEOUT)
            self._agenda.at(at, ("impatient", self.world.last_operation))

    def _follow(self, client: int) -> None:
        if client == _PROBE or self._is_over:
            return
        self._next[client] += 1
        operations = self.plan.clients[client]
        if self._next[client] < len(operations):
            think = operations[self._next[client]][0]
            self._agenda.at(self.world.now + 1 + think, ("client", client))

    # ---- faults ----

    def _await(self, number: int, looks: int) -> None:
        """Let a fault begin at its moment, or at last without that."""
        fault = self.plan.faults[number]
        there = fault.about[:1] or range(self.plan.servers)
        if (
            looks
            and fault.stage
            and not any(
                one.stage == fault.stage and one.kind != GET
                for one in self.world.operations.values()
                if one.process % self.plan.servers in there
            )
        ):
            self._agenda.at(self.world.now + _LOOK, ("begin", number, looks - 1))
        else:
            self._befall(fault)

    def _befall(self, fault: Fault) -> None:
        world, servers = self.world, range(self.plan.servers)
        match fault.kind, fault.about:
            case "break", (one, other):
                for at, link in list(world.network.links.items()):
                    if {end % len(servers) for end in link.ends} == {one, other}:
                        world.reset(at)
                return
            case "pause", (one,):
                world.pause(one)
            case "kill", (one,):
                world.kill(one)
            case "end", (one, drain):
                world.end(one, drain)
            case "kill all", ():
                for one in servers:
                    world.kill(one)
            case "source", (one, mode):
                for server in servers if one is None else (one,):
                    self._agenda.modes[server] = mode
            case _:
                for way in self._ways(fault):
                    world.cut(*way)
        number = self.plan.faults.index(fault)
        self._agenda.at(world.now + fault.lasting, ("over", number))

    def _end(self, fault: Fault) -> None:
        world, servers = self.world, range(self.plan.servers)
        match fault.kind, fault.about:
            case "pause", (one,):
                world.go_on(one)
            case ("kill", (one,)) | ("end", (one, _)):
                world.start(one)
            case "kill all", ():
                for one in servers:
                    self._agenda.at(world.now + int(self._agenda.random() * SECOND), ("start", one))
            case "source", (one, _):
                for server in servers if one is None else (one,):
                    self._agenda.modes.pop(server, None)
            case _:
                for way in self._ways(fault):
                    world.mend(*way)

    def _ways(self, fault: Fault) -> set[tuple[int, int]]:
        """Return the directions that are cut."""
        others = [one for one in range(self.plan.servers) if one != fault.about[0]]
        match fault.kind, fault.about:
            case "cut one way", (one, other):
                return {(one, other)}
            case "cut", (one, other):
                return {(one, other), (other, one)}
            case "cut from the source", (one,):
                return {(one, SOURCE)}
        (one,) = fault.about
        ways = {(one, other) for other in others} | {(other, one) for other in others}
        return ways | {(one, SOURCE)} if fault.kind == "cut from all" else ways

    # ---- after the faults ----

    def _calm(self) -> None:
        world, agenda = self.world, self._agenda
        self._is_over = True
        for server in range(self.plan.servers):
            world.go_on(server)
        for way in list(world.network.cut):
            world.mend(*way)
        agenda.modes.clear()
        agenda.turn = self.plan.message
        until = world.now + CALM
        while world.now < until and not self._is_calm():
            self._until(world.now + SECOND)
            for one in world.servers:
                if one.process is None:
                    world.start(one.number)
        if not self._is_calm():
            raise ViolationError(f"waits for ever: {self._waiting()}")
        self._measure()
        self._see_the_source()
        self._see_the_caches()
        self._measure()

    def _is_calm(self) -> bool:
        world = self.world
        return (
            not world.operations
            and all(one.process is not None and not one.process.ending for one in world.servers)
            and not any(one.is_late and one.change for one in world.source.requests.values())
        )

    def _waiting(self) -> str:
        world = self.world
        ways = [f"{one.kind} {one.name} ({one.number})" for one in world.operations.values()]
        late = [str(one.asked) for one in world.source.requests.values() if one.is_late]
        return ", ".join(ways + late)

    def _measure(self) -> None:
        """See that no machine remembers more than there is."""
        for server in self.world.servers:
            if server.process is not None:
                size = size_of(server.process.machine.key(server.process.now))
                self._largest = max(self._largest, size)
                if size > SIZE * (self.plan.servers + self.plan.keys):
                    raise ViolationError(f"server {server.number} remembers {size} things")

    def _see_the_source(self) -> None:
        """See that each server reads what the source has, in the end."""
        world = self.world
        until = world.now + BACK
        while True:
            wrong = self._differing()
            if not wrong:
                return
            if world.now > until:
                raise ViolationError(f"unseen for ever: {wrong}")
            self._until(world.now + 5 * SECOND)

    def _differing(self) -> str:
        for key in self.world.keys:
            for server in range(self.plan.servers):
                if self._read(server, key) is None:
                    return f"server {server} reads another {key} than the source has"
        return ""

    def _read(self, server: int, key: str) -> bool | None:
        """Read a key; tell whether it came from the cache, and ``None`` if it is wrong."""
        world = self.world
        hits, before = world.hits, world.last_operation
        if not world.begin(_PROBE, GET, key, server):
            return None
        until = world.now + 30 * SECOND
        while world.last_operation in world.operations and world.now < until:
            self._until(world.now + SECOND // 100)
        if before + 1 in world.operations:
            raise ViolationError(f"a read at server {server} waits for ever")
        right = world.last_read == world.source.values.get(key, 0)
        return None if not right else world.hits > hits

    def _see_the_caches(self) -> None:
        """See that each server answers from its cache again, once each key was written.

        A server that joins after the write may learn of an earlier change without a known end, so
        they are written again now and then.
        """
        world = self.world
        until = world.now + BACK
        write_at = world.now
        while True:
            if world.now >= write_at:
                write_at = world.now + BACK // 8
                for number, key in enumerate(world.keys):
                    server = number % self.plan.servers
                    if not self._write(server, key) and world.now > until:
                        raise ViolationError(f"no write at server {server} is made any more")
            behind = [
                (server, key)
                for key in world.keys
                for server in range(self.plan.servers)
                if not (self._read(server, key) or self._read(server, key))
            ]
            if not behind:
                return
            if world.now > until:
                raise ViolationError(f"caches do not come back: {behind}")
            self._until(world.now + SECOND)

    def _write(self, server: int, key: str) -> bool:
        world = self.world
        world.begin(_PROBE, SET, key, server)
        number = world.last_operation
        until = world.now + 60 * SECOND
        while number in world.operations and world.now < until:
            self._until(world.now + SECOND // 100)
        if number in world.operations:
            raise ViolationError(f"a write at server {server} waits for ever")
        return world.last_told == MADE


@contextmanager
def shorter_times() -> Iterator[None]:
    """Let machines wait for less than real ones."""
    real = {name: getattr(times, name) for name in _TIMES}
    try:
        for name, seconds in _TIMES.items():
            setattr(times, name, seconds)
        yield
    finally:
        for name, seconds in real.items():
            setattr(times, name, seconds)


def member(number: int) -> PeerMachine:
    """Make the machine of a process."""
    return PeerMachine(State(str(number), patience=PATIENCE, holds=holds))


def size_of(value: object) -> int:
    """Return how many things there are in what tells a machine from others."""
    if isinstance(value, tuple | frozenset):
        return 1 + sum(map(size_of, value))
    return 1


def run(
    plan: Plan, machine: Callable[[int], Machine] = member, *, salt: int = 0, trace: bool = False
) -> Result:
    """Carry out a plan."""
    with shorter_times():
        return History(plan, machine, salt=salt, trace=trace).run()
