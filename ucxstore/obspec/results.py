"""Return values by obspec's names."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypedDict

from ucxstore.obspec.errors import AlreadyExistsError

# Servers keep no times.
_NO_TIME = datetime.fromtimestamp(0, UTC)

_PIECE_BYTES = 8 << 20  # of a value that is iterated over


class ObjectMeta(TypedDict):
    """What is known of a value. `last_modified` is always 1970: servers keep no times."""

    path: str
    last_modified: datetime
    size: int
    e_tag: str | None
    version: str | None


class ListResult(TypedDict):
    """The folders and the values in a folder."""

    common_prefixes: Sequence[str]
    objects: Sequence[ObjectMeta]


class PutResult(TypedDict):
    """What is known of a value that was written: nothing."""

    e_tag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class _Received:
    """A value, or a range of it, which has been received.

    Attributes
    ----------
    meta : ObjectMeta
    range : tuple of int
        The first byte, and that after the last.
    attributes : dict
        Always empty.
    """

    meta: ObjectMeta
    range: tuple[int, int]
    _data: memoryview = field(repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        return {}

    def _pieces(self) -> Iterator[memoryview]:
        for start in range(0, len(self._data), _PIECE_BYTES):
            yield self._data[start : start + _PIECE_BYTES]


class GetResult(_Received):
    """What `ObspecStore.get` returns: iterate over it, or take all of it.

    obstore takes what can be iterated over in both ways for asynchronous, so this is one class of
    two.
    """

    def buffer(self) -> memoryview:
        """Return all of it, without a copy."""
        return self._data

    def __iter__(self) -> Iterator[memoryview]:
        return self._pieces()


class GetResultAsync(_Received):
    """What `ObspecStore.get_async` returns."""

    async def buffer_async(self) -> memoryview:
        """Return all of it, without a copy."""
        return self._data

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        for piece in self._pieces():
            yield piece


def put_result(path: str, written: bool) -> PutResult:
    """Return what is known of a value that was written; raise if one was there already."""
    if not written:
        raise AlreadyExistsError(f"there is a value under {path!r} already")
    return {"e_tag": None, "version": None}


def meta_of(
    path: str, size: int, e_tag: str | None = None, version: str | None = None
) -> ObjectMeta:
    """Return the facts about a value; of one in a listing, no more than its size."""
    return {
        "path": path,
        "last_modified": _NO_TIME,
        "size": size,
        "e_tag": e_tag,
        "version": version,
    }
