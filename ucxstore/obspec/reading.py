"""Which bytes of a value a read asks for, and under which conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from ucxstore.client.byte_ranges import bounds, to_native
from ucxstore.client.requests import Found
from ucxstore.obspec.errors import (
    NotFoundError,
    NotModifiedError,
    NotSupportedError,
    PreconditionError,
)
from ucxstore.obspec.results import ObjectMeta, meta_of

_EVERYTHING = OffsetByteRequest(0)
_NOTHING = RangeByteRequest(0, 0)
_VERSIONS = range(1, 1 << 64)


type Parts = tuple[ObjectMeta, tuple[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a read."""

    byte_range: ByteRequest = _EVERYTHING
    version: int | None = None
    is_head: bool = False
    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Self:
        given = {name: value for name, value in (options or {}).items() if value is not None}
        known = {"range", "head", "version", "if_match", "if_none_match"}
        if unknown := sorted(given.keys() - known):
            raise NotSupportedError(f"servers do not have these options of a read: {unknown}")
        head = bool(given.get("head"))
        version = str(given.get("version", ""))
        return cls(
            _NOTHING if head else _range_of(given.get("range")),
            _version_of(version) if version else None,
            head,
            given.get("if_match"),
            given.get("if_none_match"),
        )

    def parts(self, path: str, found: Found | None) -> Parts:
        """Return what was found and its range, once all conditions are checked."""
        if found is None:
            raise NotFoundError(f"there is no value under {path!r}")
        data, size, version = found
        e_tag = f'"{version}"'
        if data is None:
            raise NotFoundError(f"{path!r} has the version {version}, and not {self.version}")
        if self.if_match is not None and not _matches(self.if_match, e_tag):
            raise PreconditionError(f"{path!r} has another version: {version}")
        if self.if_none_match is not None and _matches(self.if_none_match, e_tag):
            raise NotModifiedError(f"{path!r} still has the version {version}")
        ((start, stop),) = bounds(to_native(self.byte_range), size)
        if start == stop and not self.is_head and self.byte_range != _EVERYTHING:
            raise ValueError(f"{path!r}: the range is beyond its end ({size} bytes)")
        meta = meta_of(path, size, e_tag, str(version))
        return meta, (start, stop), memoryview(data)


def _matches(condition: str, e_tag: str) -> bool:
    tags = [tag.strip() for tag in condition.split(",")]
    return "*" in tags or e_tag in tags or e_tag.strip('"') in tags


def _version_of(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(_VERSIONS[-1])):
        version = int(text)
        if version in _VERSIONS:
            return version
    raise NotFoundError(f"there is no version {text!r}")


def _range_of(given: Any) -> ByteRequest:
    if given is None:
        return _EVERYTHING
    if isinstance(given, Mapping):
        if "offset" in given:
            return OffsetByteRequest(given["offset"])
        return SuffixByteRequest(given["suffix"])
    start, end = given
    return RangeByteRequest(start, end)


def one_range(start: int, end: int | None, length: int | None) -> RangeByteRequest:
    """Return a range that is given by its end or by its length."""
    if (end is None) == (length is None):
        raise ValueError("give either an end or a length")
    stop = start + length if length is not None else end
    if stop is None or not 0 <= start < stop:
        raise ValueError(f"the range is empty: {start} to {stop}")
    return RangeByteRequest(start, stop)


def ranges_of(
    starts: Sequence[int], ends: Sequence[int] | None, lengths: Sequence[int] | None
) -> list[RangeByteRequest]:
    """Return ranges that are given by their ends or by their lengths."""
    if (ends is None) == (lengths is None):
        raise ValueError("give either ends or lengths")
    if lengths is not None:
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    return [one_range(start, end, None) for start, end in zip(starts, ends or [], strict=True)]


def in_order(
    path: str, parts: Iterable[tuple[int, Any]], ranges: Sequence[RangeByteRequest]
) -> list[memoryview]:
    """Return the parts of a value in the order of their ranges."""
    found = {index: memoryview(part.as_numpy_array()) for index, part in parts}
    for index, one in enumerate(ranges):
        if not len(found[index]):
            raise ValueError(f"{path!r} ends before byte {one.start}")
    return [found[index] for index in range(len(ranges))]
