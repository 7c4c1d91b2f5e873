"""`Changes`: which names change, here and elsewhere, or may still: no I/O.

As long as they do, the source is asked for them: `Asking` is told. What other servers are to be
told is returned.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ucxstore.server.sources.names import Names

# How many keys whose change has no known end are told apart. Beyond that all are asked for.
_MOST_LOST = 10_000


class Asking(Protocol):
    """Who asks the source for names. Each beginning is to have its end."""

    def begin_asking(self, names: Names, *, elsewhere: bool) -> None:
        """Ask for these from now on, which change here or elsewhere."""

    def end_asking(self, names: Names) -> None:
        """End one such asking."""


@dataclass(slots=True, eq=False)
class OwnChange:
    """A change through this server, from its beginning to its end.

    Parameters
    ----------
    names : Names
        What it concerns.
    asked_for : bool
        Whether this server asks the source for them. It need not while it has no peers, as then
        its own cache follows its changes.
    """

    names: Names
    asked_for: bool = False


class Changes:
    """What changes through one server and its peers.

    Parameters
    ----------
    server : str
        The server.
    asking : Asking
    """

    def __init__(self, server: str, asking: Asking) -> None:
        self._server = server
        self._asking = asking
        self._keys: Counter[str] = Counter()
        self._prefixes: Counter[str] = Counter()
        self._not_asked_for: set[OwnChange] = set()
        self._lost: dict[str, Names] = {}  # by server: changes without a known end

    # ---- through this server ----

    def begin(self, change: OwnChange) -> None:
        """Begin a change; it must have an end, by `end` or `give_up`."""
        self._keys.update(change.names.keys)
        self._prefixes.update(change.names.prefixes)
        self._not_asked_for.add(change)

    def ask_for(self, change: OwnChange) -> None:
        """Ask for the names of a change, too, as peers do."""
        if not change.asked_for:
            change.asked_for = True
            self._not_asked_for.discard(change)
            self._asking.begin_asking(change.names, elsewhere=False)

    def end(self, change: OwnChange) -> Names:
        """End a change whose end is known; return the names whose end that is."""
        self._drop(change)
        if change.asked_for:
            self._asking.end_asking(change.names)
        over = self.changed(change.names)
        over.add(change.names)
        return over

    def give_up(self, change: OwnChange) -> Names | None:
        """End a change whose end is not known, and go on to ask; see `lose`."""
        self._drop(change)
        if not change.asked_for:
            self._asking.begin_asking(change.names, elsewhere=False)
        return self.lose(self._server, change.names)

    def mine(self) -> Names:
        """Return all that a new peer must ask for, and ask for that here from now on."""
        for change in list(self._not_asked_for):
            self.ask_for(change)
        mine = Names(set(self._keys), set(self._prefixes))
        for lost in self._lost.values():
            mine.add(lost)
        return mine

    def over(self, names: Names) -> Names:
        """Return those that are not being changed again, and may not be."""
        still = Names(names.keys & self._keys.keys(), names.prefixes & self._prefixes.keys())
        for lost in self._lost.values():
            still.add(Names(names.keys & lost.keys, names.prefixes & lost.prefixes))
        return _without(names, still)

    # ---- through others ----

    def changing(self, names: Names) -> None:
        """Note that these are being changed elsewhere."""
        self._asking.begin_asking(names, elsewhere=True)

    def asked(self, names: Names) -> None:
        """Note that one such change is over, as far as asking for it goes."""
        self._asking.end_asking(names)

    def changed(self, names: Names) -> Names:
        """Note a change with a known end.

        Returns
        -------
        Names
            Those that had no known end before. It is known now: this change came after it.
        """
        over = Names()
        for server, lost in list(self._lost.items()):
            ended = lost.remove(lost.covered_by(names))
            if not lost:
                del self._lost[server]
            self._asking.end_asking(ended)
            over.add(ended)
        return over

    def lose(self, server: str, names: Names) -> Names | None:
        """Go on to ask for what a server may still change.

        Returns
        -------
        Names or None
            If these are too many to be told apart, so that all names are asked for from now on:
            those that need not be asked for by name any more.
        """
        if not names:
            return None
        lost = self._lost.setdefault(server, Names())
        self._asking.end_asking(_without(names, lost.add(names)))  # asked for once is enough
        if len(lost) <= _MOST_LOST:
            return None
        if "" not in lost.prefixes:
            self._asking.begin_asking(Names(prefixes={""}), elsewhere=True)
        merged = Names(lost.keys, lost.prefixes - {""})
        self._asking.end_asking(merged)
        self._lost[server] = Names(prefixes={""})
        return merged

    def find(self, server: str) -> None:
        """Forget what a server may still change: it has told anew what it does."""
        self._asking.end_asking(self._lost.pop(server, Names()))

    def _drop(self, change: OwnChange) -> None:
        self._not_asked_for.discard(change)
        _take(self._keys, change.names.keys)
        _take(self._prefixes, change.names.prefixes)


def _without(names: Names, others: Names) -> Names:
    return Names(names.keys - others.keys, names.prefixes - others.prefixes)


def _take(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counter[name] -= 1
        if counter[name] == 0:
            del counter[name]
