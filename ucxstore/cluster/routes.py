"""Which of a store's servers are asked, request by request."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from ucxstore.client.loops import current_queue
from ucxstore.cluster.answers import Answer, Each, One
from ucxstore.cluster.joined import Joined, Share
from ucxstore.cluster.members import Members
from ucxstore.cluster.placement import is_metadata
from ucxstore.cluster.spread import Spread, Start

if TYPE_CHECKING:
    from ucxstore._core import Completions


class Routes:
    """The part of `Cluster` that knows its servers.

    Parameters
    ----------
    members : Members
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    @property
    def shared(self) -> bool:
        """Whether any server can answer for any key."""
        return self._members.shared

    # ---- the way to it: see `ucxstore.client.runtime.Link` ----

    def current(self) -> Self | None:
        """Return it if no server has to be waited for."""
        return self if self._members.ready() else None

    async def connect(self, timeout: float) -> Self:
        """Connect to those servers that can be reached."""
        await asyncio.to_thread(self._members.connect, timeout)
        return self

    def connect_sync(self, timeout: float) -> Self:
        """Do as `connect`, blocking."""
        if not self._members.ready():
            self._members.connect(timeout)
        return self

    @property
    def lanes(self) -> list[str]:
        """What UCX chose for any of the connections."""
        return list(dict.fromkeys(lane for member in self._members.all for lane in member.lanes))

    def accept_restarted(self) -> None:
        """Go on with all servers as they are now, and have others do so who come later.

        Raises
        ------
        ConnectError
            If one of them cannot be told that.
        """
        self._members.accept_restarted()

    # ---- how requests are spread ----

    def _read_values(
        self, keys: Sequence[str], start: Start, completions: "Completions | None"
    ) -> Joined:
        """Ask for an item of each key."""
        spread, answer = self._spread(keys, start, Each(len(keys)))
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = split_metadata(keys)
        shares = spread.home(others) + spread.from_copies(copied, _is_missing)
        return self._join(shares, answer, completions)

    def _move(
        self,
        keys: Sequence[str],
        start: Start,
        answer: Answer,
        completions: "Completions | None",
    ) -> Joined:
        """Move chunks, of which there are no copies."""
        spread, answer = self._spread(keys, start, answer)
        ask = spread.anywhere if self.shared else spread.home
        return self._join(ask(range(len(keys))), answer, completions)

    def _ask_all(
        self, prefix: str, start: Start, answer: Answer, completions: "Completions | None"
    ) -> Joined:
        """Ask for what concerns all keys under a prefix."""
        spread, answer = self._spread([prefix], start, One() if self.shared else answer)
        ask = spread.anywhere if self.shared else spread.everywhere
        return self._join(ask([0]), answer, completions)

    def _spread(self, keys: Sequence[str], start: Start, answer: Answer) -> tuple[Spread, Answer]:
        return Spread(self._members, keys, start, answer), answer

    def _join(
        self, shares: list[Share], answer: Answer, completions: "Completions | None"
    ) -> Joined:
        queue = None if completions is None else current_queue()
        return Joined(shares, answer.finish, queue)


def split_metadata(keys: Sequence[str]) -> tuple[list[int], Sequence[int]]:
    """Return the positions of keys of which all servers keep copies, and of the others."""
    copied = [position for position, key in enumerate(keys) if is_metadata(key)]
    if not copied:
        return copied, range(len(keys))
    chosen = set(copied)
    return copied, [position for position in range(len(keys)) if position not in chosen]


def _is_missing(item: object) -> bool:
    """Tell whether there is no value, by what `Cluster.get` or `Cluster.stat` says of a key."""
    return item is None or item == -1
