"""Every interleaving of small histories, with every single fault.

Whatever can happen at a moment is tried in each order: messages, requests, answers, what clients
begin. Time goes on once nothing is left to happen, so a delay is a fault: something is held back
while time passes. Without a fault, it goes on only while an operation waits for that. A fault comes
at any moment until the clients are done, and ends at any later one between two steps of time.
States that are equal are looked at once.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.simulator.chances import KEYS, PREFIX, member, shorter_times
from tests.simulator.faults import FAULTS
from tests.simulator.monitor import ADD, GET, MISSING, REMOVE, SET
from tests.simulator.network import SOURCE
from tests.simulator.world import SECOND, Event, Machine, ViolationError, World

# States of one history with one fault, at most.
STATES = 40_000

# So long a history goes on: longer than a lease, and the wait of who shuts another one out.
_HORIZON = 16 * SECOND

type _Step = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """What clients do, each one thing after another."""

    name: str
    servers: int
    keys: int
    clients: tuple[tuple[tuple[str, str, int], ...], ...]


_A, _B = KEYS
SCRIPTS = (
    Script("write, read elsewhere", 2, 1, (((SET, _A, 0),), ((GET, _A, 1), (GET, _A, 0)))),
    Script("write, read there and here", 2, 1, (((SET, _A, 0),), ((GET, _A, 0), (GET, _A, 1)))),
    Script("two writers", 2, 1, (((SET, _A, 0),), ((SET, _A, 1), (GET, _A, 0)))),
    Script("write twice", 2, 1, (((SET, _A, 0), (SET, _A, 0)), ((GET, _A, 1),))),
    Script("write and remove", 2, 1, (((SET, _A, 0), (REMOVE, _A, 1)), ((GET, _A, 0),))),
    Script("add twice", 2, 1, (((ADD, _A, 0),), ((ADD, _A, 1), (GET, _A, 0)))),
    Script("remove a prefix", 2, 2, (((REMOVE, PREFIX, 0),), ((SET, _B, 1), (GET, _B, 0)))),
    Script("two keys", 2, 2, (((SET, _A, 0), (GET, _B, 0)), ((SET, _B, 1), (GET, _A, 1)))),
    Script("three servers", 3, 1, (((SET, _A, 0),), ((GET, _A, 1), (GET, _A, 2)))),
    Script("three servers, two writers", 3, 1, (((SET, _A, 0),), ((SET, _A, 1), (GET, _A, 2)))),
)

KINDS = (
    "none", "delay", "lose", "refuse", "late", "break", "cut one way", "cut", "cut from the source",
    "pause", "kill", "end", "kill all",
)  # fmt: skip


class _Orders:
    """An agenda without times for what is soon: anything of that may be next."""

    __slots__ = ("pending", "timers")

    def __init__(self) -> None:
        self.pending: list[Event] = []
        self.timers: list[tuple[int, Event]] = []

    def copy(self) -> "_Orders":
        other = _Orders()
        other.pending = list(self.pending)
        other.timers = list(self.timers)
        return other

    def soon(self, event: Event) -> None:
        self.pending.append(event)

    def at(self, time: int, event: Event) -> None:
        self.timers.append((time, event))

    def orphan(self, at: int) -> bool:
        return False

    def tosses(self, request: int) -> bool:
        return True


class State:
    """A moment of a history."""

    __slots__ = ("agenda", "end", "fault", "held", "next", "script", "struck", "undo", "world")

    def __init__(self, script: Script, machine: Callable[[int], Machine], fault: str) -> None:
        self.script = script
        self.agenda = _Orders()
        self.world = World(script.servers, KEYS[: script.keys], machine, self.agenda)
        self.next = [0] * len(script.clients)
        self.fault = fault  # that may still come
        self.held: tuple[Event, ...] = ()  # what is to come later
        self.undo: tuple[Event, ...] = ()  # what ends the fault
        self.struck = False  # whether it has come
        self.end = 0

    def copy(self) -> "State":
        other = State.__new__(State)
        other.script = self.script
        other.agenda = self.agenda.copy()
        other.world = self.world.copy(other.agenda)
        other.next = list(self.next)
        other.fault = self.fault
        other.struck = self.struck
        other.held = self.held
        other.undo = self.undo
        other.end = self.end
        return other

    def key(self) -> Hashable:
        now = self.world.now
        return (
            self.world.key(),
            tuple(self.next),
            self.fault,
            self.struck,
            self.held,
            self.undo,
            tuple(sorted(map(repr, self.agenda.pending))),
            tuple(sorted((at - now, repr(event)) for at, event in self.timers())),
        )

    def timers(self) -> list[tuple[int, Event]]:
        """Return the timers that still matter."""
        world = self.world
        left = []
        for at, event in self.agenda.timers:
            kind = event[0]
            if kind == "wake":
                process = world.process(event[1])
                matters = process is not None and process.waking == event[2]
            elif kind in ("lose", "resolve"):
                request = world.source.requests.get(event[1])
                matters = request is not None
            elif kind == "give up":
                matters = event[2] in world.operations
            else:
                matters = True
            if matters:
                left.append((at, event))
        self.agenda.timers = left
        return left

    # ---- what can be next ----

    def steps(self) -> Iterator[_Step]:
        """Yield all that can happen now."""
        busy = {one.client for one in self.world.operations.values()}
        for client, at in enumerate(self.next):
            if client not in busy and at < len(self.script.clients[client]):
                yield "client", client
        pending = dict.fromkeys(self.agenda.pending)
        for event in pending:
            yield "event", event
        if self.fault != "none" and not self.is_done:
            for fault in self._faults(list(pending)):
                yield "fault", fault
        if not (pending or self.is_done):
            if self.held or self.undo:
                yield "undo", None
            waits = self.world.operations or self.held or self.undo or self.struck
            if waits and self.world.now < self.end and self.timers():
                yield "time", None

    @property
    def is_done(self) -> bool:
        """Whether the clients have nothing more to do."""
        return not self.world.operations and all(
            at == len(one) for at, one in zip(self.next, self.script.clients, strict=True)
        )

    def _faults(self, pending: list[Event]) -> Iterator[tuple[str, Any]]:
        world, kind = self.world, self.fault
        servers = range(len(world.servers))
        match kind:
            case "delay" | "lose" | "refuse" | "late":
                for event in pending:
                    if kind == "delay" and event[0] in _HELD:
                        yield kind, event
                    request = world.source.requests.get(event[1]) if event[0] in _ASKED else None
                    if request is None or request.token is None:
                        continue
                    if kind == "delay" or kind == "lose" or not request.is_done:
                        yield kind, event
            case "break":
                yield from ((kind, at) for at in world.network.links)
            case "cut one way" | "cut":
                for one in servers:
                    for other in servers:
                        if one != other and (kind == "cut one way" or one < other):
                            yield kind, (one, other)
            case "kill all":
                yield kind, None
            case _:
                yield from ((kind, one) for one in servers if world.servers[one].process)

    def judge(self) -> None:
        """See that a history has ended well after which nothing can happen."""
        world = self.world
        if world.operations and world.now < self.end:
            raise ViolationError("what clients have asked for is never answered")
        for server in world.servers:
            process = server.process
            for key in world.keys if process is not None else ():
                found = process.cache.find(key, process.now)
                if found is not None and found != world.source.values.get(key, MISSING):
                    raise ViolationError(f"server {server.number} has an old {key} for ever")

    # ---- and what it does ----

    def take(self, step: _Step) -> "State":
        """Return the state after a step."""
        same = self.copy()
        kind, what = step
        world, agenda = same.world, same.agenda
        if kind == "event":
            agenda.pending.remove(what)
            world.do(what)
        elif kind == "client":
            script = self.script.clients[what][self.next[what]]
            world.begin(what, *script)
            same.next[what] += 1
        elif kind == "fault":
            same.fault, same.struck = "none", True
            same._befall(*what)
        elif kind == "undo":
            undo, same.undo = same.undo, ()
            for event in undo:
                world.do(event)
            agenda.pending += same.held
            same.held = ()
        else:
            same._pass()
        world.finished.clear()
        return same

    def _befall(self, kind: str, what: Any) -> None:
        world = self.world
        match kind:
            case "delay":
                self.agenda.pending.remove(what)
                self.held = (what,)
            case "refuse":
                world.refuse(what[1])
            case "lose" | "late":
                world.do(("lose", what[1]))
                if kind == "late":
                    self.agenda.pending.remove(what)
                    self.held = (what,)
            case "break":
                world.reset(what)
            case "cut one way" | "cut":
                ways = (what,) if kind == "cut one way" else (what, what[::-1])
                for way in ways:
                    world.cut(*way)
                self.undo = tuple(("mend", *way) for way in ways)
            case "cut from the source":
                world.cut(what, SOURCE)
                self.undo = (("mend", what, SOURCE),)
            case "pause":
                world.pause(what)
                self.undo = (("go on", what),)
            case "end":
                world.end(what, 0)
                self.undo = (("start", what),)
            case "kill" | "kill all":
                servers = range(len(world.servers)) if kind == "kill all" else (what,)
                for one in servers:
                    world.kill(one)
                self.undo = tuple(("start", one) for one in servers)

    def _pass(self) -> None:
        """Let time pass until something is due."""
        timers = self.timers()
        now = self.world.now = max(self.world.now, min(timers)[0])
        self.agenda.pending += [event for at, event in timers if at <= now]
        self.agenda.timers = [(at, event) for at, event in timers if at > now]

    # ---- how it begins ----

    def prepare(self) -> None:
        """Let all servers join, and have all keys in their caches."""
        world = self.world
        for server in world.servers:
            world.start(server.number)
        self._until(lambda: all(one.process.cache.until > 0 for one in world.servers))
        for key in world.keys:
            world.begin(-1, SET, key, 0)
            self._until(lambda: not world.operations and not self.agenda.pending)
            for server in world.servers:
                world.begin(-1, GET, key, server.number)
                self._until(lambda: not world.operations and not self.agenda.pending)
        world.finished.clear()
        self.end = world.now + _HORIZON

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.agenda.pending:
                self.world.do(self.agenda.pending.pop(0))
            else:
                self._pass()


_ASKED = ("carry out", "answer")
_HELD = ("turn", "dial", "tell")


@dataclass(slots=True)
class Search:
    """What a search has found."""

    script: str
    fault: str
    states: int = 0
    complete: bool = True
    violation: str = ""
    trace: tuple[str, ...] = ()


def search(
    script: Script, fault: str, machine: Callable[[int], Machine] = member, most: int = STATES
) -> Search:
    """Try all orders of a history."""
    with shorter_times():
        return _search_all(Search(script.name, fault), script, machine, most)


def _search_all(
    found: Search, script: Script, machine: Callable[[int], Machine], most: int
) -> Search:
    first = State(script, machine, found.fault)
    first.prepare()
    seen = {hash(first.key())}
    # In any order, so that a search up to a limit sees something of everything.
    shuffle = random.Random(1).shuffle

    def shuffled(state: State) -> Iterator[_Step]:
        steps = list(state.steps())
        if not steps:
            state.judge()
        shuffle(steps)
        return iter(steps)

    stack = [(first, shuffled(first))]
    path: list[_Step] = []
    while stack:
        state, steps = stack[-1]
        step = next(steps, None)
        if step is None:
            stack.pop()
            if path:
                path.pop()
            continue
        try:
            after = state.take(step)
            key = hash(after.key())
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > most:
                found.complete = False
                break
            stack.append((after, shuffled(after)))
        except ViolationError as error:
            found.violation = str(error)
            found.trace = tuple(map(str, [*path, step]))
            break
        path.append(step)
    found.states = len(seen)
    return found


def main(processes: int, most: int, fault: str | None) -> int:
    """Try all orders of all histories, with each fault; return 0 if nothing was wrong."""
    begun = time.monotonic()
    total: Counter[str] = Counter()
    bad = []
    tasks = [(script, kind) for script in SCRIPTS for kind in KINDS]
    with ProcessPoolExecutor(processes) as pool:
        lanes = [pool.submit(_search, *task, fault, most) for task in tasks]
        for lane in lanes:
            found = lane.result()
            total["states"] += found.states
            total["complete"] += found.complete and not found.violation
            print(
                f"{found.script:30} {found.fault:20} {found.states:8} states"
                f"{'' if found.complete else ', and more'}"
                f"{', VIOLATION: ' + found.violation if found.violation else ''}",
                flush=True,
            )
            if found.violation:
                bad.append(found)
    seconds = time.monotonic() - begun
    print(
        f"{total['states']} states of {len(tasks)} histories in {seconds:.0f} s of {processes} "
        f"processes: {total['states'] / seconds:.0f} states/s; {total['complete']} histories were "
        f"searched wholly; {len(bad)} violations"
    )
    for found in bad[:3]:
        print("\n".join([f"{found.script}, {found.fault}: {found.violation}", *found.trace]))
    return 1 if bad else 0


def _search(script: Script, kind: str, fault: str | None, most: int) -> Search:
    return search(script, kind, FAULTS[fault] if fault else member, most)
