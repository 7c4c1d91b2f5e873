"""What clients learn from notes of incarnations: nobody reads lost chunks as missing."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.drawing import examples
from ucxstore.address import HostPort
from ucxstore.client import incarnations
from ucxstore.client.incarnations import Incarnations
from ucxstore.cluster.notes import Notes, exchange, folder_of
from ucxstore.keys import NOTES_FOLDER
from ucxstore.protocol.frames import Welcome

A, B, C = PLACES = [HostPort("a", 1), HostPort("b", 1), HostPort("c", 1)]


def welcome(incarnation: bytes, *, volatile: bool = True) -> Welcome:
    return Welcome(b"", incarnation, read_only=False, volatile=volatile)


def process(monkeypatch: pytest.MonkeyPatch) -> Incarnations:
    """Return the incarnations of a process that has not connected to any server."""
    monkeypatch.setattr(incarnations, "_seen", {})
    return Incarnations(PLACES)


def finish(dialogue: Generator[Notes, Notes], found: Notes) -> Notes:
    """Answer both questions of an exchange; return the notes that were left in between."""
    assert all(not notes for notes in next(dialogue).values())
    try:
        left = dialogue.send(found)
    except StopIteration:
        return {}
    with pytest.raises(StopIteration):
        dialogue.send({holder: {**found[holder], **notes} for holder, notes in left.items()})
    return left


def test_a_set_of_servers_has_a_folder_in_any_order() -> None:
    folder = folder_of(PLACES)
    assert folder.startswith(NOTES_FOLDER)
    assert folder == folder_of(PLACES[::-1]) != folder_of(PLACES[:2])


def test_the_first_to_come_leaves_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {A: welcome(b"a1"), B: welcome(b"b1"), C: welcome(b"c1")}
    left = finish(exchange(process(monkeypatch), now), {place: {} for place in PLACES})
    assert left == {
        A: {B: b"b1", C: b"c1"},
        B: {A: b"a1", C: b"c1"},
        C: {A: b"a1", B: b"b1"},
    }


def test_whoever_finds_all_of_them_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    known = process(monkeypatch)
    now = {A: welcome(b"a1"), B: welcome(b"b1")}
    assert finish(exchange(known, now), {A: {B: b"b1", C: b"c0"}, B: {A: b"a1", C: b"c0"}}) == {}
    assert known.meet(A, now[A])
    assert known.meet(B, now[B])
    assert not known.meet(C, welcome(b"c1"))  # it was away


def test_a_restarted_server_gets_no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    known = process(monkeypatch)
    before = {A: welcome(b"a1"), B: welcome(b"b1"), C: welcome(b"c1")}
    finish(exchange(known, before), {place: {} for place in PLACES})
    # All have restarted, of which only one is there again.
    assert finish(exchange(known, {A: welcome(b"a2")}), {A: {}}) == {}
    after = {A: welcome(b"a2"), B: welcome(b"b2")}
    assert finish(exchange(known, after), {A: {}, B: {}}) == {A: {B: b"b2"}, B: {A: b"a2"}}
    assert not known.meet(A, after[A])


def test_notes_are_about_servers_that_lose_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    known = process(monkeypatch)
    now = {A: welcome(b"a1", volatile=False), B: welcome(b"b1")}
    assert finish(exchange(known, now), {A: {}, B: {}}) == {A: {B: b"b1"}}
    assert known.meet(A, welcome(b"a2", volatile=False))
    now = {A: welcome(b"a2", volatile=False), B: welcome(b"b2")}
    finish(exchange(known, now), {A: {B: b"b1"}, B: {}})
    assert not known.meet(B, now[B])


def test_who_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {A: welcome(b"a1"), B: welcome(b"b1"), C: welcome(b"c1")}
    left = finish(exchange(process(monkeypatch), now), {A: {}, C: {}})
    assert left.keys() == {A, C}


def test_of_two_at_once_the_second_learns_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = process(monkeypatch)
    now = {A: welcome(b"a1"), B: welcome(b"b2")}
    dialogue = exchange(known, now)
    next(dialogue)
    assert dialogue.send({A: {}, B: {}})[A] == {B: b"b2"}
    with pytest.raises(StopIteration):
        dialogue.send({A: {B: b"b1"}, B: {A: b"a1"}})
    assert not known.meet(B, now[B])


# ---- any number of processes, restarts and broken connections ----


@dataclass
class Server:
    start: int = 0
    notes: dict[HostPort, bytes] = field(default_factory=dict)
    metadata: set[int] = field(default_factory=set)  # of arrays, by number
    chunks: set[int] = field(default_factory=set)  # the array's one chunk that is placed here

    def restart(self) -> None:
        self.__init__(self.start + 1)  # type: ignore[misc]


@dataclass
class Process:
    """A process, and its connections: by server, the incarnation that it is connected to."""

    known: Incarnations
    connected: dict[HostPort, int] = field(default_factory=dict)
    exchange: Generator[None] | None = None
    opened: set[int] = field(default_factory=set)


_TO_THE_END = 99


class ManyProcesses(RuleBasedStateMachine):
    """Requests about notes are carried out one at a time, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.servers = {place: Server() for place in PLACES}
        self.processes = [self._new_process() for _ in range(3)]
        self.written: set[tuple[int, HostPort]] = set()  # which chunks there should be
        self.arrays = 0
        # Enough steps that there is something to lose.
        self.connect(0, set(PLACES), _TO_THE_END)
        self.create(0)
        self.write(0, PLACES)

    which = st.integers(0, 2)
    places = st.sampled_from(PLACES)
    steps = st.one_of(st.just(_TO_THE_END), st.integers(1, 12))

    @rule(which=which)
    def end(self, which: int) -> None:
        self.processes[which] = self._new_process()

    @rule(place=places)
    def restart(self, place: HostPort) -> None:
        self.servers[place].restart()

    @rule(which=which, place=places)
    def lose(self, which: int, place: HostPort) -> None:
        self.processes[which].connected.pop(place, None)

    @rule(which=which, reached=st.sets(places, min_size=1), steps=steps)
    def connect(self, which: int, reached: set[HostPort], steps: int) -> None:
        one = self.processes[which]
        if one.exchange is None:
            reached |= {place for place in one.connected if self._alive(one, place)}
            one.exchange = self._exchange(one, reached)
        self.go_on(which, steps)

    @rule(which=which, steps=steps)
    def go_on(self, which: int, steps: int) -> None:
        one = self.processes[which]
        for _ in range(steps):
            if one.exchange is not None and next(one.exchange, self) is self:
                one.exchange = None

    @rule(which=which)
    def create(self, which: int) -> None:
        one = self.processes[which]
        if all(self._used(one, place) for place in PLACES):
            self.arrays += 1
            one.opened.add(self.arrays)
            for server in self.servers.values():
                server.metadata.add(self.arrays)

    @rule(which=which)
    def read(self, which: int) -> None:
        one = self.processes[which]
        used = [place for place in PLACES if self._used(one, place)]
        one.opened.update(*(self.servers[place].metadata for place in used))
        for place in used:
            for array in one.opened:
                if (array, place) in self.written:
                    assert array in self.servers[place].chunks

    @rule(which=which, places=st.sets(places, min_size=1))
    def write(self, which: int, places: Iterable[HostPort]) -> None:
        self.read(which)
        one = self.processes[which]
        for place in places:
            if self._used(one, place):
                self.servers[place].chunks |= one.opened
                self.written |= {(array, place) for array in one.opened}

    @precondition(lambda self: self.written)
    @rule(which=which)
    def accept(self, which: int) -> None:
        one = self.processes[which]
        now = {place: self._start(place) for place in one.connected if self._alive(one, place)}
        for place in now:
            self.servers[place].notes.update({at: now[at] for at in now if at != place})
        for place, start in now.items():
            one.known.accept(place, welcome(start))
            kept = self.servers[place].chunks
            self.written -= {
                each for each in self.written if each[1] == place and each[0] not in kept
            }

    def _new_process(self) -> Process:
        with pytest.MonkeyPatch.context() as patch:
            return Process(process(patch))

    def _start(self, place: HostPort) -> bytes:
        return str(self.servers[place].start).encode()

    def _alive(self, one: Process, place: HostPort) -> bool:
        return one.connected.get(place) == self.servers[place].start

    def _used(self, one: Process, place: HostPort) -> bool:
        now = welcome(self._start(place))
        return self._alive(one, place) and one.known.meet(place, now)

    def _exchange(self, one: Process, reached: Iterable[HostPort]) -> Generator[None]:
        starts = {place: self.servers[place].start for place in reached}
        dialogue = exchange(one.known, {place: welcome(self._start(place)) for place in starts})
        lost: set[HostPort] = set()

        def there(place: HostPort) -> bool:
            if self.servers[place].start != starts[place]:
                lost.add(place)
            return place not in lost

        wanted = next(dialogue, None)
        while wanted is not None:
            for holder, notes in wanted.items():
                for server, start in notes.items():
                    yield
                    if there(holder):
                        self.servers[holder].notes.setdefault(server, start)
            found = {}
            for holder in wanted:
                yield
                if there(holder):
                    found[holder] = dict(self.servers[holder].notes)
            try:
                wanted = dialogue.send(found)
            except StopIteration:
                wanted = None
        one.connected.update({place: starts[place] for place in starts if place not in lost})


TestManyProcesses = ManyProcesses.TestCase
TestManyProcesses.settings = settings(
    max_examples=examples(300), stateful_step_count=60, deadline=None
)
