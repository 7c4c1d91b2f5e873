"""Values behind a cache, seen by clients of the server's host."""

import contextlib
import mmap
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import obstore
import zarr
from obstore.store import MemoryStore
from zarr.core.sync import sync

from tests.adversity.greedy.raw import PINS, REPLY, REQUEST, RawClient
from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.values import as_buffer, read
from ucxstore import UcxStore
from ucxstore.server import Server


def seen(store: UcxStore) -> int:
    return sync(store.server_stats())["gets_seen"]


def test_what_is_seen_is_a_hit(objects: HttpObjects) -> None:
    objects.objects["k"] = bytes(100_000)
    with Server(objects.store(), local=True) as server, UcxStore(server.address) as store:
        assert read(store, "missing") is None
        for _ in range(5):
            assert read(store, "k") == bytes(100_000)
        assert store.stats()["lanes"] == ["local"]
        stats = server.stats()
        assert stats["cache_misses"] == 2
        assert stats["cache_hits"] == 4
        assert stats["gets"] == 2
        assert seen(store) == 5
    assert objects.requests["GET", "k"] == 1


def test_an_array(objects: HttpObjects) -> None:
    behind = MemoryStore()
    x = np.random.default_rng(0).random((400, 400))
    with Server(behind, local=True) as server, UcxStore(server.address) as store:
        z = zarr.create_array(store, data=x, chunks=(100, 100), compressors=None)
        np.testing.assert_array_equal(z[:], x)
        asked = server.stats()["gets"]
        out = np.empty(80_000, "u1")
        for _ in range(3):
            np.testing.assert_array_equal(z[:], x)
            np.testing.assert_array_equal(z[10:350, ::7], x[10:350, ::7])
            assert store.get_into_sync("c/1/2", out) == 80_000
        assert server.stats()["gets"] == asked
        z[:200] = 2 * x[:200]
        assert (z[:] == np.concatenate([2 * x[:200], x[200:]])).all()
        with UcxStore(server.address, local="off") as other:
            over_ucx = zarr.open_array(other)
            np.testing.assert_array_equal(over_ucx[:], z[:])
            over_ucx[:] = x
            np.testing.assert_array_equal(z[:], x)


def test_it_is_asked_for_when_it_is_no_more_believed(objects: HttpObjects) -> None:
    objects.objects["k"] = b"old"
    with (
        Server(objects.store(), local=True, freshness=0.5) as server,
        UcxStore(server.address) as store,
    ):
        begun = time.monotonic()
        assert read(store, "k") == b"old"
        objects.objects["k"] = b"new"
        values = [read(store, "k") for _ in range(20)]
        if time.monotonic() - begun < 0.4:  # else the machine is too slow to tell
            assert values == [b"old"] * 20
            assert objects.asked("GET") + objects.asked("HEAD") == 1
        eventually(lambda: read(store, "k") == b"new", 10)
        assert time.monotonic() - begun > 0.4
        for _ in range(5):
            assert read(store, "k") == b"new"


def test_writes_of_another_process_are_seen_at_once(objects: HttpObjects) -> None:
    writer = """
for number in range(int(sys.stdin.readline())):
    store.set_sync("k", as_buffer(b"%d" % number * 1000))
    print(number, flush=True)
    sys.stdin.readline()
"""
    with (
        Server(MemoryStore(), local=True) as server,
        UcxStore(server.address) as store,
        Script(server.address, {}, writer) as script,
    ):
        script.say("100\n")
        for number in range(100):
            assert int(script.line()) == number
            expected = b"%d" % number * 1000
            assert read(store, "k") == expected
            assert read(store, "k") == expected
            script.say("\n")
        assert seen(store) == 200


def test_it_stays_within_its_bound_whatever_is_read(objects: HttpObjects) -> None:
    behind = MemoryStore()
    with (
        Server(behind, local=True, cache="8MB") as server,
        UcxStore(server.address) as store,
    ):
        rng = random.Random(1)
        for number in range(400):
            store.set_sync(f"c/{number}", as_buffer(rng.randbytes(rng.randrange(1, 300_000))))
        for _ in range(1500):
            assert read(store, f"c/{rng.randrange(400)}")
            assert server.stats()["cached_bytes"] <= 8_000_000
        stats = sync(store.server_stats())
        assert stats["gets_seen"] > 100
        assert stats["arena_bytes_used"] <= 8_000_000
        assert server.stats()["evicted"] > 100


READER = """
store.get_sync("c/0")
print("ready", flush=True)
number = 0
while True:
    number += 1
    store.get_sync(f"c/{number % 10}")
"""


def test_killed_readers_leave_nothing_pinned() -> None:
    with (
        Server(MemoryStore(), local=True, cache="20MB") as server,
        UcxStore(server.address) as store,
    ):
        for number in range(10):
            store.set_sync(f"c/{number}", as_buffer(bytes([number]) * 1_000_000))
        for _ in range(3):
            with Script(server.address, {}, READER) as script:
                assert script.line() == "ready"
                before = seen(store)
                eventually(lambda before=before: seen(store) > before + 100)
                script.kill()
        eventually(lambda: server.sessions == 1)
        for number in range(10):
            store.delete_sync(f"c/{number}")
        eventually(lambda: sync(store.server_stats())["arena_bytes_used"] == 0)
        assert sync(store.server_stats())["arena_bytes_waiting"] == 0
        assert server.stats()["cached_bytes"] < 100_000
        assert read(store, "c/3") is None


def pins_of(server: Server, key: bytes) -> tuple[RawClient, mmap.mmap, list[int]]:
    """Let a client that means ill be shown a value; return it, its pins, and descriptors."""
    intruder = RawClient(server.address)
    item = struct.pack("<H", len(key)) + key
    item += struct.pack("<QQQQ", *[2**64 - 1] * 3, 0) + b"\0\0\0"
    intruder.send(REQUEST, intruder.token + struct.pack("<QIIII", 1, 1, 0, 1, 0), item)
    frames = b""
    descriptors: list[int] = []
    kept: list[int] = []
    while True:
        data, fds, _, _ = socket.recv_fds(intruder.sock, 65536, 8)
        assert data
        frames += data
        descriptors += fds
        while len(frames) >= 24:
            kind, count, header, _, body = struct.unpack("<IIIIQ", frames[:24])
            if len(frames) < 24 + header + body:
                break
            frames = frames[24 + header + body :]
            own, descriptors = descriptors[:count], descriptors[count:]
            if kind == PINS:
                kept = own  # the table, and the lifeline
            else:
                for fd in own:
                    os.close(fd)
            if kind == REPLY:
                assert kept, "it was not shown"
                return intruder, mmap.mmap(kept[1], os.fstat(kept[1]).st_size), kept


def test_a_client_that_scribbles_over_its_table(full: bool) -> None:
    rng = random.Random(2)
    values = {f"c/{number}": rng.randbytes(rng.randrange(1, 50_000)) for number in range(200)}
    behind = MemoryStore()
    for key, value in values.items():
        obstore.put(behind, key, value)
    with (
        Server(behind, local=True, cache="2MB") as server,
        UcxStore(server.address) as store,
    ):
        intruder, table, kept = pins_of(server, b"c/199")
        over = threading.Event()

        def scribble() -> None:
            own = random.Random(3)
            places = [1 << 40 | place for place in range(0, 40_000, 64)]
            while not over.is_set():
                # Every block pinned, every use counted, and nonsense.
                table[64:] = b"".join(
                    struct.pack("<Q", own.choice(places)) for _ in range(4096)
                ) + b"\xff" * (len(table) - 64 - 8 * 4096)
                table[:64] = own.randbytes(64)
                table[64:] = own.randbytes(len(table) - 64)
                table[64:] = bytes(len(table) - 64)

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            for _ in range(1000 if full else 150):
                key, value = rng.choice(list(values.items()))
                assert read(store, key) == value
                if rng.random() < 0.1:
                    values[key] = rng.randbytes(rng.randrange(1, 50_000))
                    store.set_sync(key, as_buffer(values[key]))
                assert server.stats()["cached_bytes"] <= 2_000_000
        finally:
            over.set()
            thread.join()
        table.close()
        for fd in kept:
            os.close(fd)
        intruder.close()
        for key, value in values.items():
            assert read(store, key) == value
        eventually(lambda: sync(store.server_stats())["arena_bytes_waiting"] < 1_000_000)


def test_a_forked_child_of_the_server_keeps_what_a_source_has() -> None:
    """A source may keep the memory of what is written, which is not in an arena."""
    behind = zarr.storage.MemoryStore()
    with Server(behind, local=True) as server, UcxStore(server.address) as store:
        store.set_sync("k", as_buffer(b"v" * 100_000))
        assert read(store, "k") == b"v" * 100_000
        assert read(store, "k") == b"v" * 100_000
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                kept = behind.get_sync("k")
                os._exit(0 if kept and kept.to_bytes() == b"v" * 100_000 else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_a_cache_directory_is_behind_it(objects: HttpObjects, tmp_path: Path) -> None:
    objects.objects.update({f"k{number}": bytes([number]) * 50_000 for number in range(20)})
    with (
        Server(
            objects.store(),
            local=True,
            cache=200_000,
            cache_dir=tmp_path / "cache",
            cache_dir_size="64MiB",
        ) as server,
        UcxStore(server.address) as store,
    ):
        for _ in range(3):
            for number in range(20):
                for _ in range(2):
                    assert read(store, f"k{number}") == bytes([number]) * 50_000
            eventually(lambda: server.stats()["disk_bytes"] >= 20 * 50_000)
        assert server.stats()["disk_hits"] > 0
        assert seen(store) >= 60
    assert sum(objects.requests.values()) == 20
