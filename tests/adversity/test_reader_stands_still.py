"""A client stops in the middle of a value, and the server that sends it ends."""

import gc
import os
import weakref
from typing import ClassVar

import numpy as np
from zarr.core.buffer import Buffer, BufferPrototype, cpu
from zarr.storage import MemoryStore

from tests.adversity.clients import read_forever
from tests.adversity.conftest import Ucx
from tests.adversity.nursery import Child, Nursery
from tests.eventually import eventually
from ucxstore.server import Server

LARGE = 33_000_000


class LargeValues(MemoryStore):
    """Has a new large value for every key, and knows which of them are still in memory."""

    made: ClassVar[list[weakref.ref[np.ndarray]]] = []

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: object = None
    ) -> Buffer | None:
        value = np.ones(LARGE, "u1")
        self.made.append(weakref.ref(value))
        return cpu.Buffer(value)


def stop_in_the_middle(reader: Child, server: Server) -> bool:
    reader.go_on()
    # Bytes are counted by segments when they were sent, and a value has several.
    eventually(lambda: server.stats()["bytes_sent"] % LARGE, pause=0.0)
    reader.stop()
    return bool(server.stats()["bytes_sent"] % LARGE)


def test_the_memory_of_what_it_read_is_let_go(nursery: Nursery, ucx: Ucx) -> None:
    out = os.memfd_create("out")
    os.truncate(out, LARGE)
    LargeValues.made.clear()
    server = Server(LargeValues(), ucx=ucx)
    reader = nursery.start(read_forever, server.address, ucx, "k", f"/proc/{os.getpid()}/fd/{out}")
    try:
        assert reader.hear() == "reads"
        eventually(lambda: stop_in_the_middle(reader, server))
        assert [one() is not None for one in LargeValues.made] == [True]
    finally:
        server.close(0.0)
        reader.kill()
        os.close(out)
    gc.collect()
    assert LargeValues.made[0]() is None
