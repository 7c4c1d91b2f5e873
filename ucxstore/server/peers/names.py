"""`Names`: keys, and prefixes of keys, that servers tell one another of."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

# In one message: with keys of the greatest length it is still far below its limit.
_PER_MESSAGE = 1000

type Name = tuple[bool, str]
"""A key, or with ``True`` in front a prefix."""


@dataclass(frozen=True, slots=True)
class Names:
    """Keys, and prefixes of all keys that begin with them.

    Parameters
    ----------
    keys, prefixes : frozenset of str
    """

    keys: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()

    @staticmethod
    def of(names: Iterable[Name]) -> "Names":
        """Gather single names."""
        keys: set[str] = set()
        prefixes: set[str] = set()
        for is_prefix, text in names:
            (prefixes if is_prefix else keys).add(text)
        return Names(frozenset(keys), frozenset(prefixes))

    def __iter__(self) -> Iterator[Name]:
        for key in self.keys:
            yield False, key
        for prefix in self.prefixes:
            yield True, prefix

    def __bool__(self) -> bool:
        return bool(self.keys or self.prefixes)

    def __len__(self) -> int:
        return len(self.keys) + len(self.prefixes)

    def __or__(self, other: "Names") -> "Names":
        return Names(self.keys | other.keys, self.prefixes | other.prefixes)

    def covers(self, name: Name) -> bool:
        """Tell whether all keys of a name are among these."""
        is_prefix, text = name
        whole = self.prefixes
        if text in (whole if is_prefix else self.keys):
            return True
        return bool(whole) and text.startswith(tuple(whole))

    def meets(self, name: Name) -> bool:
        """Tell whether these have a key in common with a name."""
        is_prefix, text = name
        if self.covers(name):
            return True
        return is_prefix and any(one.startswith(text) for _, one in self)

    def parts(self) -> Iterator[list[list[str]]]:
        """Yield them as messages have them, each with a bounded number."""
        for keys in _chunks(self.keys):
            yield [keys, []]
        for prefixes in _chunks(self.prefixes):
            yield [[], prefixes]

    @staticmethod
    def parse(part: object) -> "Names":
        """Read what `parts` has yielded.

        Raises
        ------
        ValueError
            If it is anything else.
        """
        match part:
            case [list(keys), list(prefixes)] if all(
                isinstance(one, str) for one in (*keys, *prefixes)
            ):
                return Names(frozenset(keys), frozenset(prefixes))
        raise ValueError("these are no names")


ALL = Names(prefixes=frozenset({""}))


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(sorted(names))
    while chunk := list(islice(left, _PER_MESSAGE)):
        yield chunk
