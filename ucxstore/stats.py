"""Counters of stores and servers."""

import json
import threading
from typing import Any, TypedDict, Unpack, cast

from ucxstore.errors import ProtocolError


class MemberStats(TypedDict):
    """Requests to one of a store's servers.

    Attributes
    ----------
    requests : int
        Requests, each for all of a batch that is placed there.
    failovers : int
        Requests that went to others instead, since it was lost.
    """

    requests: int
    failovers: int


class StoreStats(TypedDict):
    """The counters of a store and of its copies by ``with_read_only``, since it was made.

    Attributes
    ----------
    direct : int
        Chunks, or parts of chunks, that moved straight between the user's array and the store.
    decode : int
        Chunks that were fetched whole as they are stored, and decoded here.
    decode_in_place : int
        Those of `decode` that their codec wrote straight into the array. The others were decoded
        into memory of the store's own first, since they were wanted in part or in rows.
    encode : int
        Chunks that were encoded here, or merged here with what is stored, and then sent.
    fallback : int
        Chunks that were left to the pipeline that zarr would have used.
    mapped : int
        Values that were not copied: the caller was given the memory that the server has them in, as
        a view, or as pages of an array; or a file, as a view. They are not in `direct`.
    bytes_read, bytes_written : int
        Bytes of values, received and sent.
    staged_bytes : int
        Those of `bytes_read` that were received into memory of the store's own, since the caller
        gave none.
    lanes : list of str
        The transports that UCX chose for the connections, such as ``"sysv/memory"``, each once;
        ``"local"`` for a connection that does without UCX. Empty without a connection.
    integrity : bool
        Whether what goes over every open connection has checksums; ``False`` without a connection.
    servers : dict of MemberStats
        For each server by its ``host:port``; empty for a store with one server.
    """

    direct: int
    decode: int
    decode_in_place: int
    encode: int
    fallback: int
    mapped: int
    bytes_read: int
    bytes_written: int
    staged_bytes: int
    lanes: list[str]
    integrity: bool
    servers: dict[str, MemberStats]


class ClientStats(TypedDict):
    """A server's counters for one client that is connected.

    Attributes
    ----------
    peer : str
        The address that it connected from: ``"127.0.0.1:41234"``.
    lanes : list of str
        The transports that UCX chose for the connection; ``["local"]`` if it does without UCX.
    gets, sets, bytes_sent, bytes_received : int
        As in `ServerStats`.
    bytes_in_flight, gets_waiting : int
        Bytes that are on their way to the client now, and values that wait for these.
    """

    peer: str
    lanes: list[str]
    gets: int
    sets: int
    bytes_sent: int
    bytes_received: int
    bytes_in_flight: int
    gets_waiting: int


class SpaceStats(TypedDict):
    """A server's counters for one scratch space.

    Attributes
    ----------
    name : str
        The beginning of its name.
    bytes, quota : int
        Bytes that its values take at this server, and may take.
    age_s : float
        Seconds since it was made.
    """

    name: str
    bytes: int
    quota: int
    age_s: float


class ServerStats(TypedDict):
    """The counters of a server since it was started.

    Attributes
    ----------
    uptime_s : float
        Seconds since it was started.
    gets, gets_missing, sets : int
        Values that were asked for, those of them that were not there, and values that were stored.
    bytes_sent, bytes_received : int
        Bytes of replies that were sent, and of values that were stored.
    bytes_in_flight : int
        Bytes that are on their way to clients now.
    sessions, sessions_lost, sessions_ended : int
        Clients that have connected, those that were lost in the middle of something, and those that
        were asked to go for others, as they were idle.
    messages_refused : int
        Messages that broke the protocol or belonged to no session.
    connected : int
        Clients that are connected now.
    clients : list of ClientStats
        Those, or the first 512.
    scratch_spaces : int
        Scratch spaces that there are now.
    spaces : list of SpaceStats
        Those, or the first 512.
    gets_seen, bytes_seen : int
        Values that clients of the server's host have read themselves, in memory that they see or
        from its files, and their bytes, as they say. They are not in `gets` and `bytes_sent`.
    arenas, arena_bytes : int
        Pieces of that memory, and the bytes that they may take; these and the following are 0 where
        there is no such memory.
    arena_bytes_used, arena_bytes_slack : int
        Those of them that values take, and that are kept for small values.
    arena_bytes_waiting : int
        Those of values that were replaced or removed, and that clients still read.
    arena_bytes_held : int
        Those of all values that clients read right now, or hold where they lie.
    adopted, adopted_bytes : int
        Those of `arenas` that clients have made, each with one value that was not copied, and the
        bytes of these.
    """

    uptime_s: float
    gets: int
    gets_missing: int
    sets: int
    bytes_sent: int
    bytes_received: int
    bytes_in_flight: int
    sessions: int
    sessions_lost: int
    sessions_ended: int
    messages_refused: int
    connected: int
    clients: list[ClientStats]
    scratch_spaces: int
    spaces: list[SpaceStats]
    gets_seen: int
    bytes_seen: int
    arenas: int
    arena_bytes: int
    arena_bytes_used: int
    arena_bytes_slack: int
    arena_bytes_waiting: int
    arena_bytes_held: int
    adopted: int
    adopted_bytes: int


def parse_server_stats(text: bytes) -> ServerStats:
    """Parse and check a server's counters; those that newer servers add are left out.

    Raises
    ------
    ProtocolError
        If something is missing or of another type.
    """
    try:
        found = json.loads(text, parse_constant=_refuse)
        stats = {
            name: _number(found[name])
            for name in ServerStats.__annotations__.keys() - {"clients", "spaces"}
        }
        clients = [_client(one) for one in found["clients"]]
        spaces = [_space(one) for one in found["spaces"]]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the server did not send its counters: {error!r}") from error
    return cast(ServerStats, {**stats, "clients": clients, "spaces": spaces})


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")


def _client(found: dict[str, Any]) -> dict[str, object]:
    names = ClientStats.__annotations__.keys() - {"peer", "lanes"}
    lanes = found["lanes"]
    if not isinstance(lanes, list):
        raise TypeError(f"lanes are no list: {lanes!r}")
    client: dict[str, object] = {name: _number(found[name]) for name in names}
    return {"peer": str(found["peer"]), "lanes": [str(lane) for lane in lanes], **client}


def _space(found: dict[str, Any]) -> dict[str, object]:
    names = SpaceStats.__annotations__.keys() - {"name"}
    return {"name": str(found["name"]), **{name: _number(found[name]) for name in names}}


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


class Counted(TypedDict, total=False):
    """The counters of `StoreStats` that `Counters.add` takes."""

    direct: int
    decode: int
    decode_in_place: int
    encode: int
    fallback: int
    mapped: int
    bytes_read: int
    bytes_written: int
    staged_bytes: int


class Counters:
    """The counters of one store; every thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, int] = dict.fromkeys(Counted.__annotations__, 0)
        self._servers: dict[str, MemberStats] = {}

    def add(self, **counts: Unpack[Counted]) -> None:
        """Add to counters. Call it once for a batch, not for each chunk."""
        with self._lock:
            for name, count in cast("dict[str, int]", counts).items():
                self._counted[name] += count

    def add_server(self, server: str, *, requests: int = 0, failovers: int = 0) -> None:
        """Add to the counters of one of several servers."""
        with self._lock:
            member = self._servers.setdefault(server, MemberStats(requests=0, failovers=0))
            member["requests"] += requests
            member["failovers"] += failovers

    def snapshot(self, lanes: list[str], *, integrity: bool = False) -> StoreStats:
        """Return all counters as they are at one moment."""
        with self._lock:
            servers = {server: member.copy() for server, member in self._servers.items()}
            connections = {"lanes": lanes, "integrity": integrity, "servers": servers}
            return cast(StoreStats, {**self._counted, **connections})
