"""What client processes do until tests kill or stop them."""

import mmap
from collections.abc import Mapping
from multiprocessing.connection import Connection

import numpy as np

from tests.adversity.transfers import filled, wipe
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.base.options import UcxValue


def write_forever(
    channel: Connection, address: str, ucx: Mapping[str, UcxValue], key: str, size: int
) -> None:
    """Write values of one byte, 1, then 2, ... to the key, and announce each before."""
    store = UcxStore(address, ucx=ucx)
    for byte in range(1, 256):
        value = filled(byte, size)
        channel.send(byte)
        store.set_sync(key, as_buffer(value))


def read_forever(
    channel: Connection, address: str, ucx: Mapping[str, UcxValue], key: str, memory: str
) -> None:
    """Read the key again and again into the file `memory`, which others see."""
    store = UcxStore(address, ucx=ucx)
    with open(memory, "r+b") as file:  # noqa: PTH123
        out = np.frombuffer(mmap.mmap(file.fileno(), 0), "u1")
    channel.send("reads")
    while True:
        wipe(out)
        assert store.get_into_sync(key, out) == out.size
