"""What several servers answer, put together to what one would have answered: no I/O."""

from collections.abc import Sequence
from typing import Any, Protocol

type Positions = Sequence[int]
"""Where keys stand in the request that they were taken from, in ascending order."""


class Answer(Protocol):
    """What has come so far."""

    def take(self, positions: Positions, result: Any) -> None:
        """Take what a server answers about some of the keys."""
        ...

    def finish(self) -> Any:
        """Return the whole."""
        ...


class Nothing:
    """Where there is nothing to tell."""

    def take(self, positions: Positions, result: Any) -> None:
        pass

    def finish(self) -> None:
        pass


class Each:
    """A list with an item for each key.

    Parameters
    ----------
    count : int
        How many keys.
    """

    def __init__(self, count: int) -> None:
        self.items: list[Any] = [None] * count

    def take(self, positions: Positions, result: Any) -> None:
        for position, item in zip(positions, result, strict=True):
            self.items[position] = item

    def finish(self) -> list[Any]:
        return self.items


class Missing:
    """A list of those keys, by position, that are missing."""

    def __init__(self) -> None:
        self._missing: list[int] = []

    def take(self, positions: Positions, result: list[int]) -> None:
        self._missing += [positions[i] for i in result]

    def finish(self) -> list[int]:
        return sorted(self._missing)


class One:
    """What a single server answers."""

    def take(self, positions: Positions, result: Any) -> None:
        self._result = result

    def finish(self) -> Any:
        return self._result


class Count:
    """Numbers that add up."""

    def __init__(self) -> None:
        self._sum = 0

    def take(self, positions: Positions, result: int) -> None:
        self._sum += result

    def finish(self) -> int:
        return self._sum


class Measures:
    """Counts of keys, and of their bytes."""

    def __init__(self) -> None:
        self._keys = self._size = 0

    def take(self, positions: Positions, result: tuple[int, int]) -> None:
        keys, size = result
        self._keys += keys
        self._size += size

    def finish(self) -> tuple[int, int]:
        return self._keys, self._size


class Page:
    """A page of a listing of whole keys: the union, as far as all servers' pages reach."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._cursors: list[str] = []

    def take(self, positions: Positions, result: tuple[list[str], str]) -> None:
        names, cursor = result
        self._names.update(names)
        if cursor:
            self._cursors.append(cursor)

    def finish(self) -> tuple[list[str], str]:
        # A cursor is the first key that is not in its page.
        cursor = min(self._cursors, default="")
        names = [name for name in self._names if name < cursor] if cursor else self._names
        return sorted(names), cursor


class Folder:
    """The names in a folder, each once."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def take(self, positions: Positions, result: tuple[list[str], str]) -> None:
        self._names.update(result[0])

    def finish(self) -> tuple[list[str], str]:
        return sorted(self._names), ""


def pick[T](values: Sequence[T], positions: Positions, width: int = 1) -> Sequence[T]:
    """Return the values of some keys, of which each has `width`."""
    if len(positions) * width == len(values):
        return values
    if width == 1:
        return [values[position] for position in positions]
    return [
        value
        for position in positions
        for value in values[position * width : (position + 1) * width]
    ]
