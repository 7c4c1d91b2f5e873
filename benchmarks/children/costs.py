"""Processor time of a request and of a connection at both ends, and what a connection holds."""

import asyncio
import gc
import os
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from zarr.core.buffer import cpu

from benchmarks.children import answer
from benchmarks.process import cpu_seconds, descriptors, own_bytes
from ucxstore import UcxStore

# Requests of one key each that are under way together: enough for neither end to fall asleep.
_AT_ONCE = 32
_VALUES = 64


def main(
    address: str, pid: int, client: Mapping[str, Any], sizes: list[int], requests: int, held: int
) -> dict[str, list[float]]:
    """Return costs, each at the server and at the client.

    Parameters
    ----------
    address, pid : str, int
        Of the server, which listens at all loopback addresses.
    client : mapping
        Options of the stores.
    sizes : list of int
        Bytes of the values. The requests of each size have a cost in the answer.
    requests : int
        To measure. It is also how often a client connects, divided by eight.
    held : int
        Connections to hold at the same time.
    """
    costs = _Costs(pid)
    found: dict[str, list[float]] = {}
    with UcxStore(address, select_pipeline=False, **client) as store:
        for nbytes in sizes:
            values = {f"{nbytes}/{number}": bytes(nbytes) for number in range(_VALUES)}
            found[f"set {nbytes}"] = costs.of(partial(_set, store, values, requests), requests)
            outs = {key: bytearray(nbytes) for key in values}
            found[f"get {nbytes}"] = costs.of(partial(_get, store, outs, requests), requests)
    del store
    if held:
        connects = max(requests // 8, 8)
        found["connect"] = costs.of(lambda: _connect(address, client, connects), connects)
        found |= _hold(address, pid, client, held, sizes[-1])
    return found


class _Costs:
    """Processor time of the server and of this process.

    Parameters
    ----------
    pid : int
        Of the server.
    """

    def __init__(self, pid: int) -> None:
        self._pids = pid, os.getpid()

    def of(self, call: Callable[[], object], count: int) -> list[float]:
        """Return the seconds of both for each of so many requests, after as many to warm up."""
        call()
        before = [*map(cpu_seconds, self._pids)]
        call()
        return [
            (cpu_seconds(pid) - then) / count for pid, then in zip(self._pids, before, strict=True)
        ]


def _set(store: UcxStore, values: Mapping[str, bytes], requests: int) -> None:
    buffers = {key: cpu.Buffer.from_bytes(value) for key, value in values.items()}
    keys = [*values]
    _together(store.set(key, buffers[key]) for key in _over_and_over(keys, requests))


def _get(store: UcxStore, outs: Mapping[str, bytearray], requests: int) -> None:
    _together(store.get_into(key, outs[key]) for key in _over_and_over([*outs], requests))


def _over_and_over(keys: list[str], requests: int) -> Iterable[str]:
    return (keys[number % len(keys)] for number in range(requests))


def _together(requests: Iterable[Awaitable[object]]) -> None:
    left = iter(requests)

    async def some() -> None:
        for request in left:
            await request

    async def all_of_them() -> None:
        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))

    asyncio.run(all_of_them())


def _connect(address: str, client: Mapping[str, Any], times: int) -> None:
    for _ in range(times):
        with UcxStore(address, select_pipeline=False, **client) as store:
            store.ping_sync()
        del store
        gc.collect(0)  # a connection closes with its last store


def _hold(
    address: str, pid: int, client: Mapping[str, Any], held: int, nbytes: int
) -> dict[str, list[float]]:
    """Return the memory and descriptors that connections take, each of which has moved a value."""
    pids = pid, os.getpid()
    stores: list[UcxStore] = []
    out = bytearray(nbytes)

    def connect(number: int) -> None:
        # A process has one connection to an address.
        port = urllib.parse.urlsplit(address).port
        place = f"ucx://127.1.{number // 250}.{1 + number % 250}:{port}"
        stores.append(UcxStore(place, select_pipeline=False, **client))
        if stores[-1].get_into_sync(f"{nbytes}/0", out) != nbytes:
            raise AssertionError(f"no value of {nbytes} bytes at {place}")

    connect(held)
    before = [(own_bytes(one), descriptors(one)) for one in pids]
    for number in range(held):
        connect(number)
    after = [(own_bytes(one), descriptors(one)) for one in pids]
    grown = [
        [(now - then) / held for now, then in zip(*each, strict=True)]
        for each in zip(after, before, strict=True)
    ]
    memory, files = map(list, zip(*grown, strict=True))
    return {"bytes of a connection": memory, "descriptors of a connection": files}


if __name__ == "__main__":
    answer(main)
