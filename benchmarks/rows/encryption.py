"""Reads and writes over TCP, encrypted and not: what it costs that nobody can listen."""

from contextlib import ExitStack
from pathlib import Path

from benchmarks.candidates import reading_and_writing
from benchmarks.data import Stored, put_into_server, random_values
from benchmarks.result import Row, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.timing import Candidate, interleave
from benchmarks.ways import TCP

_SECRET = "the secret of a benchmark, which keeps none"
_NAMES = {False: "in the clear", True: "encrypted"}


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    candidates: list[Candidate] = []
    kinds: list[str] = []
    with ExitStack() as stack:
        for storage in ("memory", "directory"):
            served = {
                encrypt: "memory://" if storage == "memory" else folder / f"served-{encrypt}"
                for encrypt in _NAMES
            }
            servers = {
                encrypt: stack.enter_context(TCP.serve(where, secret=_SECRET, encrypt=encrypt))
                for encrypt, where in served.items()
            }
            for layout, chunk in (("one chunk", scale.shape), ("grid", GRID_CHUNK)):
                kinds += [f"{storage}, {layout}, {what}" for what in ("read", "write")]
                for encrypt, name in _NAMES.items():
                    address = f"{servers[encrypt].address}/{layout.replace(' ', '-')}"
                    put_into_server(address, values, Stored(chunk), **TCP.of_client, secret=_SECRET)
                    store = stack.enter_context(
                        TCP.open(address, secret=_SECRET, integrity=False, encrypt=encrypt)
                    )
                    candidates += reading_and_writing(f"{storage}, {layout}", name, store, values)
        times = interleave(candidates, rounds=scale.directory_writes)
    return Row(
        name="encryption",
        title=f"{scale.nbytes / 1e6:g} MB raw over TCP on loopback, encrypted",
        lines=[
            times_as_fast(times, f"{kind}: {_NAMES[True]}", f"{kind}: {_NAMES[False]}")
            for kind in kinds
        ],
        times=times,
    )
