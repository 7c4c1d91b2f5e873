"""`Record`: which storages make up a set of servers, and where their keys are placed. No I/O.

Where several servers each have values of their own, all of them keep the same record. It has the
identity of each storage, and the name by which keys are placed there: the ``host:port`` that the
server had in the address of the first client. So a server may move or be given by another name,
and the order in an address does not matter. Whatever is missing or foreign is an error.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from ucxstore.base.address import HostPort
from ucxstore.base.errors import ClusterError
from ucxstore.base.foreign import Fields
from ucxstore.protocol.frames import IDENTITY_BYTES, MAX_RECORD_BYTES

_SET_BYTES = 16

type Found = Mapping[HostPort, bytes | None]
"""The identity of each server that an address names; ``None`` while it is not connected."""


@dataclass(frozen=True, slots=True)
class Place:
    """A member of a set.

    Parameters
    ----------
    identity : bytes
        Of its storage.
    name : str
        By which keys are placed. It stays when the storage moves to another server.
    """

    identity: bytes
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.identity.hex()})"


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a set.

    Parameters
    ----------
    set_id : bytes
        Tells two sets apart.
    generation : int
        Grows when a loss is accepted or a member is forgotten. The greatest is valid.
    members : tuple of Place
    """

    set_id: bytes
    generation: int
    members: tuple[Place, ...]

    @classmethod
    def make(cls, servers: Mapping[HostPort, bytes]) -> Self:
        """Make the record of a new set.

        Raises
        ------
        ClusterError
            If two servers have the same storage.
        """
        _check_distinct(servers)
        places = sorted(
            (Place(identity, str(server)) for server, identity in servers.items()),
            key=lambda place: place.identity,
        )
        return cls(secrets.token_bytes(_SET_BYTES), 1, tuple(places))

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Read a record; ``None`` if there is none.

        Raises
        ------
        ProtocolError
            If it is not one.
        """
        if not data:
            return None
        fields = Fields.read(data, "a record of a set of servers", MAX_RECORD_BYTES)
        members = tuple(
            Place(one.hexadecimal("identity", IDENTITY_BYTES), one.text("name"))
            for one in fields.each("members")
        )
        set_id = fields.hexadecimal("set", _SET_BYTES)
        record = cls(set_id, fields.integer("generation"), members)
        if not members or len(record.identities) != len(members):
            raise fields.wrong("members")
        return record

    def encode(self) -> bytes:
        """Write it, always in the same way."""
        members = [{"identity": one.identity.hex(), "name": one.name} for one in self.members]
        fields = {"set": self.set_id.hex(), "generation": self.generation, "members": members}
        return json.dumps(fields, separators=(",", ":")).encode()

    @property
    def identities(self) -> frozenset[bytes]:
        """The identities of the members."""
        return frozenset(place.identity for place in self.members)

    def bind(self, found: Found) -> list[HostPort]:
        """Return the server of each member.

        A server with a foreign identity, or that is not connected, takes a place that is left:
        that of its name, if there is one. Its requests raise until it has the place's identity.

        Raises
        ------
        ClusterError
            If the address names fewer servers than the set has, or more, or one of them twice.
        """
        _check_distinct(found)
        if len(found) != len(self.members):
            raise ClusterError(
                f"the address names {len(found)} servers, and their set has {len(self.members)}: "
                f"expected {', '.join(map(str, self.members))}; found {_describe(found)}"
            )
        by_identity = {identity: server for server, identity in found.items() if identity}
        bound = [by_identity.get(place.identity) for place in self.members]
        left = [server for server in found if server not in bound]
        for index, place in enumerate(self.members):
            named = [server for server in left if str(server) == place.name]
            if bound[index] is None and named:
                bound[index] = named[0]
                left.remove(named[0])
        return [server or left.pop(0) for server in bound]

    def accept(self, found: Found) -> "Record":
        """Return the record with the identities that the servers have now."""
        servers = self.bind(found)
        members = tuple(
            replace(place, identity=found[server] or place.identity)
            for place, server in zip(self.members, servers, strict=True)
        )
        return replace(self, generation=self.generation + 1, members=members)

    def forget(self, index: int) -> "Record":
        """Return the record without a member."""
        members = self.members[:index] + self.members[index + 1 :]
        return replace(self, generation=self.generation + 1, members=members)


def choose(records: Mapping[HostPort, Record | None]) -> Record | None:
    """Return the valid one of the records that servers keep; ``None`` if none has one.

    Raises
    ------
    ClusterError
        If the servers are of different sets.
    """
    best: tuple[HostPort, Record] | None = None
    for server, record in records.items():
        if record is None:
            continue
        if best is None:
            best = server, record
            continue
        first, other = best
        same = other.set_id == record.set_id
        if not same or (other.generation == record.generation and other != record):
            raise ClusterError(
                f"{first} and {server} belong to different sets of servers: {first} keeps the "
                f"record of {', '.join(map(str, other.members))}; {server} that of "
                f"{', '.join(map(str, record.members))}"
            )
        if record.generation > other.generation:
            best = server, record
    return None if best is None else best[1]


def _describe(found: Found) -> str:
    return ", ".join(
        f"{server} ({identity.hex() if identity else 'not connected'})"
        for server, identity in found.items()
    )


def _check_distinct(found: Found) -> None:
    seen: dict[bytes, HostPort] = {}
    for server, identity in found.items():
        if identity is None:
            continue
        first = seen.setdefault(identity, server)
        if first != server:
            raise ClusterError(
                f"{first} and {server} have the same storage ({identity.hex()}): the address names "
                "a server twice, or the servers of one storage lack shared=True, or the directory "
                "of one is a copy of the other's"
            )


def names(servers: Iterable[object]) -> str:
    """Return servers or members as text."""
    return ", ".join(map(str, servers))
