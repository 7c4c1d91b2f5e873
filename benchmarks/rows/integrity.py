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
from benchmarks.ways import TCP
from ucxstore import UcxStore
from ucxstore.base.zarr_compat import cpu

_SMALL = 64  # values of 4 KiB
_NAMES = {False: "without", True: "with checksums"}


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    candidates: list[Candidate] = []
    kinds: list[str] = []
    with ExitStack() as stack:
        for storage, served in (("memory", "memory://"), ("directory", folder / "served")):
            server = stack.enter_context(TCP.serve(served))
            for layout, chunk in (("one chunk", scale.shape), ("grid", GRID_CHUNK)):
                address = f"{server.address}/{layout.replace(' ', '-')}"
                put_into_server(address, values, Stored(chunk), **TCP.of_client)
                kinds += [f"{storage}, {layout}, {what}" for what in ("read", "write")]
                for integrity, name in _NAMES.items():
                    store = stack.enter_context(TCP.open(address, integrity=integrity))
                    candidates += reading_and_writing(f"{storage}, {layout}", name, store, values)
            kinds.append(f"{storage}, {_SMALL} gets of 4 KiB")
            for integrity, name in _NAMES.items():
                store = stack.enter_context(TCP.open(server.address, integrity=integrity))
                candidates.append(Candidate(f"{kinds[-1]}: {name}", _gets(store)))
        times = interleave(candidates, rounds=scale.directory_writes)
    return Row(
        name="integrity",
        title=f"{scale.nbytes / 1e6:g} MB raw over TCP on loopback, with checksums",
        lines=[
            times_as_fast(times, f"{kind}: {_NAMES[True]}", f"{kind}: {_NAMES[False]}")
            for kind in kinds
        ],
        times=times,
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
