"""Many processes that connect to one server at the same moment."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from zarr.core.buffer import cpu

from benchmarks.result import Line, Row, below, figure
from benchmarks.scale import Scale
from benchmarks.together import group
from benchmarks.ways import LOCAL, WAYS, Way

_ALL = below(5)  # seconds
_FAILED = below(1)  # processes

_KEY = "small"


def measure(scale: Scale, folder: Path) -> Row:
    lines: list[Line] = []
    errors: Counter[str] = Counter()
    for way in WAYS:
        outcomes = [_connect(way, scale.connects) for _ in range(scale.connect_rounds)]
        lines += _lines(way, outcomes)
        errors.update(
            f"{way.name}: {one}" for found in outcomes for one in found if isinstance(one, str)
        )
    return Row(
        name="connects",
        title=f"{scale.connects} processes that connect at once, and read a value",
        lines=sorted(lines, key=lambda line: line.unit, reverse=True),
        notes=[f"{error} ({count} times)" for error, count in errors.most_common(5)],
    )


def _lines(way: Way, outcomes: list[list[float | str]]) -> Iterator[Line]:
    times = [[one for one in found if not isinstance(one, str)] for found in outcomes]
    failed = [len(found) - len(done) for found, done in zip(outcomes, times, strict=True)]
    counts = way is LOCAL
    last = [max(done) for done in times if done]
    if last:
        yield figure(f"{way.name}: the last has the value", last, "s", _ALL, counts=counts)
    yield figure(f"{way.name}: have failed", failed, "processes", _FAILED, counts=counts)


def _connect(way: Way, clients: int) -> list[float | str]:
    """Return the seconds of each client, or its error."""
    with way.serve("memory://") as server:
        with way.open(server.address) as store:
            store.set_sync(_KEY, cpu.Buffer.from_bytes(bytes(4096)))
            way.check(store)
        task = {"address": server.address, "client": way.of_client, "key": _KEY}
        with group("connects", [{**task, "clients": clients}]) as forked:
            forked.say("begin")
            (outcomes,) = forked.hear()
    found: list[float | str] = outcomes
    return found
