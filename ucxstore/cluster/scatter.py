"""`Scatter`: split a request by its keys over the servers of a cluster."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ucxstore.base.errors import UcxStoreError, UnknownOutcomeError
from ucxstore.base.keys import is_metadata, stored_key
from ucxstore.client.requests import Answers, Positions, Request, Route, only, pick
from ucxstore.cluster.gather import Share
from ucxstore.cluster.membership import Membership

# The most keys that an error names.
_NAMED = 3


class Scatter[T]:
    """The shares of one request, and the servers' answers to them.

    Parameters
    ----------
    membership : Membership
    request : Request
    """

    def __init__(self, membership: Membership, request: Request[T]) -> None:
        self._membership = membership
        self._seats = membership.seats  # of now: they may change
        self._members = self._seats.members
        self._request = request
        self._answers: list[tuple[Positions, Any]] = []

    def shares(self) -> list[Share]:
        """Return the first shares; `ucxstore.client.requests.Route` says for which servers."""
        every = range(len(self._request.keys))
        if self._membership.shared:
            return self._in_rank(every)
        match self._request.kind.route:
            case Route.CHUNKS:
                return self._placed(every)
            case Route.ALL:
                return self._everywhere(every)
            case route:
                copied, others = _split_metadata(self._request.keys)
                return [*self._placed(others), *self._copied(route, copied)]

    def finish(self) -> T:
        """Return the answer to the request, once all servers have answered."""
        kind = self._request.kind
        one = self._membership.shared and kind.route is Route.ALL
        join: Callable[[int, Answers], T] = only if one else kind.join
        return join(len(self._request.keys), self._answers)

    # ---- routes ----

    def _copied(self, route: Route, positions: Positions) -> list[Share]:
        """Ask for metadata, of which all servers have copies."""
        if route is Route.READ:
            return self._in_rank(positions, copies=True)
        if route is Route.ADD:
            return self._placed_first(positions)
        return self._everywhere(positions)

    def _placed(self, positions: Positions) -> list[Share]:
        """Ask the server of each key, and no other."""
        return [self._share(index, some) for index, some in self._groups(positions, frozenset())]

    def _everywhere(self, positions: Positions) -> list[Share]:
        """Ask all servers the same."""
        if not positions:
            return []
        return [self._share(index, positions) for index in range(len(self._members))]

    def _placed_first(self, positions: Positions) -> list[Share]:
        """Ask the server of each key; then ask the others for the keys that it has written."""

        def copy(index: int, some: Positions, results: list[bool]) -> list[Share]:
            self._answers.append((some, results))
            done = [position for position, was in zip(some, results, strict=True) if was]
            if not done:
                return []
            asked = self._request.for_keys(done).for_copies()
            return [
                Share(member, asked, _nothing_more, partial(self._fail, done))
                for other, member in enumerate(self._members)
                if other != index
            ]

        return [
            self._share(index, some, partial(copy, index, some))
            for index, some in self._groups(positions, frozenset())
        ]

    def _in_rank(
        self,
        positions: Positions,
        out: frozenset[int] | None = None,
        error: UcxStoreError | None = None,
        *,
        copies: bool = False,
        answered: bool = False,
    ) -> list[Share]:
        """Ask the first server in rank, and the next one where that is lost.

        A change that the lost one may have made is not asked for again: its end is not known.

        Parameters
        ----------
        positions : sequence of int
        out : frozenset of int, optional
            Servers not to ask. By default those that are down.
        error : UcxStoreError, optional
            The error of the last one of these.
        copies : bool
            Whether the next one is also asked for keys that a server does not have: one that was
            accepted after a restart lacks metadata that others still have.
        answered : bool
            Whether any server has answered.
        """
        if not positions:
            return []
        gone = self._down() if out is None else out
        if len(gone) == len(self._members):
            if answered or error is None:
                return []
            raise _named(error, pick(self._request.keys, positions))

        def take(index: int, some: Positions, results: Any) -> list[Share]:
            self._answers.append((some, results))
            if not copies:
                return []
            pairs = zip(some, results, strict=True)
            missing = [position for position, item in pairs if _is_missing(item)]
            return self._in_rank(missing, gone | {index}, error, copies=True, answered=True)

        def elsewhere(index: int, some: Positions, why: UcxStoreError) -> list[Share]:
            if isinstance(why, UnknownOutcomeError):
                # Made once more, it could undo what another client has written in between.
                raise _named(why, pick(self._request.keys, some))
            self._members[index].count_failover()
            return self._in_rank(some, gone | {index}, why, copies=copies, answered=answered)

        return [
            self._share(index, some, partial(take, index, some), partial(elsewhere, index, some))
            for index, some in self._groups(positions, gone)
        ]

    # ---- shares ----

    def _groups(self, positions: Positions, out: frozenset[int]) -> list[tuple[int, Positions]]:
        """Return the servers, each with the positions of its keys."""
        keys = self._request.keys
        if len(positions) < len(keys):
            keys = pick(keys, positions)
        if self._request.arguments.get("recipe"):
            keys = [stored_key(key) for key in keys]
        groups: dict[int, list[int]] = {}
        servers = self._seats.placement.servers_of(keys, out)
        for position, server in zip(positions, servers, strict=True):
            groups.setdefault(server, []).append(position)
        return list(groups.items())

    def _down(self) -> frozenset[int]:
        """Return the servers that are down; none if all are, since asking them raises why."""
        down = self._seats.down()
        return down if len(down) < len(self._members) else frozenset()

    def _share(
        self,
        index: int,
        some: Positions,
        answered: Callable[[Any], list[Share]] | None = None,
        lost: Callable[[UcxStoreError], list[Share]] | None = None,
    ) -> Share:
        """Return the share of a server. By default its answer is taken, and its loss raises."""
        request = self._request.for_keys(some)
        return Share(
            self._members[index],
            request,
            answered or partial(self._take, index, some, request),
            lost or partial(self._fail, some),
        )

    def _take(self, index: int, some: Positions, request: Request[T], result: T) -> list[Share]:
        self._answers.append((some, result))
        following = request.kind.following
        further = None if following is None else following(request, result)
        if further is None:
            return []
        take = partial(self._take, index, some, further)
        return [Share(self._members[index], further, take, partial(self._fail, some))]

    def _fail(self, some: Positions, error: UcxStoreError) -> list[Share]:
        raise _named(error, pick(self._request.keys, some))


def _nothing_more(_: Any) -> list[Share]:
    return []


def _split_metadata(keys: Sequence[str]) -> tuple[list[int], Sequence[int]]:
    """Return the positions of keys of which all servers keep copies, and of the others."""
    copied = [position for position, key in enumerate(keys) if is_metadata(key)]
    if not copied:
        return copied, range(len(keys))
    chosen = set(copied)
    return copied, [position for position in range(len(keys)) if position not in chosen]


def _is_missing(item: object) -> bool:
    """Tell whether a key is missing, by the item for it in an answer of `Route.READ`."""
    return item is None or item == -1


def _named(error: UcxStoreError, keys: Sequence[str]) -> UcxStoreError:
    """Return a server's error with the keys of the request in its message."""
    named = ", ".join(repr(stored_key(key)) for key in keys[:_NAMED])
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return type(error)(f"{error}; it was asked for {named}{more}")
