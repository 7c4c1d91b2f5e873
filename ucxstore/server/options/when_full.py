"""`WhenFull`: what a server of memory does with values that have no room. No I/O."""

from dataclasses import dataclass
from typing import Literal, Self

from ucxstore.base.keys import find_problem

CHOICES = "'refuse', 'evict', 'evict:PREFIX[,PREFIX]' or 'spill:DIRECTORY'"


@dataclass(frozen=True, slots=True)
class WhenFull:
    """What a server of memory does with values that have no room.

    Parameters
    ----------
    does : {"refuse", "evict", "spill"}
        Refuse new ones; lose old ones, of a cache; or move old ones to a directory.
    below : tuple of str
        Where keys are those of a cache: the folders, with a slash at the end; ``""`` for all keys.
    directory : str
        Where values are moved to.
    """

    does: Literal["refuse", "evict", "spill"]
    below: tuple[str, ...] = ()
    directory: str = ""

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """Parse what a user has written.

        Parameters
        ----------
        name : str
            The option's name, for messages.
        text : str
            ``"refuse"``, ``"evict"``, ``"evict:PREFIX[,PREFIX]"`` or ``"spill:DIRECTORY"``.

        Raises
        ------
        ValueError
            If it is something else, or a prefix is none.
        TypeError
            If it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"{name}: text is needed, not {text!r}")
        does, colon, rest = text.partition(":")
        if does == "refuse" and not colon:
            return cls("refuse")
        if does == "evict":
            return cls("evict", _folders(name, text, rest) if colon else ("",))
        if does == "spill" and rest:
            return cls("spill", directory=rest)
        raise ValueError(f"{name}: {text!r} is none of {CHOICES}")


def _folders(name: str, text: str, prefixes: str) -> tuple[str, ...]:
    folders: list[str] = []
    for each in prefixes.split(","):
        prefix = each.strip().strip("/")
        problem = find_problem(prefix)
        if problem is not None:
            raise ValueError(f"{name}: {text!r}: {each!r} is no prefix of keys: {problem}")
        folders.append(f"{prefix}/")
    return tuple(folders)
