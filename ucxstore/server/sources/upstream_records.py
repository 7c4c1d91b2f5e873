"""`UpstreamRecords`: what servers keep with the servers that are their source, to find one another.

An object store has the presences of its servers as objects. Other servers keep them as records, by
a request of operators: no client can read, list or remove them.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from ucxstore.base.address import HostPort
from ucxstore.base.errors import ConnectError, ServerLostError, StorageError
from ucxstore.base.foreign import Fields
from ucxstore.base.keys import RESERVED_FOLDER
from ucxstore.client import requests
from ucxstore.client.channel import Channel
from ucxstore.client.connections import Connector
from ucxstore.cluster.record import Record, choose
from ucxstore.protocol.frames import Welcome

# Bytes of a request of an operator, as the core has it; and of an answer.
MAX_REQUEST = 4096
_MAX_ANSWER = 1 << 20


class TooLargeError(Exception):
    """The record does not fit into a request."""


class Upstream(NamedTuple):
    """A server that is asked for values.

    Parameters
    ----------
    connector : Connector
    channel : Channel
        To this server alone.
    """

    connector: Connector
    channel: Channel

    @property
    def welcome(self) -> Welcome | None:
        """What it has said of itself, if there is a connection."""
        connection = self.connector.current()
        return None if connection is None else connection.welcome


def identities_of(upstreams: Mapping[HostPort, Upstream]) -> list[bytes]:
    """Return the identities of the storages behind connected servers, in a fixed order.

    Of a set these are the identities of all members, also of those that are lost.
    """
    found = {server: one.welcome for server, one in upstreams.items()}
    welcomes = {server: welcome for server, welcome in found.items() if welcome is not None}
    record = choose({server: Record.decode(one.record) for server, one in welcomes.items()})
    if record is not None:
        return sorted(record.identities)
    return sorted({welcome.identity for welcome in welcomes.values()})


class UpstreamRecords:
    """The records of all servers behind a prefix of other servers.

    They are at one place that all of these find, by whatever names they know the servers: at any
    of the servers if these share their values; else at the member of the set with the smallest
    identity.

    Parameters
    ----------
    upstreams : mapping
        The servers, in the order of the address.
    prefix : str
        The records of different prefixes do not meet.
    """

    def __init__(self, upstreams: Mapping[HostPort, Upstream], prefix: str) -> None:
        self._upstreams = upstreams
        self._folder = hashlib.blake2b(prefix.encode(), digest_size=8).hexdigest()

    async def put(self, path: str, data: bytes) -> None:
        """Keep a record, in the place of any other.

        Raises
        ------
        TooLargeError
            If it does not fit into a request.
        """
        await self._ask(how="put", name=_name_of(path), text=data.decode())

    async def get(self, path: str) -> bytes | None:
        """Return a record; ``None`` if it is missing."""
        answer = await self._ask(how="get", name=_name_of(path))
        return answer.text("text").encode() if "text" in answer.plain else None

    async def remove(self, path: str) -> None:
        """Remove a record, which may be missing."""
        await self._ask(how="remove", name=_name_of(path))

    async def list_paths(self) -> list[str]:
        """List the paths of all records."""
        paths: list[str] = []
        after = ""
        while True:
            answer = await self._ask(how="list", after=after)
            names = answer.texts("names")
            paths += [f"{RESERVED_FOLDER}{name}" for name in names]
            if not (names and answer.flag("more")):
                return paths
            after = names[-1]

    async def _ask(self, **what: str) -> Fields:
        text = json.dumps({"do": "tier", "folder": self._folder, **what}, ensure_ascii=False)
        if len(text.encode()) > MAX_REQUEST:
            raise TooLargeError
        problem: Exception = ConnectionError("none of the servers is connected")
        for one in await self._places():
            try:
                answer = await one.channel.ask(requests.operate(text))
            except (ConnectError, ServerLostError) as error:
                problem = error  # another one has the same records
                continue
            fields = Fields.read(answer, "an answer of a source's server", _MAX_ANSWER)
            if "refused" in fields.plain:
                raise StorageError(fields.text("refused"))
            return fields
        raise problem

    async def _places(self) -> list[Upstream]:
        """Return the servers that have the records, the first choice first."""
        connected = [one for one in self._upstreams.values() if one.welcome is not None]
        welcomes = [one.welcome for one in connected]
        if len(self._upstreams) == 1 or any(each is not None and each.shared for each in welcomes):
            absent = [one for one in self._upstreams.values() if one not in connected]
            return [*connected, *absent]
        first = min(identities_of(self._upstreams), default=b"")
        return [one for one in connected if one.welcome and one.welcome.identity == first]


def _name_of(path: str) -> str:
    return path.removeprefix(RESERVED_FOLDER)
