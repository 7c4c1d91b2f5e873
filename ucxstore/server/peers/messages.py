"""Messages between two servers of one source: values, and their JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence

# Of these messages. Servers of other versions do not link: each asks the source.
VERSION = 2


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of each side, the dialler's before the other's."""

    presence: Presence


@dataclass(frozen=True, slots=True)
class Begin:
    """These names are changing from now on. To be answered by `Noted` with a number as high."""

    number: int
    names: Names


@dataclass(frozen=True, slots=True)
class Noted:
    """All that was told up to a number is asked for."""

    number: int


@dataclass(frozen=True, slots=True)
class End:
    """These names do not change any more. `done`: a change of them was made, and it is the last."""

    names: Names
    done: bool


@dataclass(frozen=True, slots=True)
class Synced:
    """All that the sender changes, or may, was told on this link.

    `knows` are memberships, by name, that have ended, and of whose changes the same holds.
    """

    knows: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Here:
    """The sender lives."""


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender relies on nothing of this membership, and sends no change under it."""


type Message = Hello | Begin | Noted | End | Synced | Here | Bye


def merged(messages: Iterable[Message]) -> Iterator[Message]:
    """Join what follows one another and may share a message."""
    last: Message | None = None
    for message in messages:
        match last, message:
            case Begin(), Begin():
                last = Begin(message.number, last.names | message.names)
            case End(), End() if last.done == message.done:
                last = End(last.names | message.names, last.done)
            case Noted(), Noted():
                last = message
            case _:
                if last is not None:
                    yield last
                last = message
    if last is not None:
        yield last


def encode(message: Message) -> list[dict[str, Any]]:
    """Return a message as JSON has it; one with many names in parts."""
    match message:
        case Hello(presence):
            return [{"hello": presence.encode().decode(), "version": VERSION}]
        case Begin(number, names):
            parts = list(names.parts())
            return [{"begin": part} for part in parts[:-1]] + [
                {"begin": part, "n": number} for part in parts[-1:]
            ]
        case Noted(number):
            return [{"noted": number}]
        case End(names, done):
            return [{"end": part, "done": done} for part in names.parts()]
        case Synced(knows):
            return [{"synced": sorted(knows)}]
        case Here():
            return [{"here": True}]
        case Bye():
            return [{"bye": True}]


def decode(data: dict[str, Any]) -> Message:
    """Read one of what `encode` has returned.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    match data:
        case {"hello": str(text)}:
            presence = Presence.parse(text.encode())
            if presence is None:
                raise ValueError("no presence")
            if data.get("version", 1) != VERSION:
                raise ValueError("a server of another release")
            return Hello(presence)
        case {"begin": part, "n": int(number)}:
            return Begin(number, Names.parse(part))
        case {"begin": part}:
            return Begin(0, Names.parse(part))
        case {"noted": int(number)}:
            return Noted(number)
        case {"end": part, "done": bool(done)}:
            return End(Names.parse(part), done)
        case {"synced": list(knows)} if all(isinstance(one, str) for one in knows):
            return Synced(frozenset(knows))
        case {"here": True}:
            return Here()
        case {"bye": True}:
            return Bye()
    raise ValueError("an unknown message")
