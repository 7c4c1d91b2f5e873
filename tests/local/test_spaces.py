"""Scratch spaces, seen by clients of the server's host who know their names."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.local.servers import local_server_of_its_own as local_server_of_its_own
from tests.values import as_buffer, read
from ucxstore import ScratchEndedError, StorageError, UcxStore
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess


def test_their_values_are_seen(server: Server) -> None:
    with UcxStore(server.address) as owner, owner.scratch_sync("10MB") as scratch:
        store = scratch.store()
        x = np.arange(40_000.0).reshape(200, 200)
        z = zarr.create_array(store, data=x, chunks=(50, 50), compressors=None)
        np.testing.assert_array_equal(z[:], x)
        assert store.stats()["lanes"] == ["local"]
        asked = server.stats()["gets"]
        for _ in range(3):
            np.testing.assert_array_equal(z[:], x)
        assert server.stats()["gets"] == asked
        assert sync(owner.server_stats())["gets_seen"] >= 48
        z[:] = -x
        np.testing.assert_array_equal(z[:], -x)


def test_beside_other_storages(tmp_path: Path) -> None:
    with (
        Server(tmp_path, local=True, read_only=True, scratch_limit="10MB") as server,
        UcxStore(server.address) as owner,
        owner.scratch_sync("1MB") as scratch,
    ):
        store = scratch.store()
        store.set_sync("c/0", as_buffer(bytes(100_000)))
        for _ in range(4):
            assert read(store, "c/0") == bytes(100_000)
        assert server.stats()["gets"] == 1


USER = """
import pickle, os
stores = pickle.loads(bytes.fromhex(sys.stdin.readline()))
before = len(os.listdir("/proc/self/fd"))
most = mapped = 0
for store in stores + stores[:5]:
    for _ in range(3):
        assert store.get_sync("c/0").to_bytes() == store.get_sync("c/1").to_bytes()
    most = max(most, len(os.listdir("/proc/self/fd")))
    with open("/proc/self/maps") as maps:
        mapped = max(mapped, sum("memfd:ucxstore-" in line for line in maps))
print(most - before, mapped, flush=True)
"""


def test_a_client_of_many(server: Server) -> None:
    """It has descriptors and mappings of few of them at a time."""
    with UcxStore(server.address) as owner, Script(server.address, {}, USER) as script:
        spaces = [owner.scratch_sync("1MB") for _ in range(60)]
        stores = [space.store() for space in spaces]
        for number, store in enumerate(stores):
            for key in ("c/0", "c/1"):
                store.set_sync(key, as_buffer(bytes([number]) * 10_000))
        script.say(pickle.dumps(stores).hex() + "\n")
        descriptors, mappings = map(int, script.line().split())
        # The file of pins, its lifeline and an arena for each, beside those of the session.
        assert descriptors < 16 * 3 + 10
        # Three of the pins, the board, the server's life, the index and an arena.
        assert mappings < 16 * 7 + 10
        assert sync(owner.server_stats())["gets_seen"] > 60
        for space in spaces:
            space.close()
        eventually(lambda: sync(owner.server_stats())["arena_bytes"] == 0)


def test_what_they_took_goes_back() -> None:
    def shared(server: ServerProcess) -> int:
        fields = Path(f"/proc/{server.pid}/status").read_text().split()
        return int(fields[fields.index("RssShmem:") + 1]) * 1024

    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as owner:
        before = shared(server)
        with owner.scratch_sync("100MB") as scratch:
            store = scratch.store()
            for number in range(50):
                store.set_sync(f"c/{number}", as_buffer(bytes(1_000_000)))
                store.set_sync(f"d/{number}", as_buffer(bytes(1_000)))
                assert read(store, f"c/{number}") == bytes(1_000_000)
            assert shared(server) - before > 45_000_000
        eventually(lambda: shared(server) - before < 5_000_000)
        assert sync(owner.server_stats())["arena_bytes"] == 0


READER = """
import pickle
store = pickle.loads(bytes.fromhex(sys.stdin.readline()))
value = bytes([7]) * 300_000
assert store.get_sync("c/0").to_bytes() == value
print("ready", flush=True)
try:
    while True:
        assert store.get_sync("c/0").to_bytes() == value
except ScratchEndedError:
    print("ended", flush=True)
"""


def test_readers_of_other_processes_when_one_ends(server: Server) -> None:
    with UcxStore(server.address) as owner:
        scratch = owner.scratch_sync("10MB")
        store = scratch.store()
        store.set_sync("c/0", as_buffer(bytes([7]) * 300_000))
        with (
            Script(server.address, {}, READER) as one,
            Script(server.address, {}, READER) as killed,
        ):
            for script in (one, killed):
                script.say(pickle.dumps(store).hex() + "\n")
                assert script.line() == "ready"
            killed.kill()
            scratch.close()
            assert one.line() == "ended"
        with pytest.raises(ScratchEndedError):
            store.get_sync("c/0")
        eventually(lambda: sync(owner.server_stats())["arena_bytes"] == 0)


OWNER = """
import pickle
scratch = store.scratch_sync("10MB", timeout=1.5)
store = scratch.store()
store.set_sync("c/0", as_buffer(bytes([7]) * 300_000))
print(pickle.dumps(store).hex(), flush=True)
nothing_happens(600)
"""


def test_the_space_of_a_killed_owner(server: Server) -> None:
    with Script(server.address, {}, OWNER) as owner:
        store = pickle.loads(bytes.fromhex(owner.line()))
        for _ in range(5):
            assert read(store, "c/0") == bytes([7]) * 300_000
        asked = server.stats()["gets"]
        owner.kill()

        def has_ended() -> bool:
            try:
                assert read(store, "c/0") == bytes([7]) * 300_000
            except ScratchEndedError:
                return True
            return False

        eventually(has_ended, 15)
        assert server.stats()["gets"] <= asked + 1  # until then it was not asked
        with UcxStore(server.address) as other:
            eventually(lambda: sync(other.server_stats())["arena_bytes"] == 0)


def test_the_quota_is_kept_beside_readers(server: Server) -> None:
    with UcxStore(server.address) as owner, owner.scratch_sync(1_000_000) as scratch:
        store = scratch.store()
        for number in range(200):
            store.set_sync("c/0", as_buffer(bytes([number]) * 400_000))
            assert read(store, "c/0") == bytes([number]) * 400_000
        store.set_sync("c/1", as_buffer(bytes(500_000)))
        with pytest.raises(StorageError, match="of 1000000 bytes of scratch space"):
            store.set_sync("c/2", as_buffer(bytes(200_000)))
        [space] = sync(owner.server_stats())["spaces"]
        assert space["bytes"] == 900_000
