"""Memory of a client beyond the user's array, and of its connection, by memray."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.children import run
from benchmarks.data import Stored, Values, put_into_server, random_values
from benchmarks.result import Line, Row, below, figure
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import FRESH, RECYCLED
from benchmarks.ways import LOCAL, SHARED_MEMORY, Way

_OF_ARRAY = below(0.05)
_POOLS = below(16)  # MiB

_MIB = 1 << 20


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    lines = [line for way in (LOCAL, SHARED_MEMORY) for line in _measure(way, values, scale)]
    return Row(
        name="copies",
        title=f"memory of a client, {scale.nbytes / 1e6:g} MB raw",
        lines=lines,
        notes=[
            "extra copies: memray's peak of the first transfer, connected before it",
            "what a client sees of a server's memory is not its own: it is not in these figures",
        ],
    )


def _measure(way: Way, values: Values, scale: Scale) -> list[Line]:
    chunks = {"one chunk": scale.shape, "strided": GRID_CHUNK}
    with way.serve("memory://") as server:
        locations = {}
        for name, shape in chunks.items():
            locations[name] = f"{server.address}/{name.split()[0]}"
            put_into_server(locations[name], values, Stored(shape), **way.of_client)

        def extra(location: str, write: bool, ndbuffer: str) -> Callable[[], float]:
            task = {"address": location, "client": way.of_client}
            return lambda: run("copies", **task, write=write, ndbuffer=ndbuffer)

        ways: dict[str, Callable[[], float]] = {}
        for name, location in locations.items():
            ways[f"extra copies, read, {name}, fresh"] = extra(location, False, FRESH)
            ways[f"extra copies, read, {name}, recycled"] = extra(location, False, RECYCLED)
            ways[f"extra copies, write, {name}"] = extra(location, True, FRESH)
        lines = [
            figure(
                f"{way.name}: {name}",
                [one() for _ in range(scale.memory_repeats)],
                "arrays",
                _OF_ARRAY,
            )
            for name, one in ways.items()
        ]
        return lines + _connection(way, locations["one chunk"], scale)


def _connection(way: Way, address: str, scale: Scale) -> list[Line]:
    """Measure the memory that connecting needs, and loading UCX where it is needed."""
    task = {"address": address, "client": way.of_client, "key": "c/0/0", "nbytes": scale.nbytes}
    tracked, plain = (
        [run("connection", **task, tracked=tracked) for _ in range(scale.memory_repeats)]
        for tracked in (True, False)
    )
    held = "RSS that nobody shares" if way.is_local else "RSS without files"
    what = f"{way.name}: {'connecting' if way.is_local else 'loading UCX and connecting'}"

    def line(what: str, found: list[dict[str, int]], name: str, **options: object) -> Line:
        values = [one[name] / _MIB for one in found]
        return figure(what, values, "MiB", **options)  # type: ignore[arg-type]

    return [
        line(f"{what}, memray", tracked, "peak", target=_POOLS),
        line(f"{what}, {held}", plain, "connected", target=_POOLS),
        line("the same, after a first large read", plain, "after", target=_POOLS, counts=False),
        line(f"{what}, RSS of libraries", plain, "mapped"),
    ]
