"""A request for keys, spread over the servers that have them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ucxstore.cluster.answers import Answer, Positions, pick
from ucxstore.cluster.joined import Share
from ucxstore.cluster.members import Members
from ucxstore.errors import UcxStoreError

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation

type Start = Callable[["Connection", Positions], "Operation"]
"""Starts a request for some of the keys."""

type Lost = Callable[[UcxStoreError], list[Share]]

# Where the only key of a request stands.
_FIRST = (0,)

# Keys that an error names.
_NAMED = 3


class Spread:
    """One request.

    Parameters
    ----------
    members : Members
    keys : sequence of str
        With the store's prefix.
    start : callable
    answer : Answer
        Takes what comes.
    """

    def __init__(self, members: Members, keys: Sequence[str], start: Start, answer: Answer) -> None:
        self._members = members
        self._keys = keys
        self._start = start
        self._answer = answer

    def home(self, positions: Positions) -> list[Share]:
        """Ask the server of each key, and no other."""
        return [
            self._share(index, some, self._take(some), self._fail(some))
            for index, some in self._groups(positions, frozenset())
        ]

    def everywhere(self, positions: Positions) -> list[Share]:
        """Ask all servers for the same."""
        return [
            self._share(index, positions, self._take(positions), self._fail(positions))
            for index in range(len(self._members.all))
            if positions
        ]

    def home_first(self, positions: Positions, start_copy: Start) -> list[Share]:
        """Ask the server of each key, and then the others where it says that it has done it."""

        def copy(index: int, some: Positions, results: list[bool]) -> list[Share]:
            self._answer.take(some, results)
            done = [position for position, was in zip(some, results, strict=True) if was]
            return [
                self._share(other, done, _enough, self._fail(done), start_copy)
                for other in range(len(self._members.all))
                if done and other != index
            ]

        return [
            self._share(index, some, partial(copy, index, some), self._fail(some))
            for index, some in self._groups(positions, frozenset())
        ]

    def anywhere(
        self,
        positions: Positions,
        out: frozenset[int] | None = None,
        error: UcxStoreError | None = None,
    ) -> list[Share]:
        """Ask the first server in rank that there is, and the next one where that is lost.

        Parameters
        ----------
        positions : sequence of int
        out : frozenset of int, optional
            Servers not to ask; those that are down, if it is not given.
        error : UcxStoreError, optional
            What has become of the last one of these.
        """
        gone = self._down() if out is None else out
        if error is not None and len(gone) == len(self._members.all):
            raise _named(error, self._keys_at(positions))

        def elsewhere(index: int, some: Positions, why: UcxStoreError) -> list[Share]:
            self._members.all[index].count_failover()
            return self.anywhere(some, gone | {index}, why)

        return [
            self._share(index, some, self._take(some), partial(elsewhere, index, some))
            for index, some in self._groups(positions, gone)
        ]

    def from_copies(
        self,
        positions: Positions,
        is_missing: Callable[[Any], bool],
        out: frozenset[int] | None = None,
        error: UcxStoreError | None = None,
        answered: bool = False,
    ) -> list[Share]:
        """Ask one server after the other, until one has the value.

        What a server says to be missing is missing if no other that there is has it: one that has
        restarted, and was accepted as it is, lacks what others still have.

        Parameters
        ----------
        positions : sequence of int
        is_missing : callable
            Tells it of what comes for a key.
        out, error
            As for `anywhere`.
        answered : bool
            Whether any has answered.
        """
        if not positions:
            return []
        gone = self._down() if out is None else out
        if len(gone) == len(self._members.all):
            if answered or error is None:
                return []
            raise _named(error, self._keys_at(positions))

        def take(index: int, some: Positions, results: list[Any]) -> list[Share]:
            self._answer.take(some, results)
            pairs = zip(some, results, strict=True)
            missing = [position for position, item in pairs if is_missing(item)]
            return self.from_copies(missing, is_missing, gone | {index}, error, answered=True)

        def elsewhere(index: int, some: Positions, why: UcxStoreError) -> list[Share]:
            self._members.all[index].count_failover()
            return self.from_copies(some, is_missing, gone | {index}, why, answered)

        return [
            self._share(index, some, partial(take, index, some), partial(elsewhere, index, some))
            for index, some in self._groups(positions, gone)
        ]

    def all_pages(self, start: "Callable[[Connection, str], Operation]") -> list[Share]:
        """Ask all servers for a listing, from one cursor to the next until its end."""

        def page(index: int, cursor: str) -> Share:
            def take(result: tuple[list[str], str]) -> list[Share]:
                self._answer.take(_FIRST, result)
                _, following = result
                return [page(index, following)] if following else []

            server = self._members.all[index]
            return Share(server, lambda to: start(to, cursor), take, self._fail(_FIRST))

        return [page(index, "") for index in range(len(self._members.all))]

    def _groups(self, positions: Positions, out: frozenset[int]) -> list[tuple[int, Positions]]:
        """Return who is asked for which of the keys."""
        groups: dict[int, list[int]] = {}
        places = self._members.placement.places(self._keys_at(positions), out)
        for position, place in zip(positions, places, strict=True):
            groups.setdefault(place, []).append(position)
        return list(groups.items())

    def _down(self) -> frozenset[int]:
        """Return who need not be asked: where nobody is there, asking says why."""
        down = self._members.down()
        return down if len(down) < len(self._members.all) else frozenset()

    def _keys_at(self, positions: Positions) -> Sequence[str]:
        return pick(self._keys, positions)

    def _share(
        self,
        index: int,
        some: Positions,
        take: Callable[[Any], list[Share]],
        lost: Lost,
        start: Start | None = None,
    ) -> Share:
        begin = start or self._start
        return Share(self._members.all[index], lambda to: begin(to, some), take, lost)

    def _take(self, some: Positions) -> Callable[[Any], list[Share]]:
        def take(result: Any) -> list[Share]:
            self._answer.take(some, result)
            return []

        return take

    def _fail(self, some: Positions) -> Lost:
        def fail(error: UcxStoreError) -> list[Share]:
            raise _named(error, self._keys_at(some))

        return fail


def _enough(_: Any) -> list[Share]:
    return []


def _named(error: UcxStoreError, keys: Sequence[str]) -> UcxStoreError:
    """Return the failure of a server with the keys that are concerned."""
    named = ", ".join(map(repr, keys[:_NAMED]))
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return type(error)(f"{error}; it was asked for {named}{more}")
