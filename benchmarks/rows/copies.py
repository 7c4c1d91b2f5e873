"""Memory of a client beyond the user's array, and of its connection, by memray."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.children import run
from benchmarks.data import Stored, put_into_server, random_values
from benchmarks.result import Line, Row, below, figure
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import FRESH, RECYCLED
from ucxstore import Server

_OF_ARRAY = below(0.05)
_POOLS = below(16)  # MiB

_MIB = 1 << 20


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    chunks = {"one chunk": scale.shape, "strided": GRID_CHUNK}
    with Server.spawn("memory://") as server:
        locations = {}
        for name, shape in chunks.items():
            locations[name] = f"{server.address}/{name.split()[0]}"
            put_into_server(locations[name], values, Stored(shape))

        def extra(location: str, write: bool, ndbuffer: str) -> Callable[[], float]:
            return lambda: run("copies", address=location, write=write, ndbuffer=ndbuffer)

        ways: dict[str, Callable[[], float]] = {}
        for name, location in locations.items():
            ways[f"extra copies, read, {name}, fresh"] = extra(location, False, FRESH)
            ways[f"extra copies, read, {name}, recycled"] = extra(location, False, RECYCLED)
            ways[f"extra copies, write, {name}"] = extra(location, True, FRESH)
        lines = [
            figure(name, [way() for _ in range(scale.memory_repeats)], "arrays", _OF_ARRAY)
            for name, way in ways.items()
        ]
        lines += _connection(locations["one chunk"], scale)
    return Row(
        name="copies",
        title=f"memory of a client, {scale.nbytes / 1e6:g} MB raw, shared memory",
        lines=lines,
        notes=["extra copies: memray's peak of the first transfer, connected before it"],
    )


def _connection(address: str, scale: Scale) -> list[Line]:
    """Measure the memory that loading UCX and connecting needs."""
    task = {"address": address, "key": "c/0/0", "nbytes": scale.nbytes}
    tracked, plain = (
        [run("connection", **task, tracked=tracked) for _ in range(scale.memory_repeats)]
        for tracked in (True, False)
    )

    def line(what: str, found: list[dict[str, int]], name: str, **options: object) -> Line:
        values = [one[name] / _MIB for one in found]
        return figure(what, values, "MiB", **options)  # type: ignore[arg-type]

    return [
        line("loading UCX and connecting, memray", tracked, "peak", target=_POOLS),
        line("loading UCX and connecting, RSS without files", plain, "connected", target=_POOLS),
        line("the same, after a first large read", plain, "after", target=_POOLS, counts=False),
        line("loading UCX and connecting, RSS of libraries", plain, "mapped"),
    ]
