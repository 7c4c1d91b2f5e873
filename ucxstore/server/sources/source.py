"""`Source`: the interface of object stores, zarr stores and the disk tier behind a cache."""

from collections.abc import Buffer, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ucxstore.base.keys import find_problem

if TYPE_CHECKING:
    from ucxstore.server.sources.doubts import Doubts

type Memory = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value, or a part of it.

    `etag` is "" if the source has no entity tags. `size` is that of the whole value; it may be that
    of the part if the part was requested with an entity tag, as the caller then knows the size.
    `kept` tells that the value comes from the disk tier.
    """

    buffer: Buffer
    etag: str
    size: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A part of a listing. The next one begins at `cursor`; "" after the last one."""

    names: list[str]
    cursor: str


@dataclass(frozen=True, slots=True)
class Head:
    """The size and entity tag of a value."""

    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes from `begin` to `end` of a value, or to its own end if that comes first.

    The value must have the entity tag `if_match`, unless that is "".
    """

    begin: int
    end: int
    if_match: str


class ChangedError(Exception):
    """The value does not have the entity tag of the `Part`."""


class UnchangedError(Exception):
    """The value still has the entity tag that is known."""


class UnknownEndError(Exception):
    """The source may have made a change, or not; and may still make it, unless it has `ended`."""

    def __init__(self, text: str, *, ended: bool = False) -> None:
        super().__init__(text)
        self.ended = ended


class AbandonedError(Exception):
    """Nobody waits for the call any more."""


class NotSentError(Exception):
    """The server may not send a change any more, as others may not know of it."""


type Moved = Callable[[], None]


def unheard() -> None:
    """Tell nobody that a call moves."""


class Source(Protocol):
    """The values behind a cache. A failure raises, and `explain` describes it in one line.

    Attributes
    ----------
    has_parts : bool
        Whether `get` can fetch a part of a value. If not, it is only called for whole values.
    doubts : Doubts
        Where changes are told of that were given up.
    """

    has_parts: bool
    doubts: "Doubts"

    async def get(self, key: str, part: Part | None, known: str = "") -> FoundValue | None:
        """Fetch a value, or a part of it; ``None`` if it is missing.

        With `known`, an entity tag, the value is fetched only if it has another tag. `known` and
        `part.if_match` are never given together.

        Raises
        ------
        ChangedError
            If the value does not have the entity tag of the part.
        UnchangedError
            If the value still has the tag `known`.
        """

    async def head(self, key: str) -> Head | None:
        """Fetch the size and entity tag of a value; ``None`` if it is missing."""

    # Changes raise `UnknownEndError` where nobody knows whether they were made. One that is
    # cancelled is noted in `doubts`.

    async def put(
        self, key: str, value: Memory, *, if_absent: bool, wanted: Callable[[], None] = unheard
    ) -> str | None:
        """Store a value, and return its entity tag.

        With `if_absent`, a value that exists is left as it is, and the result is ``None``.
        `wanted` is called before the value is sent; what it raises ends this.
        """

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, any of which may be missing."""

    # The next three may take long. They call `moved` before each step; what it raises ends them.

    async def remove_prefix(self, prefix: str, moved: Moved = unheard) -> int:
        """Remove all keys that begin with `prefix`; return how many."""

    async def measure(
        self, prefix: str, *, any_key: bool, moved: Moved = unheard
    ) -> tuple[int, int]:
        """Count the keys that begin with `prefix`, and their bytes; with `any_key`, at most one."""

    async def list_page(
        self, prefix: str, *, delimited: bool, cursor: str, room: int, moved: Moved = unheard
    ) -> ListedPage:
        """List keys that begin with `prefix`; with `delimited`, the names directly under it.

        The page begins at `cursor`, which an earlier page has returned. It has at most `room` bytes
        of names, but at least one name.
        """

    async def list_reserved(self) -> list[str]:
        """List what servers keep for themselves: all names in `RESERVED_FOLDER`.

        No other method knows of these names but `get`, `put` and `remove`.
        """

    async def check(self) -> None:
        """Raise if the source cannot be reached, or not be read."""

    def explain(self, error: BaseException) -> str:
        """Describe a failure and where it was, in one line."""


def parent_of(prefix: str) -> str:
    """Return the directory of all keys with this prefix, without a trailing slash."""
    return prefix.rpartition("/")[0]


def is_listed(name: str, cursor: str) -> bool:
    """Tell whether a page from `cursor` on can have a name: it is a key, and not before that."""
    return name >= cursor and find_problem(name) is None


def room_of(name: str) -> int:
    """Return the bytes that a name takes in a page."""
    return len(name.encode()) + 2


def paged(names: Iterable[str], cursor: str, room: int) -> ListedPage:
    """Cut a page of at most `room` bytes out of sorted `names`, beginning at `cursor`."""
    page: list[str] = []
    for name in names:
        if not is_listed(name, cursor):
            continue
        room -= room_of(name)
        if page and room < 0:
            return ListedPage(page, name)
        page.append(name)
    return ListedPage(page, "")


class Smallest:
    """The names of a page, out of any number of names in any order. Its memory is bounded.

    Parameters
    ----------
    cursor : str
        The page begins there.
    room : int
        The bytes of its names.
    """

    def __init__(self, cursor: str, room: int) -> None:
        self._cursor = cursor
        self._room = room
        self._names: list[str] = []
        self._taken = 0

    def add(self, name: str) -> None:
        """Keep a name, unless the page is full of smaller ones."""
        if name >= self._cursor:
            self._names.append(name)
            self._taken += room_of(name)
            if self._taken > 4 * self._room and len(self._names) > 4:
                self._drop_larger()

    def page(self) -> ListedPage:
        """Return the page."""
        self._names.sort()
        return paged(self._names, self._cursor, self._room)

    def _drop_larger(self) -> None:
        """Keep the names that fill the page, and the one after them: the next page begins there."""
        self._names.sort()
        sizes = accumulate(room_of(name) for name in self._names)
        kept = 2 + sum(1 for _ in takewhile(lambda taken: taken <= self._room, sizes))
        del self._names[kept:]
        self._taken = sum(map(room_of, self._names))
