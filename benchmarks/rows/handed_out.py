"""An array in one raw chunk, handed out by ``z[:]`` and as a view, and summed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore

from benchmarks.candidates import our_reads, ours, reading_store
from benchmarks.data import Stored, Values, put_into_server, random_values
from benchmarks.peers import LMDB_OPTIONS, put_into_lmdb
from benchmarks.result import Line, Row, at_least, below, figure, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import FUSED, ZERO_COPY, open_array
from benchmarks.timing import Candidate, Times, interleave
from benchmarks.ways import LOCAL, WAYS

_HANDED_OUT = below(0.2)  # ms
_VIEWED = below(0.1)
_SUMMED = at_least(0.87)  # within 15 % of the time
_TURN = 0.02  # s

_READS = [(way, "memory", "recycled") for way in WAYS]
_NAMES = [ours(*one) for one in _READS]
_TARGET = ours(LOCAL, "memory", "recycled")
_VIEWS = [f"ucxstore, {LOCAL.name}, store.{name}" for name in ("view", "view_array")]
_LMDB = "LMDB, a view"
_ZARR = "zarr itself: one item of a MemoryStore"
_IN_MEMORY = "an array in memory"


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    with (
        our_reads(folder, values, Stored(scale.shape), _READS) as (reads, notes),
        _views(values) as views,
        _lmdb(folder, values) as lmdb,
    ):
        handed_out = [*reads, *views, lmdb]
        summed = [_summed(one, values) for one in handed_out]
        summed.append(_summed(Candidate(_IN_MEMORY, lambda: values), values))
        # What is handed out takes less time than it takes a processor to wake up for it.
        times = interleave([*handed_out, _zarr()], rounds=scale.rounds, turn_seconds=_TURN)
        times |= interleave(summed, rounds=scale.rounds)
    return Row(
        name="handed-out",
        title=f"{scale.nbytes / 1e6:g} MB raw, one chunk, handed out by z[:], and summed",
        lines=[*_handed_out(times), *_sums(times)],
        times=times,
        notes=notes,
    )


def _handed_out(times: dict[str, Times]) -> Iterator[Line]:
    bounds = dict.fromkeys(_NAMES, _HANDED_OUT) | dict.fromkeys([*_VIEWS, _LMDB], _VIEWED)
    bounds[_ZARR] = _HANDED_OUT
    for name, bound in bounds.items():
        values = [1e3 * seconds for seconds in times[name].seconds]
        yield figure(name, values, "ms", bound, counts=name in (_TARGET, *_VIEWS))


def _sums(times: dict[str, Times]) -> Iterator[Line]:
    for name in (*_NAMES, *_VIEWS, _LMDB):
        summed, in_memory = f"summed: {name}", f"summed: {_IN_MEMORY}"
        yield times_as_fast(times, summed, in_memory, _SUMMED, counts=name == _TARGET)


def _summed(candidate: Candidate, values: Values) -> Candidate:
    """Return the candidate that also adds up what it is handed."""
    expected = values.sum()
    return Candidate(
        f"summed: {candidate.name}",
        lambda: np.asarray(candidate.call()).view(values.dtype).sum(),
        candidate.pipeline,
        candidate.ndbuffer,
        lambda result: bool(np.isclose(result, expected)),
    )


@contextmanager
def _views(values: Values) -> Iterator[list[Candidate]]:
    """Yield the views of a chunk and of a whole array; they move no byte."""

    def is_right(result: Any) -> bool:
        found = np.asarray(result).view(values.dtype).reshape(values.shape)
        return np.array_equal(found, values)

    with LOCAL.serve("memory://") as server:
        put_into_server(server.address, values, Stored(values.shape), **LOCAL.of_client)
        with reading_store(server.address, LOCAL) as store:
            array = open_array(store, ZERO_COPY)
            calls = (lambda: store.view_sync("c/0/0"), lambda: store.view_array_sync(array, ...))
            yield [
                Candidate(name, call, is_right=is_right)
                for name, call in zip(_VIEWS, calls, strict=True)
            ]


@contextmanager
def _lmdb(folder: Path, values: Values) -> Iterator[Candidate]:
    """Yield the view of a value in LMDB, which is valid for as long as its transaction."""
    import lmdb

    put_into_lmdb(folder, {"values": values.tobytes()})
    with (
        lmdb.open(str(folder), readonly=True, **LMDB_OPTIONS) as environment,
        environment.begin(buffers=True) as transaction,
    ):

        def view() -> Any:
            found = np.frombuffer(transaction.get(b"values"), values.dtype)
            return found.reshape(values.shape)

        yield Candidate(_LMDB, view, is_right=lambda result: np.array_equal(result, values))


def _zarr() -> Candidate:
    """Return what zarr takes for any array, however small."""
    array = zarr.create_array(MemoryStore(), data=np.ones(1), compressors=None)
    return Candidate(_ZARR, lambda: array[:], FUSED)
