"""Writes to a directory with each `durability`: what it costs that values survive a crash."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from zarr.storage import LocalStore

from benchmarks.candidates import LOCAL_FUSED, writing
from benchmarks.data import Stored, Values, put_into_folder, put_into_server, random_values
from benchmarks.result import Row, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import FUSED, ZERO_COPY, open_array
from benchmarks.timing import Candidate, interleave
from benchmarks.ways import LOCAL
from ucxstore import UcxStore
from ucxstore.base.zarr_compat import cpu
from ucxstore.server.options.checks import DURABILITIES

_SMALL = 64  # values of 4 KiB


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder / "LocalStore", values, Stored(GRID_CHUNK))
    plain = open_array(LocalStore(folder / "LocalStore"), FUSED, "r+")
    candidates = [writing(f"grid: {LOCAL_FUSED}", plain, values, FUSED)]
    with ExitStack() as stack:
        for durability in DURABILITIES:
            server = stack.enter_context(LOCAL.serve(folder / durability, durability=durability))
            put_into_server(server.address, values, Stored(GRID_CHUNK), **LOCAL.of_client)
            store = stack.enter_context(LOCAL.open(server.address))
            candidates += _writes(store, durability, values)
        times = interleave(candidates, rounds=scale.directory_writes)
    os.sync()
    return Row(
        name="durability",
        title=f"{scale.nbytes / 1e6:g} MB raw in a grid of chunks, and {_SMALL} values of 4 KiB, "
        "written to a directory",
        lines=[
            times_as_fast(times, f"{what}: {durability}", f"{what}: {DURABILITIES[0]}")
            for what in ("grid", "one after another", "together")
            for durability in DURABILITIES[1:]
        ]
        + [
            times_as_fast(times, f"grid: {durability}", f"grid: {LOCAL_FUSED}")
            for durability in DURABILITIES
        ],
        times=times,
    )


def _writes(store: UcxStore, durability: str, values: Values) -> list[Candidate]:
    array = open_array(store, ZERO_COPY, "r+")
    small = cpu.Buffer.from_array_like(np.arange(4096, dtype="u1"))

    def one_after_another() -> None:
        for i in range(_SMALL):
            store.set_sync(f"small/{i}", small)

    async def set_all() -> None:
        await asyncio.gather(*(store.set(f"together/{i}", small) for i in range(_SMALL)))

    return [
        writing(f"grid: {durability}", array, values, ZERO_COPY),
        Candidate(f"one after another: {durability}", one_after_another),
        Candidate(f"together: {durability}", lambda: asyncio.run(set_all())),
    ]
