"""Several servers with the surface of a connection to one.

The requests are those of the core's ``Connection``; what they take and return is described there.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ucxstore.answers import (
    Answer,
    Count,
    Each,
    Folder,
    Measures,
    Missing,
    Nothing,
    One,
    Page,
    pick,
)
from ucxstore.joined import Joined, Share
from ucxstore.loops import current_queue
from ucxstore.members import Members
from ucxstore.placement import is_metadata
from ucxstore.spread import Spread, Start

if TYPE_CHECKING:
    from ucxstore._core import Completions, Connection, Operation

type _Array = tuple[int, Sequence[int], Sequence[int], int]
type _Offsets = npt.NDArray[np.int64] | None
type _Part = tuple[int, int, Sequence[int], Sequence[int], _Offsets]
type _Ranges = Sequence[tuple[int, int, int]]


class Fleet:
    """The servers of a store that has several.

    Keys are placed by rendezvous hashing. Servers that share what they serve stand in for one
    another. Where each has values of its own, all of them keep what says what arrays and groups
    are, and any of them is asked for it.

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

    # ---- the way to it: see `ucxstore.runtime.Link` ----

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
        """Go on with all servers as they are now."""
        for member in self._members.all:
            member.accept_restarted()

    # ---- requests ----

    def get(
        self,
        keys: Sequence[str],
        ranges: Sequence[_Ranges],
        timeout: float,
        completions: "Completions | None" = None,
        generations: Sequence[int] | None = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.get(
                pick(keys, some),
                pick(ranges, some),
                timeout,
                completions,
                None if generations is None else pick(generations, some),
            )

        return self._read_values(keys, start, completions)

    def get_into(
        self,
        keys: Sequence[str],
        ranges: Sequence[_Ranges],
        outs: Sequence[_Array],
        owners: list[Any],
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            wanted = pick(keys, some), pick(ranges, some), pick(outs, some)
            return to.get_into(*wanted, owners, timeout, completions)

        return self._read_values(keys, start, completions)

    def read_boxes(
        self,
        keys: Sequence[str],
        boxes: list[int],
        out: _Array,
        chunk_shape: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        width = 3 * len(chunk_shape)

        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            wanted = pick(keys, some), list(pick(boxes, some, width))
            return to.read_boxes(*wanted, out, chunk_shape, owner, timeout, completions)

        return self._move(keys, start, Missing(), completions)

    def read_parts(
        self,
        keys: Sequence[str],
        sources: Sequence[_Part],
        targets: Sequence[_Part],
        address: int,
        expected: Sequence[int],
        generations: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.read_parts(
                pick(keys, some),
                pick(sources, some),
                pick(targets, some),
                address,
                pick(expected, some),
                pick(generations, some),
                owner,
                timeout,
                completions,
            )

        return self._move(keys, start, Each(len(keys)), completions)

    def set(
        self,
        keys: Sequence[str],
        values: Sequence[_Array],
        owners: list[Any],
        if_absent: bool,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int], if_absent: bool) -> "Operation":
            sent = pick(keys, some), pick(values, some)
            return to.set(*sent, owners, if_absent, timeout, completions)

        spread, answer = self._spread(
            keys, lambda to, some: start(to, some, if_absent), Each(len(keys))
        )
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = _apart(keys)
        shares = spread.home(others)
        if if_absent:  # who comes first is decided by one server
            shares += spread.home_first(copied, lambda to, some: start(to, some, False))
        else:
            shares += spread.everywhere(copied)
        return self._join(shares, answer, completions)

    def set_parts(
        self,
        keys: Sequence[str],
        values: Sequence[Sequence[_Array]],
        owners: list[Any],
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            sent = pick(keys, some), pick(values, some)
            return to.set_parts(*sent, owners, timeout, completions)

        return self._move(keys, start, Nothing(), completions)

    def write_boxes(
        self,
        keys: Sequence[str],
        starts: list[int],
        value: _Array,
        chunk_shape: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        width = len(chunk_shape)

        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            sent = pick(keys, some), list(pick(starts, some, width))
            return to.write_boxes(*sent, value, chunk_shape, owner, timeout, completions)

        return self._move(keys, start, Nothing(), completions)

    def delete(
        self, keys: Sequence[str], timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.delete(pick(keys, some), timeout, completions)

        spread, answer = self._spread(keys, start, Nothing())
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = _apart(keys)
        return self._join(spread.home(others) + spread.everywhere(copied), answer, completions)

    def stat(
        self, keys: Sequence[str], timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.stat(pick(keys, some), timeout, completions)

        return self._read_values(keys, start, completions)

    def delete_prefix(
        self, prefix: str, timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", _: Sequence[int]) -> "Operation":
            return to.delete_prefix(prefix, timeout, completions)

        return self._ask_all(prefix, start, Count(), completions)

    def measure(
        self, prefix: str, any: bool, timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        """Measure; what all servers keep a copy of counts as often as there are copies."""

        def start(to: "Connection", _: Sequence[int]) -> "Operation":
            return to.measure(prefix, any, timeout, completions)

        return self._ask_all(prefix, start, Measures(), completions)

    def list_page(
        self,
        prefix: str,
        delimited: bool,
        cursor: str,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        """List; of servers with values of their own a folder comes as one page."""

        def start(to: "Connection", cursor: str) -> "Operation":
            return to.list_page(prefix, delimited, cursor, timeout, completions)

        if delimited and not self.shared:
            # Where a page of a folder ends, backings tell in ways of their own.
            spread, answer = self._spread([prefix], lambda to, _: start(to, cursor), Folder())
            return self._join(spread.all_pages(start), answer, completions)
        return self._ask_all(prefix, lambda to, _: start(to, cursor), Page(), completions)

    # ---- how requests are spread ----

    def _read_values(
        self, keys: Sequence[str], start: Start, completions: "Completions | None"
    ) -> Joined:
        """Ask for an item of each key."""
        spread, answer = self._spread(keys, start, Each(len(keys)))
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = _apart(keys)
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


def _apart(keys: Sequence[str]) -> tuple[list[int], Sequence[int]]:
    """Return the positions of keys of which all servers keep copies, and of the others."""
    copied = [position for position, key in enumerate(keys) if is_metadata(key)]
    if not copied:
        return copied, range(len(keys))
    chosen = set(copied)
    return copied, [position for position in range(len(keys)) if position not in chosen]


def _is_missing(item: object) -> bool:
    """Tell whether there is no value, by what `Fleet.get` or `Fleet.stat` says of a key."""
    return item is None or item == -1
