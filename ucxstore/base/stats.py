"""The counters of stores and servers, as they are shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NoReturn, cast

from ucxstore.base.foreign import Fields
from ucxstore.base.showing import (
    folded_columns,
    html_block,
    html_table,
    terminal_width,
    text_columns,
    value_text,
)

_MAX_STATS_BYTES = 8 << 20  # far more than a server tells


class Table(dict[str, Any]):
    """Counters: a frozen dataclass, which prints as a table, and is a mapping of its fields.

    It is a dictionary, so that ``json.dumps``, ``dict``, and comparisons with dictionaries take it.
    Nothing can be put into it. Lists of such tables, and dictionaries of them, are shown below it.
    """

    # Fields that are not shown in tables, and those that are shown first.
    _hidden: ClassVar[frozenset[str]] = frozenset()
    _leading: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in self._names():
            super().__setitem__(field, getattr(self, field))

    @classmethod
    def _names(cls) -> list[str]:
        return [field.name for field in fields(cast(Any, cls))]

    def _split(self) -> tuple[list[tuple[str, str]], list[tuple[str, list[str], list[list[str]]]]]:
        """Return the rows of single values, and each table below them: name, header, rows."""
        rows: list[tuple[str, str]] = []
        below: list[tuple[str, list[str], list[list[str]]]] = []
        for name in self._shown():
            value = self[name]
            if isinstance(value, Mapping):
                named = [(str(key), one) for key, one in value.items()]
            elif isinstance(value, list):
                named = [("", one) for one in value]
            else:
                named = []
            tables = [(key, one) for key, one in named if isinstance(one, Table)]
            if not tables:
                rows.append((name, value_text(name, value)))
                continue
            columns = tables[0][1]._shown()
            header = [name, *columns] if isinstance(value, Mapping) else columns
            below.append((name, header, [one._cells(key, header) for key, one in tables]))
        return rows, below

    def _shown(self) -> list[str]:
        names = dict.fromkeys((*self._leading, *self))
        return [name for name in names if name not in self._hidden]

    def _cells(self, key: str, header: Sequence[str]) -> list[str]:
        cells = [value_text(name, self[name]) for name in self._shown()]
        return [value_text("", key), *cells] if len(header) > len(cells) else cells

    def __str__(self) -> str:
        width = terminal_width()
        rows, below = self._split()
        lines = _named_values(rows, width)
        for name, header, cells in below:
            lines += ["", f"{name}:", *folded_columns([header, *cells], width)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{type(self).__name__}({inside})"

    def _repr_html_(self) -> str:
        return html_block(type(self).__name__, "", self.html())

    def html(self) -> str:
        """Return its tables as HTML."""
        rows, below = self._split()
        parts = [html_table(rows, right=[1])]
        parts += [html_table(cells, header) for _, header, cells in below]
        return "".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_of, (type(self), dict(self))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: cannot be changed")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse


def _named_values(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Align values at their right, as far as they fit; longer ones go on below."""
    lines = text_columns(rows, right=[1])
    if max(map(len, lines), default=0) <= width:
        return lines
    return text_columns(rows, width=width)


def _table_of(cls: type[Table], values: dict[str, Any]) -> Table:
    return cls(**values)


@dataclass(frozen=True, eq=False, repr=False)
class MemberStats(Table):
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


@dataclass(frozen=True, eq=False, repr=False)
class ChunkStats(Table):
    """How chunks moved between arrays and stores, and their bytes.

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


@dataclass(frozen=True, eq=False, repr=False)
class StoreStats(ChunkStats):
    """The counters of a store and of its copies by ``with_read_only``, since it was made.

    Attributes
    ----------
    direct, decode, decode_in_place, encode, fallback, mapped : int
        Ways of chunks, as in `ChunkStats`.
    bytes_read, bytes_written, staged_bytes : int
        Likewise, the bytes of values.
    lanes : list of str
        The transports that UCX chose for the connections, such as ``"tcp/eth0"``, each once;
        ``"local"`` for a connection that does without UCX. Empty without a connection.
    integrity : bool
        Whether what goes over every open connection has checksums; ``False`` without a connection.
    encrypted : bool
        Whether what goes over every open connection is encrypted; ``False`` without a connection,
        and where one is ``"local"``.
    servers : dict of MemberStats
        For each server by its ``host:port``; empty for a store with one server.
    """

    lanes: list[str]
    integrity: bool
    encrypted: bool
    servers: dict[str, MemberStats]


def total_of(many: Iterable[StoreStats]) -> StoreStats:
    """Return the counters of several stores together, with all their lanes and servers."""
    stats = list(many)
    counted: dict[str, Any] = {
        name: sum(one[name] for one in stats) for name in ChunkStats._names()
    }
    connected = [one for one in stats if one.lanes]
    servers: dict[str, MemberStats] = {}
    for one in stats:
        for server, member in one.servers.items():
            last = servers.get(server, MemberStats(0, 0))
            servers[server] = MemberStats(
                last.requests + member.requests, last.failovers + member.failovers
            )
    return StoreStats(
        **counted,
        lanes=list(dict.fromkeys(lane for one in stats for lane in one.lanes)),
        integrity=bool(connected) and all(one.integrity for one in connected),
        encrypted=bool(connected) and all(one.encrypted for one in connected),
        servers=servers,
    )


@dataclass(frozen=True, eq=False, repr=False)
class ClientStats(Table):
    """A server's counters for one client that is connected.

    Attributes
    ----------
    id : int
        The number of its session, by which ``ucxstore kick`` ends it.
    peer : str
        The address that it connected from: ``"127.0.0.1:41234"``.
    origin : str
        Where it is from: a host, or a user of the server's host.
    lanes : list of str
        The transports that UCX chose for the connection; ``["local"]`` if it does without UCX.
    encrypted : bool
        Whether what goes over the connection is encrypted.
    gets, sets, bytes_sent, bytes_received : int
        As in `ServerStats`.
    bytes_in_flight, gets_waiting : int
        Bytes that are on their way to the client now, and values that wait for these.
    gets_seen, bytes_seen : int
        As in `ServerStats`.
    age_s, silent_s : float
        Seconds since it has connected; and since it has moved something, as of when somebody
        asked for the list of sessions.
    worked_s : float
        Seconds that the server has worked for it.
    held : dict of str to int
        What the server holds for it, by kind, but for what is 0: see docs/requests.md.
    """

    # `ucxstore sessions` shows them.
    _hidden = frozenset({"id", "encrypted", "age_s", "silent_s"})

    id: int
    peer: str
    origin: str
    lanes: list[str]
    encrypted: bool
    gets: int
    sets: int
    bytes_sent: int
    bytes_received: int
    bytes_in_flight: int
    gets_waiting: int
    gets_seen: int
    bytes_seen: int
    age_s: float
    silent_s: float
    worked_s: float
    held: dict[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class OriginStats(Table):
    """What a server holds for all clients of one origin, and has worked for them.

    Attributes
    ----------
    origin : str
        A host, or a user of the server's host.
    sessions : int
        Its clients that are connected.
    worked_s : float
        Seconds that the server has worked for them.
    held : dict of str to int
        What it holds for them, as in `ClientStats`.
    """

    origin: str
    sessions: int
    worked_s: float
    held: dict[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class SpaceStats(Table):
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


@dataclass(frozen=True, eq=False, repr=False)
class ServerStats(Table):
    """The counters of a server since it was started.

    Attributes
    ----------
    uptime_s : float
        Seconds since it was started.
    gets, gets_missing, sets : int
        Values that were asked for, those of them that were not there, and values that were stored.
    bytes_sent, bytes_received : int
        Bytes of replies that were sent, but for those with these counters, and of values that were
        stored.
    bytes_in_flight : int
        Bytes that are on their way to clients now.
    sessions, sessions_lost, sessions_ended : int
        Clients that have connected, those that were lost in the middle of something, and those that
        were asked to go for others, as they were idle, or that an operator has ended.
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
    origins : list of OriginStats
        Where clients are from, or the first 512; the one that holds most comes first.
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
        Those of all values that clients read right now, or hold in views and mapped results.
    adopted, adopted_bytes : int
        Those of `arenas` that clients have made, each with one value that was not copied, and the
        bytes of these.
    value_count, value_bytes : int
        Values of a server of memory, and their bytes; 0 for other servers, as the next two.
    memory_used, memory_limit : int
        Memory that these take, and scratch spaces, with all that they need besides; and how much
        they may take.
    evicted, evicted_bytes : int
        Values that were given up for others, by a cache or a full memory (``when_full="evict"``).
    evicted_keys : int
        Keys of such values of memory that were not set or deleted since: reads of them fail.
    spilled, spilled_bytes : int
        Those of `value_count` and `value_bytes` that lie in files (``when_full="spill:..."``).
    cache_hits, cache_misses, cached_bytes : int
        Values that were in the cache in front of a source when they were wanted, and those that
        were not; and what it holds.
    failed : int
        Requests that were answered with a failure. A missing key is none.
    abandoned : int
        Requests that clients have given up, as they were cancelled or took too long.
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
    origins: list[OriginStats]
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
    value_count: int
    value_bytes: int
    memory_used: int
    memory_limit: int
    evicted: int
    evicted_bytes: int
    evicted_keys: int
    spilled: int
    spilled_bytes: int
    cache_hits: int
    cache_misses: int
    cached_bytes: int
    failed: int
    abandoned: int


@dataclass(frozen=True, eq=False, repr=False)
class ServerCounters(Table):
    """What `Server.stats` returns: the counters of a server of this process.

    Attributes
    ----------
    gets, gets_missing, gets_seen, sets : int
        As in `ServerStats`, and so are all others up to `spilled_bytes`.
    bytes_sent, bytes_received, bytes_seen, bytes_in_flight : int
    sessions, sessions_lost, sessions_ended, messages_refused : int
    failed, abandoned : int
    arena_bytes_held : int
    value_count, value_bytes, memory_used, memory_limit : int
    evicted, evicted_bytes, evicted_keys : int
    spilled, spilled_bytes : int
    gets_waiting : int
        Values that were asked for, and wait to be sent.
    turned_away, probes : int
        Connections whose handshake failed, and those that were closed without a byte.
    scratch_bytes : int
        Bytes of values in scratch spaces.
    cache_hits, cache_misses, cached_bytes : int
        As in `ServerStats`. These and the following are 0 where there is no source.
    requests_saved : int
        Misses that waited for a request that was under way.
    writing_bytes : int
        Bytes of values on their way to the source.
    source_failed, source_timeouts : int
        Requests to the source that failed, and those that it did not answer in time.
    disk_hits, disk_bytes, disk_failures : int
        Values that were in the cache directory, the bytes that it takes, and its uses that failed.
    """

    gets: int
    gets_missing: int
    gets_seen: int
    sets: int
    bytes_sent: int
    bytes_received: int
    bytes_seen: int
    bytes_in_flight: int
    sessions: int
    sessions_lost: int
    sessions_ended: int
    messages_refused: int
    failed: int
    abandoned: int
    arena_bytes_held: int
    value_count: int
    value_bytes: int
    memory_used: int
    memory_limit: int
    evicted: int
    evicted_bytes: int
    evicted_keys: int
    spilled: int
    spilled_bytes: int
    gets_waiting: int
    turned_away: int
    probes: int
    scratch_bytes: int
    cache_hits: int
    cache_misses: int
    cached_bytes: int
    requests_saved: int
    writing_bytes: int
    source_failed: int
    source_timeouts: int
    disk_hits: int
    disk_bytes: int
    disk_failures: int


def parse_server_stats(text: bytes) -> ServerStats:
    """Parse and check a server's counters; those that newer servers add are left out.

    Raises
    ------
    ProtocolError
        If something is missing or of another type.
    """
    found = Fields.read(text, "the counters of a server", _MAX_STATS_BYTES)
    return ServerStats(
        **_numbers(found, ServerStats),
        clients=[_client(one) for one in found.each("clients")],
        spaces=[_space(one) for one in found.each("spaces")],
        origins=[_origin(one) for one in found.each("origins")],
    )


def parse_sessions(found: Fields) -> tuple[list[ClientStats], bool]:
    """Check a page of a server's sessions; return it, and whether there are more.

    Raises
    ------
    ProtocolError
        If something is missing or of another type.
    """
    return [_client(one) for one in found.each("sessions")], found.flag("more")


def _client(found: Fields) -> ClientStats:
    return ClientStats(
        peer=found.text("peer"),
        origin=found.text("origin"),
        lanes=found.texts("lanes"),
        encrypted=found.flag("encrypted"),
        held=found.integers("held"),
        **_numbers(found, ClientStats),
    )


def _origin(found: Fields) -> OriginStats:
    return OriginStats(
        origin=found.text("origin"), held=found.integers("held"), **_numbers(found, OriginStats)
    )


def _space(found: Fields) -> SpaceStats:
    return SpaceStats(name=found.text("name"), **_numbers(found, SpaceStats))


def _numbers(found: Fields, of: type[Table]) -> dict[str, Any]:
    others = {"clients", "spaces", "origins", "peer", "lanes", "name", "origin", "held"}
    others.add("encrypted")
    return {name: found.number(name) for name in of._names() if name not in others}
