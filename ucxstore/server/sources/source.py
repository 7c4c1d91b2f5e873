"""`Source`: the interface of object stores, zarr stores and the disk tier behind a cache."""

from collections.abc import Buffer, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ucxstore.keys import find_problem

type Memory = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Found:
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
class Page:
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


class Source(Protocol):
    """The values behind a cache. A failure raises, and `explain` describes it in one line.

    Attributes
    ----------
    has_parts : bool
        Whether `get` can fetch a part of a value. If not, it is only called for whole values.
    """

    has_parts: bool

    async def get(self, key: str, part: Part | None, known: str = "") -> Found | None:
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

    async def put(self, key: str, value: Memory, *, if_absent: bool) -> str | None:
        """Store a value, and return its entity tag.

        With `if_absent`, a value that exists is left as it is, and the result is ``None``.
        """

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, any of which may be missing."""

    async def remove_prefix(self, prefix: str) -> int:
        """Remove all keys that begin with `prefix`; return how many."""

    async def measure(self, prefix: str, *, any_key: bool) -> tuple[int, int]:
        """Count the keys that begin with `prefix`, and their bytes; with `any_key`, at most one."""

    async def list_page(self, prefix: str, *, delimited: bool, cursor: str, room: int) -> Page:
        """List keys that begin with `prefix`; with `delimited`, the names directly under it.

        The page begins at `cursor`, which an earlier page has returned. It has at most `room` bytes
        of names, but at least one name.
        """

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


def paged(names: Iterable[str], cursor: str, room: int) -> Page:
    """Cut a page of at most `room` bytes out of sorted `names`, beginning at `cursor`."""
    page: list[str] = []
    for name in names:
        if not is_listed(name, cursor):
            continue
        room -= room_of(name)
        if page and room < 0:
            return Page(page, name)
        page.append(name)
    return Page(page, "")
