"""Clients of a crowd, and what keeps a machine busy: jobs for `tests.adversity.nursery`."""

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection

import numpy as np
from zarr.core.buffer import cpu

from ucxstore import UcxStore
from ucxstore.base.options import UcxValue

SIZE = 64 << 10


def visit(
    channel: Connection, address: str, number: int, ucx: Mapping[str, UcxValue], local: str
) -> None:
    """Connect when told to, then write and read for as long as told, and tell how often."""
    channel.send("ready")
    channel.recv()
    begun = time.monotonic()
    with UcxStore(address, ucx=ucx, local=local) as store:  # with its default time-outs
        store.ping_sync()
        channel.send(time.monotonic() - begun)
        until = channel.recv()
        value = np.full(SIZE, number % 256, "u1")
        out = np.empty(SIZE, "u1")
        rounds = 0
        while time.monotonic() < until:
            store.set_sync(f"c/{number}", cpu.Buffer.from_array_like(value))
            assert store.get_into_sync(f"c/{number}", out) == SIZE
            assert (out == number % 256).all()
            rounds += 1
        channel.send(rounds)
        channel.recv()
        store.delete_sync(f"c/{number}")
    channel.send("gone")


def burn(channel: Connection) -> None:
    """Take all of a core, until the channel ends."""
    while not channel.poll():
        sum(range(100_000))
