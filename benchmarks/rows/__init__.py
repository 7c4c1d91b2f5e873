"""The measurements, by name, in the order in which they run."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.result import Row
from benchmarks.rows import (
    compressed,
    compressed_write,
    copies,
    decode_memory,
    directory,
    grid,
    group,
    idle,
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
    "tcp": tcp.measure,
    "grid": grid.measure,
    "compressed": compressed.measure,
    "selections": selections.measure,
    "shards": shards.measure,
    "group": group.measure,
    "write": write.measure,
    "directory": directory.measure,
    "compressed-write": compressed_write.measure,
    "rechunk": rechunk.measure,
    "copies": copies.measure,
    "decode-memory": decode_memory.measure,
    "server-memory": server_memory.measure,
    "round-trip": round_trip.measure,
    "idle": idle.measure,
    "small-chunks": small_chunks.measure,
    "shared-cache": shared_cache.measure,
}
