"""Many client processes that get values at the same time, into memory of theirs."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zarr.core.buffer import cpu

from benchmarks.peers import LMDB_OPTIONS, find_redis, put_into_lmdb, redis
from benchmarks.process import cpu_seconds
from benchmarks.result import Line, Row, at_least, below, figure
from benchmarks.scale import Scale
from benchmarks.together import Group, group
from benchmarks.ways import LOCAL, WAYS, Way

_OF_ALL = at_least(8)  # GB/s, on two cores
_99 = below(1)  # ms

_NBYTES = 64 << 10
_VALUES = 250  # 16 MB
_LEAD_SECONDS = 0.2  # until all have heard when to begin


class _Window(NamedTuple):
    """What all clients together have done in a time."""

    rate: float  # GB/s
    percentile: float  # ms
    cpu: float  # seconds a GB, the server's included


def measure(scale: Scale, folder: Path) -> Row:
    program = find_redis()
    peers = [*(way.name for way in WAYS), "LMDB", *(["Redis"] if program else [])]
    lines: list[Line] = []
    notes = [f"{_VALUES} values in random order, {scale.client_seconds:g} s at a time"]
    for name in peers:
        try:
            with _serving(name, program, folder) as (task, server):
                tasks = [{**task, "number": number} for number in range(scale.clients)]
                with group("client", tasks) as clients:
                    windows = [
                        _watch(clients, server, scale.client_seconds)
                        for _ in range(scale.client_windows)
                    ]
        except RuntimeError as error:
            if name == LOCAL.name:
                raise
            notes.append(f"{name}: {error}")  # not all of them could connect
            continue
        lines += _lines(name, windows)
    return Row(
        name="many-clients",
        title=f"{scale.clients} processes that get values of 64 KiB into memory of theirs",
        lines=sorted(lines, key=lambda line: line.unit),
        notes=[
            *notes,
            *([] if program else ["Redis: neither redis-server nor valkey-server is on PATH"]),
        ],
    )


def _lines(name: str, windows: list[_Window]) -> Iterator[Line]:
    label = name if name in ("LMDB", "Redis") else f"ucxstore, {name}"
    rates, percentiles, cpu_times = ([*each] for each in zip(*windows, strict=True))
    is_local = name == LOCAL.name
    yield figure(f"{label}: all together", rates, "GB/s", _OF_ALL, counts=is_local)
    yield figure(f"{label}: 99 % within", percentiles, "ms", _99, counts=is_local)
    yield figure(f"{label}: processor time a GB", cpu_times, "s")


def _watch(clients: Group, server: int | None, seconds: float) -> _Window:
    begin = time.monotonic() + _LEAD_SECONDS
    end = begin + seconds
    clients.say([begin, end])
    time.sleep(max(begin - time.monotonic(), 0.0))
    before = cpu_seconds(server) if server else 0.0
    time.sleep(max(end - time.monotonic(), 0.0))
    used = cpu_seconds(server) - before if server else 0.0
    answers = clients.hear()
    used += sum(answer["cpu"] for answer in answers)
    times = sorted(one for answer in answers for one in answer["microseconds"])
    gigabytes = sum(answer["done"] for answer in answers) * _NBYTES / 1e9
    return _Window(gigabytes / seconds, times[len(times) * 99 // 100] / 1e3, used / gigabytes)


@contextmanager
def _serving(
    name: str, program: str | None, folder: Path
) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield the task of the clients, and the process whose time counts beside theirs."""
    content = {f"value-{number}": number for number in range(_VALUES)}
    values = {key: bytes([number]) * _NBYTES for key, number in content.items()}
    task = {"peer": name, "nbytes": _NBYTES, "bytes": content}
    if name == "LMDB":
        put_into_lmdb(folder, values)
        yield {**task, "address": str(folder), "client": LMDB_OPTIONS}, None
    elif name == "Redis":
        assert program is not None
        with redis(program, values) as server:
            yield {**task, "address": server.path}, server.pid
    else:
        (way,) = [one for one in WAYS if one.name == name]
        with _ours(way, values) as (address, pid):
            found = {"peer": "ucxstore", "address": address, "client": way.of_client}
            yield {**task, **found}, pid


@contextmanager
def _ours(way: Way, values: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    with way.serve("memory://") as server:
        with way.open(server.address) as store:
            for key, value in values.items():
                store.set_sync(key, cpu.Buffer.from_bytes(value))
            way.check(store)
        yield server.address, server.pid
