"""What the servers of a deployment, and the stores in its workers, have counted."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ucxstore.base import process
from ucxstore.base.counters import Totals
from ucxstore.base.stats import ChunkStats, parse_server_stats

# Two workers in one process have the same stores: what these count is added up once.
_process = secrets.token_hex(8)


def _draw_anew() -> None:
    global _process
    _process = secrets.token_hex(8)


process.in_child(_draw_anew)

# The bytes of clients that have gone, over whichever lanes.
GONE = "clients that have gone"

_LOCAL = "local"

_MEMORY = ("memory_bytes", "memory_limit_bytes")

_OF_SERVER = ("connected", "gets", "sets", "bytes_sent", "bytes_received", "gets_seen")


@dataclass(frozen=True, eq=False, repr=False)
class WorkStats(ChunkStats):
    """The counters that a worker and a whole deployment have in common.

    Attributes
    ----------
    direct, decoded, decode, decode_in_place, encode, fallback, mapped : int
        Ways of chunks, as in `StoreStats`, of all stores that the workers' processes have used.
    bytes_read, bytes_written, staged_bytes : int
        Likewise, the bytes of values.
    memory_bytes, memory_limit_bytes : int
        What the values of the servers take of the workers' memory, and may take.
    connected : int
        Clients that are connected now.
    gets, sets, bytes_sent, bytes_received, gets_seen, bytes_seen : int
        As in `ServerStats`.
    lane_bytes : dict of int
        Bytes that were sent, received and seen, by the lanes of the client's connection.
    """

    memory_bytes: int
    memory_limit_bytes: int
    connected: int
    gets: int
    sets: int
    bytes_sent: int
    bytes_received: int
    gets_seen: int
    bytes_seen: int
    lane_bytes: dict[str, int]


_SUMMED = [field.name for field in fields(WorkStats) if field.name != "lane_bytes"]


@dataclass(frozen=True, eq=False, repr=False)
class WorkerStats(WorkStats):
    """The counters of one worker: of its server, and of the stores that its tasks use.

    Workers in threads of one process have the counters of these stores in common. Of workers that
    share the server of their host, one has the counters of that.

    Attributes
    ----------
    server : str
        The server's ``host:port``.
    process : str
        Tells processes apart.
    """

    _hidden: ClassVar[frozenset[str]] = frozenset({"process"})
    _leading: ClassVar[tuple[str, ...]] = ("server", *_MEMORY)

    server: str
    process: str

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> "WorkerStats":
        """Make them of what a worker has sent; raise where that is something else."""
        lanes = {str(lane): int(nbytes) for lane, nbytes in figures["lane_bytes"].items()}
        counted: dict[str, Any] = {name: int(figures[name]) for name in _SUMMED}
        return cls(
            server=str(figures["server"]),
            lane_bytes=lanes,
            process=str(figures["process"]),
            **counted,
        )


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentStats(WorkStats):
    """The counters of a deployment: sums over its workers, and those of each worker.

    Attributes
    ----------
    servers : int
        Servers that run now.
    workers : dict of WorkerStats
        For each worker by its address. The other attributes are the sums of those in it.
    """

    _leading: ClassVar[tuple[str, ...]] = ("servers", *_MEMORY)

    servers: int
    workers: dict[str, WorkerStats]

    @classmethod
    def of(cls, workers: Mapping[str, WorkerStats]) -> "DeploymentStats":
        """Add up what the workers have counted."""
        # What stores have counted is that of the process.
        processes = {one.process: one for one in workers.values()}.values()
        lanes: dict[str, int] = {}
        for one in workers.values():
            for lane, nbytes in one.lane_bytes.items():
                lanes[lane] = lanes.get(lane, 0) + nbytes
        of_stores = {field.name for field in fields(ChunkStats)}
        counted: dict[str, Any] = {
            name: sum(one[name] for one in (processes if name in of_stores else workers.values()))
            for name in _SUMMED
        }
        return cls(
            servers=len({one.server for one in workers.values()}),
            lane_bytes=dict(sorted(lanes.items())),
            workers=dict(sorted(workers.items())),
            **counted,
        )


def figures_of(
    server: str, memory: int, limit: int, stats_json: bytes, totals: Totals
) -> dict[str, Any]:
    """Return the counters of a worker as plain values, which go to the scheduler and to clients."""
    counted = parse_server_stats(stats_json)
    lanes: dict[str, int] = {}
    for client in counted["clients"]:
        lane = " + ".join(client["lanes"]) or GONE
        lanes[lane] = lanes.get(lane, 0) + client["bytes_sent"] + client["bytes_received"]
    gone = counted["bytes_sent"] + counted["bytes_received"] - sum(lanes.values())
    lanes[GONE] = lanes.get(GONE, 0) + max(gone, 0)
    lanes[_LOCAL] = lanes.get(_LOCAL, 0) + counted["bytes_seen"]
    return {
        "server": server,
        "memory_bytes": memory,
        "memory_limit_bytes": limit,
        **{name: counted[name] for name in (*_OF_SERVER, "bytes_seen")},
        "lane_bytes": {lane: nbytes for lane, nbytes in lanes.items() if nbytes},
        **totals.read(),
        "process": _process,
    }


def figures_without(server: str, totals: Totals) -> dict[str, Any]:
    """Do as `figures_of` in a worker that shares a server, and leaves its counters to another."""
    return {
        "server": server,
        **dict.fromkeys((*_MEMORY, *_OF_SERVER, "bytes_seen"), 0),
        "lane_bytes": {},
        **totals.read(),
        "process": _process,
    }
