"""What a server asks its source for while names change: each asking has its end."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from ucxstore.server.sources import changes
from ucxstore.server.sources.changes import Changes, OwnChange
from ucxstore.server.sources.names import Names

SERVERS = st.sampled_from(["own", "a", "b"])
NAMES = st.builds(
    Names, st.sets(st.sampled_from(["p/1", "p/2", "q"])), st.sets(st.sampled_from(["p/", ""]))
)


class Askings:
    """Counts the askings that were begun, and have not ended."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def begin_asking(self, names: Names, *, elsewhere: bool) -> None:
        self.counts.update(_flat(names))

    def end_asking(self, names: Names) -> None:
        self.counts.subtract(_flat(names))
        assert min(self.counts.values(), default=0) >= 0, "ended more often than begun"

    def asks_for(self, key: str) -> bool:
        return any(
            count and (key == name if kind == "key" else key.startswith(name))
            for (kind, name), count in self.counts.items()
        )


def _flat(names: Names) -> list[tuple[str, str]]:
    return [*(("key", one) for one in names.keys), *(("prefix", one) for one in names.prefixes)]


@pytest.fixture
def askings() -> Askings:
    return Askings()


@pytest.fixture
def own(askings: Askings) -> Changes:
    return Changes("own", askings)


def test_a_server_alone_asks_for_nothing(own: Changes, askings: Askings) -> None:
    change = OwnChange(Names({"k"}))
    own.begin(change)
    assert not askings.asks_for("k")
    assert own.end(change) == Names({"k"})
    assert not askings.asks_for("k")


def test_a_new_peer_is_told_of_all_and_it_is_asked_for(own: Changes, askings: Askings) -> None:
    change = OwnChange(Names({"k"}, {"p/"}))
    own.begin(change)
    own.lose("other", Names({"lost"}))
    assert own.mine() == Names({"k", "lost"}, {"p/"})
    assert askings.asks_for("k")
    assert askings.asks_for("p/1")
    own.end(change)
    assert not askings.asks_for("k")


def test_what_changes_twice_at_once_is_over_with_the_last_end(own: Changes) -> None:
    first, second = OwnChange(Names({"k"})), OwnChange(Names({"k"}))
    own.begin(first)
    own.begin(second)
    assert not own.over(own.end(first))
    assert own.over(own.end(second)) == Names({"k"})


def test_what_was_given_up_is_asked_for_until_it_has_changed(
    own: Changes, askings: Askings
) -> None:
    change = OwnChange(Names({"p/1"}))
    own.begin(change)
    assert own.give_up(change) is None
    assert askings.asks_for("p/1")
    assert not own.over(Names({"p/1"}))
    removal = OwnChange(Names(prefixes={"p/"}))
    own.begin(removal)
    assert own.end(removal) == Names({"p/1"}, {"p/"})
    assert not askings.asks_for("p/1")


def test_too_many_to_tell_apart(
    own: Changes, askings: Askings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_MOST_LOST", 2)
    for key in ("1", "2"):
        own.changing(Names({key}))
        assert own.lose("a", Names({key})) is None
    own.changing(Names({"3"}))
    assert own.lose("a", Names({"3"})) == Names({"1", "2", "3"})
    assert askings.asks_for("any")
    assert +askings.counts == Counter({("prefix", ""): 1})
    assert own.changed(Names(prefixes={""})) == Names(prefixes={""})
    assert not askings.asks_for("any")


class ManyChanges(RuleBasedStateMachine):
    """Changes here and elsewhere, with known ends and without, in any order."""

    under_way = Bundle("under_way")

    def __init__(self) -> None:
        super().__init__()
        self.askings = Askings()
        self.changes = Changes("own", self.askings)
        self.open: list[OwnChange] = []
        self.most_lost, changes._MOST_LOST = changes._MOST_LOST, 2

    def teardown(self) -> None:
        """Once all has changed with a known end, nothing is asked for."""
        changes._MOST_LOST = self.most_lost
        self.changes.changed(Names({"p/1", "p/2", "q"}, {""}))
        left = Names()
        for change in self.open:
            left.add(self.changes.end(change))
        assert not +self.askings.counts
        assert self.changes.over(left) == left

    @rule(target=under_way, names=NAMES)
    def begin(self, names: Names) -> OwnChange:
        change = OwnChange(names)
        self.changes.begin(change)
        self.open.append(change)
        return change

    @rule(change=under_way)
    def ask_for(self, change: OwnChange) -> None:
        self.changes.ask_for(change)

    @rule(change=consumes(under_way))
    def end(self, change: OwnChange) -> None:
        self.open.remove(change)
        self.changes.end(change)

    @rule(change=consumes(under_way))
    def give_up(self, change: OwnChange) -> None:
        self.open.remove(change)
        self.changes.give_up(change)

    @rule(server=SERVERS, names=NAMES)
    def lose(self, server: str, names: Names) -> None:
        """A server goes while it changes these."""
        self.changes.changing(names)
        self.changes.lose(server, names)

    @rule(server=SERVERS)
    def find(self, server: str) -> None:
        self.changes.find(server)

    @rule(names=NAMES)
    def change_elsewhere(self, names: Names) -> None:
        self.changes.changing(names)
        self.changes.asked(names)
        self.changes.changed(names)

    @rule()
    def meet_a_peer(self) -> None:
        mine = self.changes.mine()
        for key in mine.keys:
            assert self.askings.asks_for(key)
        for prefix in mine.prefixes:
            assert self.askings.asks_for(f"{prefix}any")


TestManyChanges = ManyChanges.TestCase
TestManyChanges.settings = settings(stateful_step_count=30)
