"""Run the demo, and print its steps and tables."""

import os
import platform
import tempfile
import textwrap
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ucxstore import __version__
from ucxstore.base import ucx_library
from ucxstore.base.showing import terminal_width
from ucxstore.cli.demo.measure import median_rate
from ucxstore.cli.demo.reader import Report, Task, report_on, run_in_child
from ucxstore.cli.demo.sample import SAMPLE, open_sample, random_array
from ucxstore.cli.demo.table import TextTable
from ucxstore.copies import count_copies
from ucxstore.server import Server
from ucxstore.stores.store import UcxStore

type _Encoding = dict[Hashable, dict[str, None]]

# The ways of a client to a server of its host, as options of `UcxStore`.
_TRANSPORTS: dict[str, dict[str, Any]] = {
    "local": {"local": "auto"},
    "shared memory": {"local": "ucx"},
    "TCP": {"local": "off", "network": "tcp"},
    "UCX over TCP": {"local": "off", "network": "ucx", "ucx": {"TLS": "tcp"}},
}
_CHUNKS = "DIRECT", "DECODE", "ENCODE", "FALLBACK"


def show(megabytes: int) -> bool:
    """Run the demo and print its steps; return whether all data are equal."""
    ucx = ucx_library.load()
    _say(
        f"ucxstore {__version__}, zarr {zarr.__version__}, UCX {ucx.version} ({ucx.origin}), "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs"
    )
    with (
        tempfile.TemporaryDirectory(prefix="ucxstore-demo-") as folder,
        Server.spawn(
            Path(folder, "data"), local=True, network="ucx", ucx_shared_memory=True, create=True
        ) as server,
    ):
        _say(f"Process {server.pid} serves a temporary directory at {server.address}.\n")
        differences = _show_dataset(server.address)
        differences += _show_array(server.address, folder, megabytes)
    for difference in differences:
        _say(f"DIFFERENT: {difference}")
    _say("Something differs: see above." if differences else "Everything is equal, bit by bit.")
    return not differences


def _say(text: str) -> None:
    """Print lines, as wide as the terminal at the most."""
    width = terminal_width()
    for line in text.split("\n"):
        print("\n".join(textwrap.wrap(line, width, break_on_hyphens=False)) or line)
    print(end="", flush=True)


# ---- the dataset ----


def _show_dataset(server: str) -> list[str]:
    with open_sample() as dataset:
        dataset.load()
        _say(
            f"1. {SAMPLE}: {len(dataset.variables)} variables, {dataset.nbytes / 1e6:.1f} MB\n"
            "   Written here by xarray's to_zarr, and read by open_zarr in another process.\n"
        )
        uncompressed: _Encoding = {name: {"compressors": None} for name in dataset.variables}
        table = TextTable("chunks", "lanes", *_CHUNKS, "")
        differences = [
            *_move_dataset(server, dataset, "compressed", None, table),
            *_move_dataset(server, dataset, "uncompressed", uncompressed, table),
        ]
    _say(
        f"{table}\n\n"
        "   DIRECT    straight between the array and the store\n"
        "   DECODE    received as they are stored, and decoded in threads\n"
        "   ENCODE    encoded in threads, or merged with what is stored, and sent\n"
        "   FALLBACK  as zarr does it without ucxstore\n"
    )
    return differences


def _move_dataset(
    server: str, dataset: xr.Dataset, name: str, encoding: _Encoding | None, table: TextTable
) -> list[str]:
    address = f"{server}/{name}"
    with UcxStore(address) as store:
        dataset.to_zarr(store, encoding=encoding, consolidated=False)
        written = report_on(store, [])
    read = run_in_child(Task(address))
    table.add(f"{name}, written", _lanes(written), *written.chunks)
    table.add(f"{name}, read", _lanes(read), *read.chunks, _verdict(read))
    return [f"{name}: {difference}" for difference in read.differences]


# ---- the array ----


def _show_array(server: str, scratch: str, megabytes: int) -> list[str]:
    values = random_array(megabytes)
    _say(
        f"2. {megabytes} MB of random float32 in one uncompressed chunk\n"
        "   Written here, read in another process; medians of several transfers.\n"
    )
    table = TextTable("", "lanes", "GB/s", "copyto", "DIRECT", "extra", "")
    differences: list[str] = []
    for index, (name, client) in enumerate(_TRANSPORTS.items()):
        address = f"{server}/{index}"
        written = _write_array(values, address, client, scratch)
        read = run_in_child(Task(address, client, megabytes, scratch))
        if index == 0:
            _add_copies(table, read.rates)
        _add_transfers(table, name, written, read)
        differences += [f"{name}: {difference}" for difference in read.differences]
    _say(
        f"{table}\n\n"
        "   local          the server's memory, without UCX: the default on one host\n"
        "   shared memory  UCX over memory that both processes see\n"
        "   TCP            without UCX: the default between hosts that have no RDMA\n"
        "   UCX over TCP   the same network, by UCX\n"
        "   copyto         speed in multiples of that of np.copyto into a fresh array\n"
        "   write          the server stores it in a file of its directory\n"
        "   read, fresh    zarr's result in new memory\n"
        "   read           zarr's result in the memory of an earlier one, if that is free\n"
        "   DIRECT         chunks; one that went another way would be an error here\n"
        "   extra          the client's peak by memray beyond the user's array, in arrays\n"
    )
    return differences


def _write_array(
    values: npt.NDArray[np.float32], address: str, client: dict[str, Any], scratch: str
) -> Report:
    # Strict: fail if a chunk does not go straight from the array.
    with UcxStore(address, strict=True, **client) as store:
        array = zarr.create_array(
            store, shape=values.shape, chunks=values.shape, dtype=values.dtype, compressors=None
        )

        def write() -> None:
            array[:] = values

        capture = Path(scratch, "write.bin")
        extra = count_copies(write, values.nbytes, capture=capture).peak_extra
        rates = {"write": median_rate(write, values.nbytes)}
        return report_on(store, [], rates, extra)


def _add_copies(table: TextTable, rates: dict[str, float]) -> None:
    baseline = rates["copy, fresh"]
    table.add("np.copyto, fresh array", "", *_speed(baseline, baseline))
    table.add("np.copyto, used array", "", *_speed(rates["copy, used"], baseline))


def _add_transfers(table: TextTable, name: str, written: Report, read: Report) -> None:
    baseline = read.rates["copy, fresh"]
    write_speed = _speed(written.rates["write"], baseline)
    direct, *_ = written.chunks
    table.add(f"{name}, write", _lanes(written), *write_speed, direct, f"{written.extra:.2f}")
    table.add(f"{name}, read, fresh", "", *_speed(read.rates["fresh"], baseline))
    read_speed = _speed(read.rates["recycled"], baseline)
    direct, *_ = read.chunks
    table.add(
        f"{name}, read",
        _lanes(read),
        *read_speed,
        direct,
        f"{read.extra:.2f}",
        _verdict(read),
    )


# ---- cells ----


def _lanes(report: Report) -> str:
    return " ".join(report.lanes)


def _speed(rate: float, baseline: float) -> tuple[str, str]:
    return f"{rate:.1f}", f"{rate / baseline:.2f}"


def _verdict(report: Report) -> str:
    return "DIFFERENT" if report.differences else "equal"
