"""What a scratch space took of a server that lives on goes back to the system."""

import numpy as np
import zarr
from zarr.core.buffer import cpu

from tests.eventually import eventually
from tests.proc import resident
from ucxstore import UcxStore
from ucxstore.server import Server

VALUE = 4096  # bytes, which glibc keeps when they are freed
COUNT = 1000
STEPS = 12


def fill(store: UcxStore) -> None:
    z = zarr.create_array(
        store, shape=(COUNT, VALUE), chunks=(1, VALUE), dtype="u1", compressors=None
    )
    z[:] = np.ones(z.shape, "u1")


def test_many_small_values() -> None:
    with Server.spawn("memory://", local=False) as server, UcxStore(server.address) as store:
        before = resident(server)
        with store.scratch_sync("1GB") as scratch:
            for number in range(STEPS):
                fill(scratch.store(f"step-{number}"))
                # A value that stays at the end of the heap keeps it from shrinking there.
                store.set_sync(f"kept/{number}", cpu.Buffer.from_bytes(b"v" * 999))
            taken = resident(server) - before
            assert taken > STEPS * COUNT * VALUE * 0.9
        eventually(lambda: resident(server) - before < taken / 2)
