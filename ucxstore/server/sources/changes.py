"""What reads and changes of keys are under way: whether what one of them brings may be kept."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Claim:
    """A read or a change of a key, while it is under way.

    Attributes
    ----------
    key : str
    changing : bool
    alone : bool
        Whether the key is not changed by anybody else meanwhile. Where it is, nobody knows which
        value is the last one.
    """

    key: str
    changing: bool
    alone: bool = True


class Changes:
    """Used by one thread."""

    def __init__(self) -> None:
        self._claims: dict[str, list[Claim]] = {}
        self._prefixes: list[str] = []

    @contextmanager
    def reading(self, key: str) -> Iterator[Claim]:
        """Say that the key is being read."""
        with self._claimed([Claim(key, changing=False)]) as (claim,):
            yield claim

    @contextmanager
    def changing(self, keys: Iterable[str]) -> Iterator[list[Claim]]:
        """Say that the keys are being changed."""
        with self._claimed([Claim(key, changing=True) for key in keys]) as claims:
            yield claims

    @contextmanager
    def changing_prefix(self, prefix: str) -> Iterator[None]:
        """Say that all keys that begin with `prefix` are being changed."""
        for key, claims in self._claims.items():
            if key.startswith(prefix):
                for claim in claims:
                    claim.alone = False
        self._prefixes.append(prefix)
        try:
            yield
        finally:
            self._prefixes.remove(prefix)

    @contextmanager
    def _claimed(self, claims: list[Claim]) -> Iterator[list[Claim]]:
        for claim in claims:
            others = self._claims.setdefault(claim.key, [])
            claim.alone = not (
                any(other.changing for other in others)
                or any(claim.key.startswith(prefix) for prefix in self._prefixes)
            )
            if claim.changing:
                for other in others:
                    other.alone = False
            others.append(claim)
        try:
            yield claims
        finally:
            for claim in claims:
                others = self._claims[claim.key]
                others.remove(claim)
                if not others:
                    del self._claims[claim.key]
