"""The counters of stores and servers, as they are shown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, cast

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

_FIGURE = "ucxstore"  # in the metadata of a field


class StatsTable(dict[str, Any]):
    """Counters: a frozen dataclass, which prints as a table, and is a mapping of its fields.

    It is a dictionary, so that ``json.dumps``, ``dict``, and comparisons with dictionaries take it.
    Nothing can be put into it. Lists of such tables, and dictionaries of them, are shown below it.
    """

    # Fields that are not shown in tables, and those that are shown first.
    _hidden: ClassVar[frozenset[str]] = frozenset()
    _leading: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in names_of(type(self)):
            super().__setitem__(name, getattr(self, name))

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
            tables = [(key, one) for key, one in named if isinstance(one, StatsTable)]
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


def names_of(table: type[StatsTable]) -> list[str]:
    """Return the names of the counters in a table of this kind."""
    return [field.name for field in fields(cast(Any, table))]


def _named_values(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Align values at their right, as far as they fit; longer ones go on below."""
    lines = text_columns(rows, right=[1])
    if max(map(len, lines), default=0) <= width:
        return lines
    return text_columns(rows, width=width)


def _table_of(cls: type[StatsTable], values: dict[str, Any]) -> StatsTable:
    return cls(**values)


@dataclass(frozen=True, eq=False, repr=False)
class MemberStats(StatsTable):
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
class ChunkStats(StatsTable):
    """How chunks moved between arrays and stores, and their bytes.

    Attributes
    ----------
    direct : int
        Chunks, or parts of chunks, that moved straight between the user's array and the store.
    decoded : int
        Encoded chunks, or parts of them, that were read as a server had decoded them. If they were
        mapped, they are in `mapped` instead.
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
    decoded: int
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
    direct, decoded, decode, decode_in_place, encode, fallback, mapped : int
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
        name: sum(one[name] for one in stats) for name in names_of(ChunkStats)
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
class ClientStats(StatsTable):
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
class OriginStats(StatsTable):
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
class SpaceStats(StatsTable):
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


@dataclass(frozen=True, slots=True)
class Figure:
    """What a field of `ServerStats` is: its row in all tables and pages of counters.

    Attributes
    ----------
    name : str
        Of the field, on the wire, too.
    kind : {"counter", "gauge"}
        Whether it only grows.
    unit : {"", "bytes", "seconds"}
    help : str
    metric : str
        Its name for Prometheus, without ``ucxstore_`` and ``_total``; empty if it has none.
    of_source : bool
        Whether `Carrier` counts it, or what is below it: 0 without a source.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: Literal["", "bytes", "seconds"]
    help: str
    metric: str
    of_source: bool

    @property
    def text(self) -> str:
        """Its meaning, with the unit."""
        return f"{self.help} In {self.unit}." if self.unit else self.help


def _figure(
    kind: str, help: str, metric: str | None = None, *, unit: str = "", of_source: bool = False
) -> Any:
    about = {"kind": kind, "help": help, "metric": metric, "unit": unit, "of_source": of_source}
    return field(metadata={_FIGURE: about})


_counter = partial(_figure, "counter")
_gauge = partial(_figure, "gauge")


def figures() -> Iterator[Figure]:
    """Yield the numbers that a server counts, in the order of `ServerStats`."""
    for each in fields(ServerStats):
        if _FIGURE in each.metadata:
            about = {**each.metadata[_FIGURE], "name": each.name}
            if about["metric"] is None:
                about["metric"] = each.name
            yield Figure(**about)


@dataclass(frozen=True, eq=False, repr=False)
class ServerStats(StatsTable):
    """The counters of a server since it was started, as `Server.stats` and its clients have them.

    Each field that is a number says all about itself here. `figures` reads that: for Prometheus,
    for docs/howto/monitor.md, for ``help(ServerStats)``, and to parse what a server sends.
    """

    # Whoever asks is no counter of the server's.
    _hidden = frozenset({"asked_by"})

    asked_by: int
    clients: list[ClientStats]
    origins: list[OriginStats]
    spaces: list[SpaceStats]
    uptime_s: float = _gauge("Since the server was started.", "uptime_seconds", unit="seconds")
    gets: int = _counter("Values that were requested.")
    gets_missing: int = _counter(
        "Those of them that were not there; in Zarr that is not a failure."
    )
    sets: int = _counter("Values that were stored.")
    bytes_sent: int = _counter(
        "Replies that were sent, but for those with these counters.", "sent_bytes", unit="bytes"
    )
    bytes_received: int = _counter("Values that were stored.", "received_bytes", unit="bytes")
    bytes_in_flight: int = _gauge(
        "What is on its way to clients now.", "in_flight_bytes", unit="bytes"
    )
    gets_waiting: int = _gauge("Requested values that wait to be sent.")
    gets_seen: int = _counter(
        "Values that clients of the server's host have read themselves, in shared memory or in "
        "files, as they say. They are not in `gets`."
    )
    bytes_seen: int = _counter(
        "Those values. They are not in `bytes_sent`.", "seen_bytes", unit="bytes"
    )
    failed: int = _counter(
        "Requests that were answered with a failure. For Prometheus they have a label, the reason.",
        "",
    )
    abandoned: int = _counter("Requests that clients have given up: time-outs and cancellations.")
    sessions: int = _counter("Clients that have connected.")
    sessions_lost: int = _counter("Clients that were lost in the middle of a request.")
    sessions_ended: int = _counter(
        "Clients that were disconnected: idle ones to make room for others (`--max-sessions`), and "
        "those that an operator has ended (`ucxstore kick`)."
    )
    connected: int = _gauge("Clients that are connected now.")
    turned_away: int = _counter("Connections whose handshake failed: a wrong secret, for instance.")
    probes: int = _counter(
        "Connections that asked for nothing: health checks open the port and close it, and clients "
        "of several servers look at what each of them is."
    )
    messages_refused: int = _counter("Messages that broke the protocol or belonged to no session.")
    value_count: int = _gauge("Values of a server of memory; 0 for other servers.", "values")
    value_bytes: int = _gauge("Those values.", unit="bytes")
    memory_used: int = _gauge(
        "Memory that values take, and scratch spaces, with all that they need besides.",
        "memory_used_bytes",
        unit="bytes",
    )
    memory_limit: int = _gauge(
        "Memory that these may take; 0 if it is unbounded.", "memory_limit_bytes", unit="bytes"
    )
    evicted: int = _counter(
        'Values that were given up for others, by a cache or a full memory (`when_full="evict"`).'
    )
    evicted_bytes: int = _counter("Those values.", unit="bytes")
    evicted_keys: int = _gauge(
        "Keys of such values of memory that were not set or deleted since: reads of them fail."
    )
    spilled: int = _gauge(
        'Values of memory that lie in files (`when_full="spill:..."`).', "spilled_values"
    )
    spilled_bytes: int = _gauge("Those values.", unit="bytes")
    arenas: int = _gauge("Pieces of the memory that clients of the host see; 0 without any.")
    arena_bytes: int = _gauge("What these may take.", unit="bytes")
    arena_bytes_used: int = _gauge("What values take of them.", "arena_used_bytes", unit="bytes")
    arena_bytes_slack: int = _gauge(
        "What is kept in them for small values.", "arena_slack_bytes", unit="bytes"
    )
    arena_bytes_waiting: int = _gauge(
        "Values that were replaced or removed, and that clients still read.",
        "arena_waiting_bytes",
        unit="bytes",
    )
    arena_bytes_held: int = _gauge(
        "All values that clients of the host read now, or hold in views and mapped results.",
        "held_bytes",
        unit="bytes",
    )
    adopted: int = _gauge("Arenas that clients have made, each with a value that was not copied.")
    adopted_bytes: int = _gauge("Those values.", unit="bytes")
    scratch_spaces: int = _gauge("Scratch spaces that there are now.")
    scratch_bytes: int = _gauge("Values in these.", unit="bytes")
    cache_hits: int = _counter(
        "Values that were in the cache in front of a source when they were requested; 0 without a "
        "source, as the four that follow."
    )
    cache_misses: int = _counter("Values that the source was asked for.")
    requests_saved: int = _counter("Misses that waited for a request under way.")
    cached_bytes: int = _gauge("What the cache takes.", unit="bytes")
    writing_bytes: int = _gauge("Values on their way to the source.", unit="bytes")
    decoded: int = _counter(
        "Chunks that were decoded for clients; 0 without `--decoded`, as all that follow.",
        "decoded_chunks",
    )
    decoded_hits: int = _counter("Requests for chunks that had been decoded before.")
    decodes_saved: int = _counter("Those for chunks that were just being decoded.")
    decodes_failed: int = _counter("Chunks that were left to clients to decode.")
    decoded_bytes: int = _gauge("What decoded chunks take.", unit="bytes")
    decoded_limit: int = _gauge("What they may take.", "decoded_limit_bytes", unit="bytes")
    decoded_evicted: int = _counter("Those that were given up for others.")
    source_failed: int = _counter(
        "Requests to the source that failed.", "source_failures", of_source=True
    )
    source_timeouts: int = _counter("Those that it did not answer in time.", of_source=True)
    disk_hits: int = _counter("Values that were in the cache directory.", of_source=True)
    disk_bytes: int = _gauge("What the cache directory takes.", unit="bytes", of_source=True)
    disk_failures: int = _counter("Uses of the cache directory that failed.", of_source=True)


def _attributes() -> Iterator[str]:
    yield "\n    Attributes\n    ----------"
    yield "    asked_by : int\n        The session that has asked; 0 in `Server.stats`."
    for each in figures():
        yield f"    {each.name} : {'float' if each.unit == 'seconds' else 'int'}"
        yield f"        {each.text}"
    yield "    clients, origins, spaces : list"
    yield "        `ClientStats`, `OriginStats` and `SpaceStats`: all, or the first 512 of each."


ServerStats.__doc__ = "\n".join([str(ServerStats.__doc__).rstrip(), *_attributes()])


def parse_server_stats(text: bytes) -> ServerStats:
    """Parse and check a server's counters; those that newer servers add are left out.

    Raises
    ------
    ProtocolError
        If something is missing or of another type.
    """
    found = Fields.read(text, "the counters of a server", _MAX_STATS_BYTES)
    numbers: dict[str, Any] = {each.name: found.number(each.name) for each in figures()}
    return ServerStats(
        asked_by=found.integer("asked_by"),
        **numbers,
        clients=_read_all(ClientStats, found.each("clients")),
        spaces=_read_all(SpaceStats, found.each("spaces")),
        origins=_read_all(OriginStats, found.each("origins")),
    )


def parse_sessions(found: Fields) -> tuple[list[ClientStats], bool]:
    """Check a page of a server's sessions; return it, and whether there are more.

    Raises
    ------
    ProtocolError
        If something is missing or of another type.
    """
    return _read_all(ClientStats, found.each("sessions")), found.flag("more")


# By the type of a counter, how it is read.
_READ: dict[Any, Callable[[Fields, str], Any]] = {
    int: Fields.number,
    float: Fields.number,
    bool: Fields.flag,
    str: Fields.text,
    list[str]: Fields.texts,
    dict[str, int]: Fields.integers,
}


def _read_all[T: StatsTable](of: type[T], many: Iterable[Fields]) -> list[T]:
    readers = {each.name: _READ[each.type] for each in fields(cast(Any, of))}
    return [of(**{name: read(one, name) for name, read in readers.items()}) for one in many]
