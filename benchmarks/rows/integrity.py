"""Reads and writes over TCP with checksums and without: what it costs that bits cannot change."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.candidates import reading_and_writing
from benchmarks.data import Stored, put_into_server, random_values
from benchmarks.result import Row, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Candidate, interleave
from benchmarks.ways import TCP, UCX_OVER_TCP, Way
from ucxstore import UcxStore
from ucxstore.base.zarr_compat import cpu

_SMALL = 64  # values of 4 KiB
_NAMES = {False: "without", True: "with checksums"}

_SERVERS = {
    "memory": (TCP, "memory"),
    "directory": (TCP, "directory"),
    f"{UCX_OVER_TCP.name}, memory": (UCX_OVER_TCP, "memory"),
}


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    candidates: list[Candidate] = []
    kinds: list[str] = []
    notes: dict[Way, str] = {}
    with ExitStack() as stack:
        for name, (way, storage) in _SERVERS.items():
            served = "memory://" if storage == "memory" else folder / "served"
            server = stack.enter_context(way.serve(served))
            for layout, chunk in (("one chunk", scale.shape), ("grid", GRID_CHUNK)):
                address = f"{server.address}/{layout.replace(' ', '-')}"
                put_into_server(address, values, Stored(chunk), **way.of_client)
                kinds += [f"{name}, {layout}, {what}" for what in ("read", "write")]
                for integrity, how in _NAMES.items():
                    store = stack.enter_context(way.open(address, integrity=integrity))
                    candidates += reading_and_writing(f"{name}, {layout}", how, store, values)
            kinds.append(f"{name}, {_SMALL} gets of 4 KiB")
            for integrity, how in _NAMES.items():
                store = stack.enter_context(way.open(server.address, integrity=integrity))
                candidates.append(Candidate(f"{kinds[-1]}: {how}", _gets(store)))
            notes[way] = way.check(store)
        times = interleave(candidates, rounds=scale.directory_writes)
    return Row(
        name="integrity",
        title=f"{scale.nbytes / 1e6:g} MB raw over TCP on loopback, with checksums",
        lines=[
            times_as_fast(times, f"{kind}: {_NAMES[True]}", f"{kind}: {_NAMES[False]}")
            for kind in kinds
        ],
        times=times,
        notes=[*notes.values()],
    )


def _gets(store: UcxStore) -> Callable[[], None]:
    small = cpu.Buffer.from_array_like(np.arange(4096, dtype="u1"))
    for i in range(_SMALL):
        store.set_sync(f"small/{i}", small)
    out = np.empty(4096, "u1")

    def get_all() -> None:
        for i in range(_SMALL):
            store.get_into_sync(f"small/{i}", out)

    return get_all
