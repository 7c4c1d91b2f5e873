"""The machine of a member, driven by hand."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from ucxstore.server.peers import ledger, times
from ucxstore.server.peers.events import (
    Accepted,
    Action,
    Answer,
    Answered,
    Asked,
    AskFor,
    AskSource,
    Believe,
    Carry,
    Contacted,
    Done,
    Doubted,
    Ended,
    Event,
    Failed,
    Fence,
    Fenced,
    FoundPresence,
    GivenUp,
    Go,
    Landed,
    Leave,
    ListAll,
    NotSent,
    PeerListing,
    ReadNote,
    ReadPresence,
    Received,
    Refused,
    RemoveNotes,
    Reply,
    Tell,
    Tick,
    Trust,
    TurnCame,
    Unknown,
    What,
    WriteNote,
)
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.messages import Begin, Bye, End, Hello, Message, Noted, Synced
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence
from ucxstore.server.peers.state import State

ALL = Names(prefixes=frozenset({""}))
PEER = Presence(server="b", epoch=1)


def keys(*names: str) -> Names:
    return Names(frozenset(names))


class Run:
    """A member, a source that answers at once, and peers that do as they are told.

    Attributes
    ----------
    done : list of Action
        What the member has said since it was last looked at.
    """

    def __init__(self, server: str = "a", **options: object) -> None:
        self.member = PeerMachine(State(server, **options))
        self.now = 100.0
        self.until = 0.0
        self.asked = Names()
        self.done: list[Action] = []
        self.presence: Answer = None  # instead of what is there
        self.notes: dict[str, Names] = {}
        self.written: list[Names] = []
        self.refuses_notes = False
        self.left: dict[str, Names] = {}
        self.on_read: Callable[[str], object] = lambda note: None
        self.numbers = itertools.count(1)

    def joined(self) -> "Run":
        self.feed(Contacted())
        assert self.member.state.phase == "member"
        return self

    def feed(self, event: Event) -> list[Action]:
        before = self.member.copy()
        assert before.key() == self.member.key()
        actions = self.member.handle(event, self.now)
        assert before.handle(event, self.now) == actions, "a copy does the same"
        self.done += actions
        for action in actions:
            match action:
                case Believe(until):
                    self.until = until
                case AskFor(names):
                    self.asked |= names
                case Trust(names):
                    self.asked = Names.of({*self.asked} - {*names})
        for action in actions:
            if isinstance(action, AskSource):
                self.feed(Answered(action.request, self.answer(action.what)))
        return actions

    def answer(self, what: What) -> Answer:
        match what:
            case ListAll():
                presence = self.member.state.presence
                return PeerListing(
                    frozenset() if presence is None else frozenset({presence.name}),
                    frozenset(self.notes | self.left),
                )
            case ReadPresence():
                presence = self.member.state.presence
                return self.presence or (None if presence is None else FoundPresence(presence))
            case WriteNote(note, names):
                self.written.append(names)
                if self.refuses_notes:
                    return Failed("no")
                self.notes[note] = names
            case RemoveNotes(start):
                for note in [one for one in self.notes if one.startswith(start)]:
                    del self.notes[note]
            case ReadNote(note):
                self.on_read(note)
                return self.left.get(note)
        return None

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (wakes := self.member.wakes_at()) <= end:
            self.now = max(self.now, wakes)
            self.feed(Tick())
        self.now = end
        self.feed(Tick())

    def link(self, presence: Presence = PEER) -> int:
        link = next(self.numbers) + 1000
        self.feed(Accepted(link))
        self.hear(link, Hello(presence), Synced())
        return link

    def hear(self, link: int, *messages: Message) -> None:
        for message in messages:
            self.feed(Received(link, message))

    def ask(self, *names: str, prefix: str | None = None, value: object = b"v") -> int:
        change = next(self.numbers)
        prefixes = frozenset() if prefix is None else frozenset({prefix})
        self.feed(Asked(change, Names(frozenset(names), prefixes), value))
        return change

    def send(self, change: int) -> bool:
        return Go(change) in self.feed(TurnCame(change))

    def change(self, *names: str, outcome: Done | Refused | Unknown | None = None) -> None:
        change = self.ask(*names)
        assert self.send(change)
        self.feed(Ended(change, outcome or Done()))

    def said[T](self, kind: type[T]) -> list[T]:
        return [one for one in self.done if isinstance(one, kind)]

    def told(self) -> list[Message]:
        return [one.message for one in self.said(Tell)]

    def answers(self, key: str = "k") -> bool:
        """Tell whether the cache may answer a get of a key now."""
        return self.now < self.until and not self.asked.covers((False, key))


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run().joined()
    yield run
    # What is asked for was told, and in turn.
    asked: set[tuple[bool, str]] = set()
    for action in run.done:
        if isinstance(action, AskFor):
            assert not asked & {*action.names}
            asked |= {*action.names}
        elif isinstance(action, Trust):
            assert asked >= {*action.names}
            asked -= {*action.names}
    assert asked == {*run.member.state.asked}


def test_a_change_alone(run: Run) -> None:
    assert run.answers()
    change = run.ask("k")
    assert not run.answers()
    assert run.answers("other")
    assert run.send(change)
    run.feed(Ended(change, Done()))
    assert run.said(Reply) == [Reply(change, Done(), keep=True)]
    assert run.answers()
    assert not run.told()


def test_a_change_waits_until_all_have_noted_it(run: Run) -> None:
    link = run.link()
    change = run.ask("k")
    begin = run.told()[-1]
    assert isinstance(begin, Begin)
    assert not run.said(Carry)
    run.hear(link, Noted(begin.number))
    assert run.said(Carry) == [Carry(change)]
    assert run.send(change)
    run.feed(Ended(change, Done()))
    assert run.told()[-1] == End(keys("k"), done=True)


def test_what_a_peer_changes_is_asked_for(run: Run) -> None:
    link = run.link()
    run.hear(link, Begin(1, keys("k")), Begin(2, Names(prefixes=frozenset({"p/"}))))
    assert [one for one in run.told() if isinstance(one, Noted)] == [Noted(1), Noted(2)]
    assert not run.answers()
    assert not run.answers("p/x")
    run.hear(link, End(keys("k"), done=True))
    assert run.answers()
    assert not run.answers("p/x")


def test_what_others_change_meanwhile_is_not_kept(run: Run) -> None:
    link = run.link()
    change = run.ask("k")
    run.hear(link, Noted(run.member.state.number), Begin(1, keys("k")), End(keys("k"), done=True))
    assert run.send(change)
    run.feed(Ended(change, Done()))
    assert run.said(Reply) == [Reply(change, Done(), keep=False)]


# ---- it sends nothing of which others do not know ----


@pytest.mark.parametrize("step", ["told", "ready"])
def test_one_that_was_shut_out_tells_anew_before_it_sends(run: Run, step: str) -> None:
    link = run.link()
    change = run.ask("k")
    if step == "ready":
        run.hear(link, Noted(run.member.state.number))
    run.presence = Fenced()
    run.pass_time(times.RENEW_SECONDS)
    assert run.member.state.phase == "out"
    assert not run.answers("other")
    assert not run.send(change)
    run.presence = None
    run.pass_time(1.0)
    assert run.member.state.phase == "member"
    link = run.link(Presence(server="b", epoch=2))
    assert not run.said(Go)


def test_nothing_is_sent_once_the_lease_is_over(run: Run) -> None:
    change = run.ask("k")
    run.now += times.LEASE_SECONDS
    assert not run.send(change), "others may have shut it out"
    assert run.send(change), "it has looked at its presence"
    assert run.member.may_send(change, run.now)
    run.now += times.LEASE_SECONDS
    assert not run.member.may_send(change, run.now)
    run.feed(Ended(change, NotSent()))
    assert run.send(change)


def test_one_that_is_told_again_waits_anew(run: Run) -> None:
    change = run.ask("k")
    assert run.send(change)
    run.pass_time(times.PATIENCE_SECONDS)
    run.link()
    run.feed(Ended(change, NotSent()))
    run.feed(Tick())
    assert not run.said(Reply), "it begins to wait for the others now"


def test_what_was_not_sent_tells_nothing_of_the_source(run: Run) -> None:
    first, second = run.ask("k"), run.ask("k")
    assert run.send(first)
    run.pass_time(run.member.state.patience - 1)
    run.feed(Ended(first, NotSent()))
    assert run.send(first)
    run.pass_time(1)
    assert [one.change for one in run.said(Reply)] == [second]


@pytest.mark.parametrize("is_shut_out", [True, False])
def test_only_one_that_was_not_shut_out_shuts_out_others(run: Run, is_shut_out: bool) -> None:
    run.link()
    run.presence = Fenced() if is_shut_out else None
    run.now += times.SILENCE_SECONDS
    run.feed(Tick())
    assert any(one.what == Fence("b-1") for one in run.said(AskSource)) is not is_shut_out


def test_one_that_leaves_sends_nothing(run: Run) -> None:
    run.link()
    waiting, queued = run.ask("k"), run.ask("k")
    run.feed(Leave())
    assert {one.change for one in run.said(Reply)} == {waiting, queued}
    assert all(isinstance(one.outcome, Refused) for one in run.said(Reply))
    assert run.told()[-1] == Bye()
    assert not run.send(waiting)
    assert run.member.state.phase == "left"
    assert not run.answers()


def test_a_removal_of_which_only_a_part_was_sent_is_told_as_such(run: Run) -> None:
    change = run.ask(prefix="p/", value=None)
    assert run.send(change)
    run.presence = Fenced()
    run.now += times.LEASE_SECONDS
    run.feed(Ended(change, NotSent(partly=True)))
    run.feed(GivenUp(change))
    assert run.said(Reply) == [Reply(change, Refused(GivenUp(change).why, partly=True))]


# ---- what was made is never told as what was not ----


def test_a_change_is_confirmed_by_a_lease_that_held_after_it(run: Run) -> None:
    change = run.ask("k")
    assert run.send(change)
    run.presence = Fenced()
    run.now += times.LEASE_SECONDS
    run.feed(Ended(change, Done()))
    assert not run.said(Reply)
    run.presence = None
    run.pass_time(1.0)
    assert run.member.state.epoch == 2
    assert run.said(Reply) == [Reply(change, Done(), keep=False)]


def test_a_change_that_cannot_be_confirmed_is_unknown(run: Run) -> None:
    change = run.ask("k")
    assert run.send(change)
    run.presence = Fenced()
    run.now += times.LEASE_SECONDS
    run.feed(Ended(change, Done()))
    run.pass_time(run.member.state.patience)
    assert isinstance(run.said(Reply)[-1].outcome, Unknown)
    assert not run.answers()


# ---- doubts outlive all servers, and end ----


def test_names_are_noted_before_they_are_sent(run: Run) -> None:
    run.change("a/k")
    run.change("a/l")
    assert list(run.notes.values()) == [Names(prefixes=frozenset({"a/"}))]
    at = [type(one) for one in run.done]
    assert at.index(Go) > next(
        at
        for at, one in enumerate(run.done)
        if isinstance(one, AskSource) and isinstance(one.what, WriteNote)
    )


def test_what_a_note_must_say_is_not_forgotten_when_it_cannot_be_written(run: Run) -> None:
    run.change("a/k", outcome=Unknown())
    run.refuses_notes = True
    run.presence = Fenced()
    run.pass_time(times.RENEW_SECONDS)
    run.presence = None
    run.pass_time(1.0)
    assert run.member.state.epoch == 2
    assert list(run.notes) == ["a-1-00000001"]
    tried = len(run.written)
    run.pass_time(times.AGAIN_SECONDS)
    assert len(run.written) == tried + 1
    run.refuses_notes = False
    run.pass_time(times.AGAIN_SECONDS)
    assert list(run.notes.values()) == [Names(prefixes=frozenset({"a/"}))]
    assert "a-1-00000001" not in run.notes


def test_a_change_that_was_refused_is_not_noted_for_ever(run: Run) -> None:
    run.refuses_notes = True
    change = run.ask("a/k")
    assert run.said(Reply) == [Reply(change, Refused("no"))]
    run.pass_time(times.IDLE_SECONDS)
    tried = len(run.written)
    run.pass_time(times.IDLE_SECONDS)
    assert len(run.written) == tried


def test_what_one_that_was_lost_has_noted_is_asked_for(run: Run) -> None:
    again = Run("c")
    again.left = {"a-1-00000001": Names(prefixes=frozenset({"a/"}))}
    again.joined()
    assert not again.answers("a/k")
    assert again.answers("b/k")
    again.change("a/k")
    assert not again.answers("a/k"), "nobody knows of the others below"
    again.pass_time(times.LATE_SECONDS)
    assert again.answers("a/k")


@pytest.mark.parametrize("others", [{}, {"a-1-00000001": keys("b/k")}])
def test_a_note_that_was_replaced_meanwhile_is_found(others: dict[str, Names]) -> None:
    """Its server has left, and has noted exactly what is in doubt."""
    run = Run("c")
    gone = "a-1-00000002"
    run.left = {**others, gone: Names(prefixes=frozenset({"a/"}))}

    def replace(note: str) -> None:
        if note == gone:
            run.left = {**others, "a-1-00000003": keys("a/k")}

    run.on_read = replace
    run.joined()
    assert not run.answers("a/k")
    assert run.answers("a/other")
    assert run.answers("b/k") is not bool(others)


def test_one_that_leaves_notes_what_exactly_is_in_doubt(run: Run) -> None:
    run.change("a/k", outcome=Unknown())
    run.change("a/l")
    run.feed(Leave())
    assert list(run.notes.values())[-1] == keys("a/k")


def test_one_that_leaves_after_it_was_shut_out_keeps_its_note_of_doubts(run: Run) -> None:
    run.change("a/k", outcome=Unknown())
    run.presence = Fenced()
    run.pass_time(times.RENEW_SECONDS)
    assert run.member.state.phase == "out"
    run.feed(Leave())
    assert list(run.notes.values()) == [keys("a/k")]


def test_a_note_is_taken_back_by_its_name(run: Run) -> None:
    run.change("a/k")
    assert run.notes
    run.pass_time(times.IDLE_SECONDS)
    assert not run.notes
    run.change("b/k")
    removed = [one.what.start for one in run.said(AskSource) if isinstance(one.what, RemoveNotes)]
    assert removed == ["a-1-00000001"], "a late removal takes no later note with it"


def test_changes_that_were_refused_leave_no_doubt(run: Run) -> None:
    link = run.link()
    for number in range(ledger.MOST_LOST + 50):
        change = run.ask(f"{number}")
        run.hear(link, Noted(run.member.state.number))
        assert run.send(change)
        run.feed(Ended(change, Refused("no")))
    assert not run.member.state.asked
    assert run.answers("other")
    assert sum(isinstance(one, End) for one in run.told()) == ledger.MOST_LOST + 50


def test_doubts_end_with_a_later_change(run: Run) -> None:
    link = run.link()
    change = run.ask("k")
    run.hear(link, Noted(run.member.state.number))
    assert run.send(change)
    run.feed(Ended(change, Unknown()))
    assert not run.answers()
    assert not any(isinstance(one, End) for one in run.told())
    run.hear(link, Begin(1, keys("k")), End(keys("k"), done=False))
    assert not run.answers(), "that one was not made"
    run.hear(link, Begin(2, keys("k")), End(keys("k"), done=True))
    assert run.answers()
    assert run.told()[-1] == End(keys("k"), done=False)


def test_doubts_end_without_a_later_change(run: Run) -> None:
    run.change("k", outcome=Unknown())
    run.pass_time(times.LATE_SECONDS - 1)
    assert not run.answers()
    run.pass_time(1)
    assert run.answers()
    assert not run.notes, "nor must any later server ask for it"


def test_a_change_that_was_sent_before_a_doubt_does_not_end_it(run: Run) -> None:
    link = run.link()
    change = run.ask("k")
    run.hear(link, Noted(run.member.state.number), Begin(1, keys("k")))
    assert run.send(change)
    run.feed(Ended(change, Unknown()))
    run.hear(link, End(keys("k"), done=True))
    assert not run.answers(), "the one in doubt may come after it"


def test_a_removal_of_a_prefix_that_was_given_up_is_in_doubt_for_a_while(run: Run) -> None:
    change = run.ask(prefix="p/", value=None)
    assert run.send(change)
    run.feed(Ended(change, Unknown()))
    run.change("p/k")
    run.pass_time(times.LATE_SECONDS - 1)
    assert not run.answers("p/k")
    run.pass_time(1)
    assert run.answers("p/k")


def test_too_many_doubts_are_told_as_one_that_ends(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_LOST", 2)
    link = run.link()
    for name in ("1", "2", "3"):
        change = run.ask(name)
        run.hear(link, Noted(run.member.state.number))
        assert run.send(change)
        run.feed(Ended(change, Unknown()))
    told = run.told()
    assert told.index(Begin(run.member.state.number, ALL)) < told.index(
        End(keys("1", "2"), done=False)
    )
    assert not run.answers("other")
    run.pass_time(0)
    for _ in range(int(times.LATE_SECONDS / times.RENEW_SECONDS) + 1):
        run.pass_time(times.RENEW_SECONDS)
        run.hear(link, Noted(run.member.state.number))
    assert run.answers("other")


def test_a_peer_that_is_lost_leaves_its_names_in_doubt(run: Run) -> None:
    link = run.link()
    run.hear(link, Begin(1, keys("k")), Bye())
    assert not run.member.state.peers
    assert not run.answers()
    run.change("k")
    assert run.answers()


# ---- one after another ----


def test_changes_of_a_key_go_one_after_another(run: Run) -> None:
    first, second, other = run.ask("k"), run.ask("k"), run.ask("l")
    assert [one.change for one in run.said(Carry)] == [first, other]
    assert run.send(first)
    run.feed(Ended(first, Done()))
    assert [one.change for one in run.said(Carry)] == [first, other, second]


@pytest.mark.parametrize("ends", ["landed", "time"])
def test_a_change_waits_for_one_that_may_undo_it(ends: str) -> None:
    run = Run(holds=lambda condition, value: condition == value, lasting=5.0).joined()
    run.feed(Doubted(1, keys("k"), "old"))
    unlike, like = run.ask("k", value="new"), run.ask("k", value="old")
    assert run.send(unlike)
    run.feed(Ended(unlike, Done()))
    assert [one.change for one in run.said(Carry)] == [unlike]
    if ends == "landed":
        run.feed(Landed(1))
    else:
        run.pass_time(5.0)
    assert [one.change for one in run.said(Carry)] == [unlike, like]
