"""JSON that others have written: servers, sources, other processes. Read it within bounds.

Nothing else reads such JSON, because Python's own reader lets through what breaks later: numbers
that are infinite, integers of thousands of digits, brackets as deep as the stack.
"""

import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any, Self

from ucxstore.base.errors import ProtocolError

_MAX_DEPTH = 16  # what we write has four levels at the most
_MAX_INTEGER = 2**64 - 1  # as the core's
_MAX_DIGITS = len(str(-_MAX_INTEGER))
_SHOWN = 80  # bytes of what was wrong, in an error


class Fields:
    """An object of JSON, whose fields are taken out by name and type.

    Parameters
    ----------
    what : str
        What it is, for errors: "a record of a set of servers".
    found : object
        What the reader has found in its place.
    """

    def __init__(self, what: str, found: object) -> None:
        if not isinstance(found, dict):
            raise ProtocolError(f"not {what}: {_shown(found)} is not an object")
        self.plain: Mapping[str, Any] = found
        self._what = what

    @classmethod
    def read(cls, data: bytes, what: str, most: int) -> Self:
        """Read an object.

        Parameters
        ----------
        data : bytes
            In UTF-8.
        what : str
            What it is, for errors.
        most : int
            Bytes that it may have.

        Raises
        ------
        ProtocolError
            If it is longer or deeper than it may be, or no JSON, or has a number that is not finite
            or has more than 64 bits.
        """
        if len(data) > most:
            raise ProtocolError(f"not {what}: {len(data)} bytes, of which {most} are allowed")
        try:
            found = json.loads(data, parse_int=_integer, parse_float=_float, parse_constant=_float)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"not {what}: {error} in {data[:_SHOWN]!r}") from error
        if _deeper(found, _MAX_DEPTH):
            raise ProtocolError(f"not {what}: more than {_MAX_DEPTH} levels in {data[:_SHOWN]!r}")
        return cls(what, found)

    def integer(self, name: str) -> int:
        """Return a number that is no fraction and not negative."""
        value = self._field(name, int)
        if isinstance(value, bool) or value < 0:
            raise self.wrong(name)
        return int(value)

    def number(self, name: str) -> int | float:
        """Return a number."""
        value: int | float = self._field(name, (int, float))
        if isinstance(value, bool):
            raise self.wrong(name)
        return value

    def flag(self, name: str) -> bool:
        """Return whether something holds."""
        return bool(self._field(name, bool))

    def text(self, name: str) -> str:
        """Return a text."""
        return self._text(name, self._field(name, str))

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        return [self._text(name, one) for one in self._field(name, list)]

    def hexadecimal(self, name: str, size: int) -> bytes:
        """Return so many bytes, which are written as hexadecimal digits."""
        try:
            found = bytes.fromhex(self.text(name))
        except ValueError:
            found = b""
        if len(found) != size:
            raise self.wrong(name)
        return found

    def each(self, name: str) -> list["Fields"]:
        """Return a list of objects."""
        return [Fields(self._what, one) for one in self._field(name, list)]

    def inside(self, name: str) -> "Fields":
        """Return an object."""
        return Fields(self._what, self._field(name, dict))

    def integers(self, name: str) -> dict[str, int]:
        """Return an object of numbers, as `integer` does one, by their names."""
        found = self.inside(name)
        return {self._text(name, one): found.integer(one) for one in found.plain}

    def plain_list(self, name: str, length: int) -> list[Any]:
        """Return a list of so many values of any type."""
        found: list[Any] = self._field(name, list)
        if len(found) != length:
            raise self.wrong(name)
        return found

    def wrong(self, name: str) -> ProtocolError:
        """Return the error that a field cannot be used."""
        return ProtocolError(f"not {self._what}: {name!r} is {_shown(self.plain.get(name))}")

    def _field(self, name: str, kind: type | tuple[type, ...]) -> Any:
        if name not in self.plain:
            raise ProtocolError(f"not {self._what}: no {name!r} in {_shown(self.plain)}")
        value = self.plain[name]
        if not isinstance(value, kind):
            raise self.wrong(name)
        return value

    def _text(self, name: str, value: object) -> str:
        if not isinstance(value, str) or any("\ud800" <= one <= "\udfff" for one in value):
            raise self.wrong(name)  # half a character can neither be printed nor sent
        return value


def _integer(text: str) -> int:
    number = int(text) if len(text) <= _MAX_DIGITS else _MAX_INTEGER + 1
    if abs(number) > _MAX_INTEGER:
        raise ValueError(f"{text[:_SHOWN]}: a number of more than 64 bits")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_SHOWN]}: not a finite number")
    return number


def _deeper(found: object, levels: int) -> bool:
    inside = (
        found.values() if isinstance(found, dict) else found if isinstance(found, list) else None
    )
    return inside is not None and (levels == 0 or any(_deeper(one, levels - 1) for one in inside))


def _shown(found: object) -> str:
    return reprlib.repr(found)[:_SHOWN]
