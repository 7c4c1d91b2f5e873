"""Loaders of a training job, which read all of one compressed array in each epoch, at random."""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from zarr.codecs import BloscCodec, ZstdCodec

from benchmarks.candidates import LOCAL_FUSED, ZARRS
from benchmarks.data import Stored, Values, put_into_folder, smooth_values
from benchmarks.jobs import CPU
from benchmarks.peers import LMDB_OPTIONS, put_into_lmdb
from benchmarks.process import cpu_seconds, proportional_bytes
from benchmarks.result import Line, Row, at_least, at_most, figure, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import FUSED, ZARRS_PIPELINE
from benchmarks.timing import Times
from benchmarks.together import group
from benchmarks.ways import LOCAL

_FIRST = at_least(1.5)
_LATER = at_least(5)
_LATER_CPU = at_least(4)
_HELD = at_most(1.2)  # arrays
_ONCE = at_most(1)
_NONE = at_most(0)

_MIB = 1 << 20
_PAGE = 4096
_COLUMNS = 4096
_EPOCHS = 3
_BLOCK_ROWS = 4096  # 64 MiB of random walks; those of another block are shifted
_ROOM = 1.15  # for decoded chunks, in arrays: what S3-FIFO gives up is decoded again

OURS = f"ucxstore, {LOCAL.name}, decoded once"
SHARED = "tensorstore, caches of one array together"
WHOLE = "tensorstore, a cache of the array each"
LMDB = "LMDB, encoded chunks"

_CODECS = {"zstd": ZstdCodec, "blosc": BloscCodec}


class _Case(NamedTuple):
    name: str
    processes: int
    codec: str
    chunk_mib: int
    part: int = 1  # of the array of the other cases


_CASES = (
    _Case("loaders", 4, "zstd", 8),
    _Case("loaders-1-mib", 4, "zstd", 1),
    _Case("loaders-blosc", 4, "blosc", 8),
    _Case("loaders-16", 16, "zstd", 8, 4),
)


class _Seen(NamedTuple):
    """What a job has taken and held, by epochs."""

    seconds: list[float]
    cpu: list[float]
    held: list[int]
    decoded: list[int]  # chunks so far, by the loaders that count them


def _measure(case: _Case, scale: Scale, folder: Path) -> Row:
    values = _values(scale.loaded_bytes // case.part)
    rows = case.chunk_mib * _MIB // values.itemsize // _COLUMNS
    put_into_folder(folder / "array", values, Stored((rows, _COLUMNS), _CODECS[case.codec]()))
    pages = values.reshape(len(values) // rows, -1)[:, :: _PAGE // values.itemsize]
    sums = pages.sum(axis=1, dtype="f8").tolist()
    nbytes = values.nbytes
    del values, pages
    encoded = _encoded(folder / "array")
    tasks, notes = _peers(case, folder, nbytes, encoded)
    processes = min(case.processes, scale.loaders)
    ours, counted = _run_ours(processes, sums, folder / "array", int(nbytes * _ROOM))
    seen = {OURS: ours}
    seen |= {name: _run(processes, {**task, "sums": sums}) for name, task in tasks.items()}
    times = _times(seen)
    left = counted["decodes_failed"] + ours.decoded[-1]
    held = {name: max(one.held) / nbytes for name, one in seen.items()}
    lines = [
        *_compared(times, list(tasks)),
        figure("decoded at the server, a chunk", [counted["decoded"] / len(sums)], "times", _ONCE),
        figure("chunks left to the loaders", [left], "chunks", _NONE),
        *(
            figure(f"{name}: memory of all", [arrays], "arrays", _HELD, counts=name == OURS)
            for name, arrays in held.items()
        ),
    ]
    ratio = nbytes / sum(map(len, encoded.values()))
    return Row(
        name=case.name,
        title=f"{processes} loaders, {_EPOCHS} epochs of {nbytes / 1e9:.3g} GB in {case.codec} "
        f"chunks of {case.chunk_mib} MiB, each in its own random order",
        lines=lines,
        times=times,
        notes=[
            *notes,
            f"the array is {ratio:.2f} times its chunks as they are stored",
            "the processor time and the memory of ours include the server's",
            "memory: the proportional sets of all after the epoch with most, less those before "
            "the first one",
        ],
    )


def _run_ours(
    processes: int, sums: list[float], folder: Path, limit: int
) -> tuple[_Seen, dict[str, Any]]:
    """Run the loaders of a server, and return its counters, too."""
    with LOCAL.serve(folder, read_only=True, decoded=limit) as server:
        task = {"how": "server", "location": server.address, "client": LOCAL.of_client}
        seen = _run(processes, {**task, "sums": sums}, server.pid)
        with LOCAL.open(server.address, read_only=True) as store:
            return seen, store.server_stats_sync()


def _times(seen: Mapping[str, _Seen]) -> dict[str, Times]:
    times = {}
    for name, one in seen.items():
        for what, used in (("{}", one.seconds), (CPU, one.cpu)):
            times[what.format(_first(name))] = Times(used[:1])
            times[what.format(_later(name))] = Times(used[1:])
    return times


def _encoded(folder: Path) -> dict[str, bytes]:
    """Return the chunks of an array as they are stored, by their keys."""
    files = (file for file in (folder / "c").rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def _first(name: str) -> str:
    return f"{name}, epoch 1"


def _later(name: str) -> str:
    return f"{name}, epochs 2 and 3"


def _compared(times: dict[str, Times], peers: list[str]) -> Iterator[Line]:
    """Compare ours with each peer: what holds for all of them holds for the fastest."""
    for when, what, target in (
        (_first, "{}", _FIRST),
        (_later, "{}", _LATER),
        (_first, CPU, None),
        (_later, CPU, _LATER_CPU),
    ):
        for peer in peers:
            names = what.format(when(OURS)), what.format(when(peer))
            yield times_as_fast(times, *names, target)


def _values(nbytes: int) -> Values:
    """Return smooth values, rounded, of which no two chunks are the same."""
    rows = nbytes // 4 // _COLUMNS
    block = smooth_values((min(rows, _BLOCK_ROWS), _COLUMNS))
    values = np.empty((rows, _COLUMNS), np.float32)
    for number, start in enumerate(range(0, rows, len(block))):
        part = values[start : start + len(block)]
        np.add(block[: len(part)], np.float32(number), out=part)
    return values


def _peers(
    case: _Case, folder: Path, nbytes: int, encoded: Mapping[str, bytes]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the tasks of the peers that are installed, and a note of each other one."""
    place = {"location": str(folder / "array")}
    peers: dict[str, dict[str, Any]] = {
        LOCAL_FUSED: {**place, "how": "local-store", "pipeline": FUSED},
        ZARRS: {**place, "how": "local-store", "pipeline": ZARRS_PIPELINE},
    }
    notes = []
    if find_spec("tensorstore"):
        cached = {**place, "how": "tensorstore"}
        peers[SHARED] = {**cached, "cache": nbytes // case.processes}
        peers[WHOLE] = {**cached, "cache": 2 * nbytes}
    else:
        notes.append("tensorstore is not installed, and was not measured")
    if find_spec("lmdb"):
        put_into_lmdb(folder / "lmdb", encoded)
        peers[LMDB] = {
            "how": "lmdb",
            "location": str(folder / "lmdb"),
            "options": LMDB_OPTIONS,
            "codec": case.codec,
            "chunk_bytes": case.chunk_mib * _MIB,
        }
    else:
        notes.append("lmdb is not installed, and was not measured")
    return peers, notes


def _run(processes: int, task: Mapping[str, Any], server: int | None = None) -> _Seen:
    """Run the loaders for all epochs, which they begin at the same time."""
    servers = [] if server is None else [server]
    seen = _Seen([], [], [], [])
    with group("loader", [{**task, "number": number} for number in range(processes)]) as loaders:
        pids = [*loaders.pids, *servers]
        before = sum(map(proportional_bytes, pids))
        for epoch in range(_EPOCHS):
            used = sum(map(cpu_seconds, servers))
            start = time.perf_counter()
            loaders.say(epoch)
            answers = loaders.hear()
            seen.seconds.append(time.perf_counter() - start)
            used = sum(map(cpu_seconds, servers)) - used
            seen.cpu.append(used + sum(answer["cpu"] for answer in answers))
            seen.held.append(sum(map(proportional_bytes, pids)) - before)
            seen.decoded.append(sum(answer["decoded"] for answer in answers))
    return seen


measure = partial(_measure, _CASES[0])
measure_small_chunks = partial(_measure, _CASES[1])
measure_blosc = partial(_measure, _CASES[2])
measure_many = partial(_measure, _CASES[3])
