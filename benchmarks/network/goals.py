"""What ucxstore is to reach beside Redis, plain TCP and ``ucx_perftest``, computed from a record.

A goal is there only if both sides of it were measured. Ratios are of medians, and of the best
windows: the highest rates, the shortest times.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

from benchmarks.network import content, plan
from benchmarks.network.record import Cell, Crowd, Record
from benchmarks.network.windows import Window
from benchmarks.result import Line, Target, at_least, at_most, figure

_OF_REDIS = at_least(2)
_P99_OF_REDIS = at_most(1)
_CPU_OF_REDIS = at_most(0.5)
_OF_FEW = at_least(0.9)
_OF_TCP = at_least(0.95)
_CHECKED = at_least(0.9)
_ENCRYPTED = at_least(0.65)
_SMALL_OF_TCP = at_most(1.3)
_BESIDE_IDLE = at_most(1.3)
_MEMORY = at_most(256)  # KiB
_DESCRIPTORS = at_most(2)
_CONNECTED = at_most(10)  # seconds
_FAILED = at_most(0)

type Figure = Callable[[Window], float | None]


def of(record: Record) -> list[Line]:
    """Return the goals of a record, each as a line with its target."""
    return [
        line
        for network in record.networks()
        for line in (
            *(_beside_redis(record, network) if network in plan.UNSHAPED else ()),
            *_large(record, network),
            *(_protected(record, network) if network in plan.UNSHAPED else ()),
            *_small(record, network),
        )
    ] + [line for crowd in record.crowds for line in _crowded(crowd)]


def _beside_redis(record: Record, network: str) -> Iterator[Line]:
    """Yield the goals beside Redis as its users have it; without its client it stands beside."""
    counts = sorted({cell.clients for cell in record.cells if cell.nbytes == content.MIDDLE})

    def cell(way: str, clients: int) -> Cell | None:
        return record.cell(network, way, "get", content.MIDDLE, clients)

    for clients in counts:
        what = f"{network}: 64 KiB, {_clients(clients)}"
        for way in (plan.REDIS, plan.REDIS_BARE):
            ours, redis = cell(plan.OURS, clients), cell(way, clients)
            for line in (
                *_ratio(f"{what}: GB/s", ours, redis, _rate, _OF_REDIS),
                *_ratio(f"{what}: 99 % within", ours, redis, _p99, _P99_OF_REDIS),
                *_ratio(f"{what}: processor time", ours, redis, _cpu, _CPU_OF_REDIS),
            ):
                yield replace(line, counts=way == plan.REDIS)
    if len(counts) > 2:
        few, many = counts[-2:]
        what = f"{network}: 64 KiB, {_clients(many)}: GB/s"
        yield from _ratio(
            what, cell(plan.OURS, many), cell(plan.OURS, few), _rate, _OF_FEW, _clients(few)
        )


def _large(record: Record, network: str) -> Iterator[Line]:
    streams = record.streams.get(plan.OURS, 1)
    raw = plan.RAW_BY_STREAMS.get(streams, plan.RAW_TWO)
    for op in ("get", "set"):
        # Its messages go one way, whichever it is.
        perftest = record.cell(network, plan.PERFTEST, "get", content.LARGE)
        found = [record.cell(network, raw, op, content.LARGE), perftest]
        there = [one for one in found if one is not None and one.windows]
        if there:
            best = max(there, key=lambda one: one.median(_rate) or 0)
            ours = record.cell(network, plan.OURS, op, content.LARGE)
            yield from _ratio(f"{network}: 100 MB, {op}: GB/s", ours, best, _rate, _OF_TCP)


def _protected(record: Record, network: str) -> Iterator[Line]:
    for way, target in ((plan.CHECKED, _CHECKED), (plan.ENCRYPTED, _ENCRYPTED)):
        for op in ("get", "set"):
            ours = record.cell(network, way, op, content.LARGE)
            plain = record.cell(network, plan.OURS, op, content.LARGE)
            yield from _ratio(f"{network}: 100 MB, {op}: GB/s", ours, plain, _rate, target)


def _small(record: Record, network: str) -> Iterator[Line]:
    ours = record.cell(network, plan.OURS, "get", content.SMALL)
    raw = record.cell(network, plan.RAW, "get", content.SMALL)
    yield from _ratio(f"{network}: 4 KiB, get: half within", ours, raw, _p50, _SMALL_OF_TCP)


def _ratio(
    what: str,
    ours: Cell | None,
    theirs: Cell | None,
    figure: Figure,
    target: Target,
    against: str = "",
) -> Iterator[Line]:
    if ours is None or theirs is None:
        return
    best = Cell.most if target.sign == ">=" else Cell.least
    values = [summary(one, figure) for summary in (Cell.median, best) for one in (ours, theirs)]
    if not all(values):
        return
    median_ours, median_theirs, best_ours, best_theirs = (value or 0.0 for value in values)
    yield Line(
        what=f"{what}: {ours.way}",
        against=against or theirs.way,
        median=median_ours / median_theirs,
        minimum=best_ours / best_theirs,
        unit="x",
        target=target,
    )


def _crowded(crowd: Crowd) -> Iterator[Line]:
    """Yield the goals for what comes by TCP; those of UCX's sessions stand beside."""
    if crowd.way not in (plan.OURS, plan.OURS_BY_UCX):
        return
    counts = crowd.way == plan.OURS
    if crowd.seconds:
        what = f"{crowd.at_once} processes connect: the last is served: {crowd.way}"
        yield figure(what, crowd.seconds, "s", _CONNECTED, counts=counts)
    what = f"{crowd.at_once} processes connect: have failed: {crowd.way}"
    yield figure(what, crowd.failed, "processes", _FAILED, counts=counts)
    idle = f"{crowd.clients} idle clients"
    what = f"{idle}: memory of the server, each: {crowd.way}"
    yield figure(what, [crowd.nbytes / 1024], "KiB", _MEMORY, counts=counts)
    what = f"{idle}: descriptors of the server, each: {crowd.way}"
    yield figure(what, [crowd.descriptors], "", _DESCRIPTORS, counts=counts)
    alone, beside = ([one.p50 or 0.0 for one in found] for found in (crowd.alone, crowd.beside))
    yield Line(
        what=f"{idle}: 4 KiB, get, half within: {crowd.way}",
        against="without them",
        median=median(beside) / median(alone),
        minimum=min(beside) / min(alone),
        unit="x",
        target=_BESIDE_IDLE,
        counts=counts,
    )


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


def _rate(window: Window) -> float | None:
    return window.rate


def _p50(window: Window) -> float | None:
    return window.p50


def _p99(window: Window) -> float | None:
    return window.p99


def _cpu(window: Window) -> float | None:
    return window.cpu
