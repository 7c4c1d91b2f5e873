"""The measurements, by name, in the order in which they run."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.result import Row
from benchmarks.rows import (
    compressed,
    compressed_write,
    connects,
    copies,
    decode_memory,
    directory,
    durability,
    first_read,
    four_processes,
    grid,
    group,
    handed_out,
    held,
    idle,
    integrity,
    many_clients,
    one_chunk,
    rechunk,
    round_trip,
    selections,
    server_memory,
    shards,
    shared_cache,
    small_chunks,
    tcp,
    write,
)
from benchmarks.scale import Scale

ROWS: dict[str, Callable[[Scale, Path], Row]] = {
    "one-chunk": one_chunk.measure,
    "handed-out": handed_out.measure,
    "tcp": tcp.measure,
    "integrity": integrity.measure,
    "grid": grid.measure,
    "compressed": compressed.measure,
    "selections": selections.measure,
    "shards": shards.measure,
    "group": group.measure,
    "write": write.measure,
    "directory": directory.measure,
    "durability": durability.measure,
    "compressed-write": compressed_write.measure,
    "rechunk": rechunk.measure,
    "copies": copies.measure,
    "decode-memory": decode_memory.measure,
    "server-memory": server_memory.measure,
    "round-trip": round_trip.measure,
    "held": held.measure,
    "many-clients": many_clients.measure,
    "connects": connects.measure,
    "first-read": first_read.measure,
    "four-processes": four_processes.measure,
    "idle": idle.measure,
    "small-chunks": small_chunks.measure,
    "shared-cache": shared_cache.measure,
}
