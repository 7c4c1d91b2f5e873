"""`Names`: keys, and prefixes of keys, that servers tell one another of."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

# In one message: with keys of the greatest length it is still far below its limit.
_PER_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Names:
    """Keys, and prefixes of all keys that begin with them.

    Parameters
    ----------
    keys, prefixes : set of str
    """

    keys: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.keys or self.prefixes)

    def __len__(self) -> int:
        return len(self.keys) + len(self.prefixes)

    def add(self, other: "Names") -> "Names":
        """Add other names; return those that are new."""
        new = Names(other.keys - self.keys, other.prefixes - self.prefixes)
        self.keys.update(new.keys)
        self.prefixes.update(new.prefixes)
        return new

    def remove(self, other: "Names") -> "Names":
        """Remove these names; return those that were there."""
        gone = Names(other.keys & self.keys, other.prefixes & self.prefixes)
        self.keys.difference_update(gone.keys)
        self.prefixes.difference_update(gone.prefixes)
        return gone

    def covered_by(self, other: "Names") -> "Names":
        """Return those of which all keys are among the other names."""
        whole = tuple(other.prefixes)
        keys = self.keys & other.keys
        prefixes: set[str] = set()
        if whole:
            keys |= {key for key in self.keys if key.startswith(whole)}
            prefixes = {prefix for prefix in self.prefixes if prefix.startswith(whole)}
        return Names(keys, prefixes)

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
                return Names(set(keys), set(prefixes))
        raise ValueError("these are no names")


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while chunk := list(islice(left, _PER_MESSAGE)):
        yield chunk
