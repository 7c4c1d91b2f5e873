"""`Source`: what an object store, a zarr store and the disk tier implement behind a cache."""

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

    `etag` is "" where the source has no entity tags. `size` is that of the whole value, unless the
    part was asked for by its entity tag: then the caller knows it. `kept` says that the value comes
    from the disk tier.
    """

    buffer: Buffer
    etag: str
    size: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing; `cursor` is where the next one begins, "" where this was the last."""

    names: list[str]
    cursor: str


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a value without its bytes."""

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
    """Where values are. A failure raises, and `explain` says in a line what it was.

    Attributes
    ----------
    has_parts : bool
        Whether `get` can fetch a part of a value; if not, it is called for whole values alone.
    """

    has_parts: bool

    async def get(self, key: str, part: Part | None, known: str = "") -> Found | None:
        """Fetch the value, or a part of it; ``None`` where the key has none.

        With `known`, an entity tag, the value is sent only if it has another one. There is no such
        tag together with `part.if_match`.

        Raises
        ------
        ChangedError
            If the value does not have the entity tag of the part.
        UnchangedError
            If the value still has the tag `known`.
        """

    async def head(self, key: str) -> Head | None:
        """Fetch size and entity tag of the value; ``None`` where the key has none."""

    async def put(self, key: str, value: Memory, *, if_absent: bool) -> str | None:
        """Put the value, and return its entity tag; ``None`` where it was to be new and was not."""

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, any of which may be missing."""

    async def remove_prefix(self, prefix: str) -> int:
        """Remove all keys that begin with `prefix`, and count them."""

    async def measure(self, prefix: str, *, any_key: bool) -> tuple[int, int]:
        """Count the keys that begin with `prefix`, and their bytes; `any_key`: one will do."""

    async def list_page(self, prefix: str, *, delimited: bool, cursor: str, room: int) -> Page:
        """List keys that begin with `prefix`; `delimited`: the names right under it.

        From `cursor` on, as an earlier page gave it, and `room` bytes of names, but one at least.
        """

    def explain(self, error: BaseException) -> str:
        """Say what went wrong, and where."""


def parent_of(prefix: str) -> str:
    """Return the directory that all keys with this prefix lie in, without a slash behind it."""
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
