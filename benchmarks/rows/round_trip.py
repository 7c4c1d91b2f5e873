"""``get_sync`` of a small value, and ``get_into_sync``, beside LMDB."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from zarr.core.buffer import cpu

from benchmarks.children import run
from benchmarks.peers import LMDB_OPTIONS, put_into_lmdb
from benchmarks.result import Line, Row, Target, below, figure
from benchmarks.scale import Scale
from benchmarks.timing import Times
from benchmarks.ways import LOCAL, SHARED_MEMORY, WAYS, Way

_GET = below(60)  # us
_GET_INTO = below(4)
_GET_INTO_99 = below(15)

_KEY = "small"
_NBYTES = 4096
_LMDB = "LMDB"


class _Calls(NamedTuple):
    """Calls in a process of their own, with a server of their own."""

    call: str
    way: Way | None = None
    progress: str = "blocking"

    def __str__(self) -> str:
        if self.way is None:
            return self.call
        # Only UCX polls.
        progress = f", {self.progress}" if self.way.uses_ucx else ""
        return f"{self.call}, {self.way.name}{progress}"

    @property
    def target(self) -> Target | None:
        return _GET if self.call == "get_sync" else _GET_INTO

    @property
    def counts(self) -> bool:
        ways = (LOCAL, SHARED_MEMORY) if self.call == "get_sync" else (LOCAL,)
        return self.way in ways and self.progress == "blocking"


_POLLING = [_Calls("get_sync", way, "polling") for way in WAYS if way.uses_ucx]
_ALL = [
    *(_Calls("get_sync", way) for way in WAYS),
    *_POLLING,
    *(_Calls("get_into_sync", way) for way in WAYS),
    _Calls(_LMDB),
]


def measure(scale: Scale, folder: Path) -> Row:
    put_into_lmdb(folder, {_KEY: bytes(_NBYTES)})
    found: dict[_Calls, list[Times]] = {calls: [] for calls in _ALL}
    for _ in range(scale.call_rounds):
        for calls, processes in found.items():
            processes.append(Times(_time(calls, folder, scale.calls)))
    times = {
        str(calls): Times([second for one in processes for second in one.seconds])
        for calls, processes in found.items()
    }
    return Row(
        name="round-trip",
        title=f"get_sync of {_NBYTES} bytes, and get_into_sync",
        lines=[*_medians(times), *_percentiles(found)],
        times=times,
        notes=[
            f"{calls}: medians of the processes "
            + ", ".join(f"{one.median * 1e6:.1f}" for one in processes)
            + f" us; 99 % of all within {times[str(calls)].percentile(99) * 1e6:.1f} us"
            for calls, processes in found.items()
        ],
    )


def _medians(times: dict[str, Times]) -> Iterator[Line]:
    for calls in _ALL:
        seconds = times[str(calls)].seconds
        yield figure(
            str(calls), [1e6 * one for one in seconds], "us", calls.target, counts=calls.counts
        )


def _percentiles(found: dict[_Calls, list[Times]]) -> Iterator[Line]:
    for calls, processes in found.items():
        if calls.call != "get_sync":
            values = [1e6 * one.percentile(99) for one in processes]
            what = f"{calls}, 99 % within"
            yield figure(what, values, "us", _GET_INTO_99, counts=calls.counts)


def _time(calls: _Calls, folder: Path, number: int) -> list[float]:
    task = {"call": calls.call, "key": _KEY, "nbytes": _NBYTES, "calls": number}
    if calls.way is None:
        seconds: list[float] = run("calls", **task, address=str(folder), client=LMDB_OPTIONS)
        return seconds
    with _serving(calls.way, calls.progress) as address:
        client = {**calls.way.of_client, "progress": calls.progress}
        seconds = run("calls", **task, address=address, client=client)
        return seconds


@contextmanager
def _serving(way: Way, progress: str) -> Iterator[str]:
    """Serve for these calls only: processes that poll disturb others."""
    with way.serve("memory://", progress=progress) as server:
        with way.open(server.address) as store:
            store.set_sync(_KEY, cpu.Buffer.from_bytes(bytes(_NBYTES)))
            way.check(store)
        yield server.address
