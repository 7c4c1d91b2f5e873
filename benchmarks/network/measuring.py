"""The parts of the measurement: one client, many clients, UCX's settings, crowds."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import perftest
from benchmarks.network import content, plan, programs
from benchmarks.network.links import LOOPBACK, NETWORKS, Link
from benchmarks.network.plan import Plan
from benchmarks.network.programs import Program, ProgramError
from benchmarks.network.record import Cell, Crowd, Record
from benchmarks.network.ways import UCX_OF_OURS, Load, Served, Way
from benchmarks.network.windows import Window, take_turns, watch
from benchmarks.process import unshared_bytes

type Turn = Callable[[], Window]

# A way that cannot be measured must not stop the others.
_FAILURES = (ProgramError, RuntimeError, OSError)

# Addresses change from run to run.
_PLACE = re.compile(r"\b\d+\.\d+\.\d+\.\d+:\d+\b")

_WARM_UP_SECONDS = 0.1
# Before each window of large values that are set: their servers have given back memory meanwhile.
_SET_WARM_UP_SECONDS = 0.3
_CONNECT_SECONDS = 180.0
_SHOWN_ERRORS = 3

_LARGE_TESTS = ("ucp_am_bw", "ucp_am_lat")
_LARGE_MESSAGES = {None: 8, "10gbit": 4, "1gbit": 1}
_SMALL_MESSAGES = 5000


class Failures:
    """Notes of the ways that could not be measured, in a record."""

    def __init__(self, record: Record, ways: Sequence[Way], where: str) -> None:
        self._record = record
        self._ways = {way.name: way for way in ways}
        self._where = where

    def note(self, name: str, error: Exception) -> None:
        """Note an error; some ways may refuse."""
        way = self._ways.get(name)
        lines = str(error).splitlines() or [type(error).__name__]
        text = f"{name}: {_PLACE.sub('the server', lines[-1])}"
        noted = self._record.refused if getattr(way, "optional", False) else self._record.errors
        if not getattr(way, "optional", False):
            text = f"{self._where}: {text}"
        if text not in noted:
            noted.append(text)
            print(f"    {text}", flush=True)


def measure_one_client(link: Link, given: Plan, record: Record) -> None:
    """Let one client get and set large values, and get small ones."""
    unshaped = link.name in plan.UNSHAPED
    ways = [*plan.ONE_CLIENT, *plan.PROTECTED] if unshaped else plan.ONE_CLIENT_SHAPED
    rounds = given.rounds if unshaped else given.shaped_rounds
    with _served(link, ways, record) as servers:
        for load, seconds in (
            (Load("get", content.LARGE, 1), given.one_seconds),
            (Load("set", content.LARGE, 1), given.one_seconds),
            (Load("get", content.SMALL, 1), given.small_seconds),
        ):
            is_small = load.nbytes == content.SMALL
            some = [one for one in servers if not (is_small and one[0].name in plan.FOR_LARGE)]
            beside = {plan.PERFTEST: partial(_perftest, link, load)} if load.op == "get" else {}
            _measure(link, some, load, seconds, rounds, record, beside)


def measure_many_clients(link: Link, given: Plan, record: Record) -> None:
    """Let many clients get values of 64 KiB."""
    unshaped = link.name in plan.UNSHAPED
    seconds = given.seconds if link.name == LOOPBACK else given.other_seconds
    rounds = given.rounds if unshaped else given.shaped_rounds
    with _served(link, plan.MANY_CLIENTS, record) as servers:
        for clients in given.clients:
            load = Load("get", content.MIDDLE, clients)
            some = [
                one for one in servers if clients <= plan.MOST_CLIENTS.get(one[0].name, clients)
            ]
            _measure(link, some, load, seconds, rounds, record, {})


def measure_settings(link: Link, given: Plan, record: Record) -> None:
    """Try UCX's settings; each way lives for its own turn, since some never sleep."""
    loads = [
        Load("get", content.LARGE, 1),
        Load("get", content.MIDDLE, 1),
        Load("get", content.MIDDLE, 8),
        Load("get", content.SMALL, 1),
    ]
    failures = Failures(record, plan.SETTINGS, f"{link.name}, UCX's settings")
    ways = _usable(plan.SETTINGS, record)
    for load in loads:
        turns = {
            way.name: partial(_one_window, link, way, load, given.settings_seconds) for way in ways
        }
        found = take_turns(turns, given.settings_rounds, failures.note)
        record.settings += [
            Cell(link.name, name, load.op, load.nbytes, load.clients, windows)
            for name, windows in found.items()
        ]


def measure_crowds(link: Link, given: Plan, record: Record) -> None:
    """Let many processes connect at once, and one client work beside them once they are idle."""
    failures = Failures(record, plan.CROWDS, f"{link.name}, crowds")
    for way in _usable(plan.CROWDS, record):
        try:
            crowd = _crowd(link, way, given)
        except _FAILURES as error:
            failures.note(way.name, error)
            continue
        record.crowds.append(crowd)
        times = ", ".join(f"{one:.2f} s" for one in crowd.seconds) or "not timed"
        print(f"    {way.name}: {crowd.clients} clients, {times}", flush=True)


# ---- windows of ways that are there together ----


def _usable(ways: Sequence[Way], record: Record) -> list[Way]:
    found = []
    for way in ways:
        reason = way.missing()
        if reason is None:
            found.append(way)
        elif (text := f"{way.name}: {reason}") not in record.skipped:
            record.skipped.append(text)
    return found


@contextmanager
def _served(link: Link, ways: Sequence[Way], record: Record) -> Iterator[list[tuple[Way, Served]]]:
    """Start a server for each way that can be measured."""
    failures = Failures(record, ways, link.name)
    with ExitStack() as stack:
        found = []
        for way in _usable(ways, record):
            try:
                found.append((way, stack.enter_context(way.serve(link))))
            except _FAILURES as error:
                failures.note(way.name, error)
        yield found


def _measure(
    link: Link,
    servers: Sequence[tuple[Way, Served]],
    load: Load,
    seconds: float,
    rounds: int,
    record: Record,
    beside: Mapping[str, Turn],
) -> None:
    """Start clients of all, and let them take turns."""
    what = f"{load.op} of {load.nbytes:,} bytes, {load.clients} clients"
    failures = Failures(record, [way for way, _ in servers], f"{link.name}, {what}")
    with ExitStack() as stack:
        turns: dict[str, Turn] = {}
        started = [  # all at the same time
            (way, served, stack.enter_context(way.clients(link, served, load)))
            for way, served in servers
        ]
        for way, served, clients in started:
            try:
                ready = clients.hear(_CONNECT_SECONDS)
                large = load.nbytes * load.clients >= content.LARGE
                if not large:  # each has moved one value
                    watch(clients, served.pid, load, _WARM_UP_SECONDS)
            except _FAILURES as error:
                failures.note(way.name, error)
                continue
            record.streams[way.name] = ready.get("streams", getattr(way, "streams", 1))
            warm_up = _SET_WARM_UP_SECONDS if large and load.op == "set" else 0.0
            turns[way.name] = partial(watch, clients, served.pid, load, seconds, warm_up)
        found = take_turns({**turns, **beside}, rounds, failures.note)
    print(f"    {what}", flush=True)
    for name, windows in found.items():
        cell = Cell(link.name, name, load.op, load.nbytes, load.clients, windows)
        record.cells.append(cell)
        rate, p50 = cell.median(lambda window: window.rate), cell.median(lambda one: one.p50)
        print(f"        {name}: {rate:.3g} GB/s, {1e6 * (p50 or 0):.1f} us", flush=True)


def _one_window(link: Link, way: Way, load: Load, seconds: float) -> Window:
    with way.serve(link) as served, way.clients(link, served, load) as clients:
        clients.hear(_CONNECT_SECONDS)
        watch(clients, served.pid, load, seconds / 4)
        return watch(clients, served.pid, load, seconds)


def _perftest(link: Link, load: Load) -> Window:
    """Let ``ucx_perftest`` send messages of a size: there, or for a small one there and back."""
    ends = perftest.Ends(link.server.ip, link.server.inside, link.client.inside)
    settings = {**UCX_OF_OURS, "UCX_NET_DEVICES": link.client.device}
    if load.nbytes == content.SMALL:
        there = perftest.seconds_a_message(
            "ucp_am_lat", load.nbytes, _SMALL_MESSAGES, settings, ends
        )
        return Window(load.nbytes / (2 * there) / 1e9, 2 * there)
    messages = _LARGE_MESSAGES[NETWORKS[link.name]]
    seconds = min(
        perftest.seconds_a_message(test, load.nbytes, messages, settings, ends)
        for test in _LARGE_TESTS
    )
    return Window(load.nbytes / seconds / 1e9, seconds)


# ---- crowds ----


def _crowd(link: Link, way: Way, given: Plan) -> Crowd:
    load = Load("get", content.SMALL, 1)
    rounds = given.crowds[way.name]
    with ExitStack() as stack:
        servers = {name: stack.enter_context(way.serve(link)) for name in ("alone", "beside")}
        active = {
            name: stack.enter_context(way.clients(link, served, load))
            for name, served in servers.items()
        }
        for clients in active.values():
            clients.hear(_CONNECT_SECONDS)
        crowded = servers["beside"]
        before = _held(crowded.pid)
        outcomes = [
            _connect_at_once(stack, link, way, crowded, given.at_once) for _ in range(rounds)
        ]
        clients_there = rounds * given.at_once - sum(map(len, map(_errors, outcomes)))
        nbytes, descriptors = (
            (now - then) / max(clients_there, 1)
            for now, then in zip(_held(crowded.pid), before, strict=True)
        )
        turns = {
            name: partial(watch, active[name], servers[name].pid, load, given.small_seconds)
            for name in active
        }
        windows = take_turns(turns, given.rounds, _raise)
    return Crowd(
        way=way.name,
        clients=clients_there,
        at_once=given.at_once,
        seconds=[max(_times(found)) for found in outcomes if _times(found)],
        failed=[len(_errors(found)) for found in outcomes],
        errors=_most_common(error for found in outcomes for error in _errors(found)),
        nbytes=nbytes,
        descriptors=descriptors,
        **windows,
    )


def _connect_at_once(
    stack: ExitStack, link: Link, way: Way, served: Served, clients: int
) -> list[float | str]:
    """Let processes connect, which stay; return the seconds of each, or its error."""
    task = getattr(way, "task", None)
    if task is None:  # a program for all, one after the other: no time of it can be compared
        crowd = way.clients(link, served, Load("get", content.SMALL, clients))
        stack.enter_context(crowd).hear(_CONNECT_SECONDS)
        return []
    key = next(iter(content.keys(content.SMALL)))
    of_crowd = {**task(served), "clients": clients, "key": key, "bytes": content.SMALL}
    command = [*link.client.inside, *programs.python("crowd", of_crowd)]
    forked = stack.enter_context(Program(command, {"OPENBLAS_NUM_THREADS": "1"}))
    forked.hear(_CONNECT_SECONDS)
    forked.say("begin")
    found: list[float | str] = forked.hear(_CONNECT_SECONDS)
    return found


def _times(found: Sequence[float | str]) -> list[float]:
    return [one for one in found if not isinstance(one, str)]


def _errors(found: Sequence[float | str]) -> list[str]:
    return [one for one in found if isinstance(one, str)]


def _most_common(errors: Iterable[str]) -> list[str]:
    counts = Counter(_PLACE.sub("the server", error) for error in errors)
    return [f"{error} ({count} times)" for error, count in counts.most_common(_SHOWN_ERRORS)]


def _held(pid: int) -> tuple[int, int]:
    """Return the memory of a process, and how many descriptors it has."""
    return unshared_bytes(pid), len([*Path(f"/proc/{pid}/fd").iterdir()])


def _raise(_: str, error: Exception) -> None:
    raise error
