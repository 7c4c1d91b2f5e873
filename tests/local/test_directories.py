"""Directories over the local plane: clients with the server's rights read the files themselves."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from tests.adversity.scripts import Script
from tests.adversity.transfers import BLANK, VALUE, Background, Repeated, filled
from tests.conftest import place_of
from tests.eventually import eventually, loop_turns
from tests.local.servers import server_of_anybody as server_of_anybody
from tests.local.test_ends import CALLS, FORK, calls, connected
from tests.proc import descriptors
from tests.values import as_buffer, read
from ucxstore import ConnectError, ServerLostError, UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()
SIZES = (0, 1, 16_385, 65_537, 1 << 20, 3_000_001, 20_000_000)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def store(server: Server) -> Iterator[UcxStore]:
    with UcxStore(server.address) as store:
        store.ping_sync()
        assert store.stats()["lanes"] == ["local"]
        yield store


def has_ended(pid: int) -> bool:
    """Tell whether all threads of a process of ours have ended; nobody may have waited for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len([*Path(f"/proc/{pid}/task").iterdir()]) == 1
    except FileNotFoundError:
        return True


def sent_and_seen(store: UcxStore) -> tuple[int, int]:
    """Return how many gets the server has answered, and how many its clients."""
    stats = sync(store.server_stats())
    return stats["gets"], stats["gets_seen"]


# ---- who reads ----


def test_clients_read_the_files(store: UcxStore) -> None:
    for size in SIZES:
        value = os.urandom(size)
        store.set_sync("a/b", as_buffer(value))
        assert read(store, "a/b") == value
        out = np.empty(size, "u1")
        assert store.get_into_sync("a/b", out) == size
        assert out.tobytes() == value
        assert sync(store.get("a/b", PROTOTYPE)).to_bytes() == value
    assert read(store, "none") is None
    assert sent_and_seen(store) == (0, 3 * len(SIZES))


def test_arrays_are_read_without_the_server(store: UcxStore) -> None:
    model = np.arange(4_000_000, dtype="<i4").reshape(2000, 2000)
    for name, options in {
        "raw": {"chunks": (500, 500), "compressors": None},
        "one": {"chunks": (2000, 2000), "compressors": None},
        "zstd": {"chunks": (500, 500)},
        "sharded": {"chunks": (100, 100), "shards": (1000, 1000)},
        "raw in shards": {"chunks": (100, 100), "shards": (1000, 1000), "compressors": None},
    }.items():
        z = zarr.create_array(store, name=name, data=model, **options)
        before = sent_and_seen(store)
        np.testing.assert_array_equal(z[:], model, name)
        np.testing.assert_array_equal(z[3:1999:7, 5::3], model[3:1999:7, 5::3], name)
        np.testing.assert_array_equal(z[:, 1234], model[:, 1234], name)
        np.testing.assert_array_equal(z.oindex[[5, 3], [7, 8]], model[[5, 3]][:, [7, 8]], name)
        after = sent_and_seen(store)
        assert after[0] == before[0], name
        assert after[1] > before[1], name


def test_what_local_stores_write_and_read(store: UcxStore, root: Path) -> None:
    model = np.random.default_rng(3).random((300, 400))
    z = zarr.create_array(LocalStore(root), name="theirs", data=model, chunks=(100, 100))
    np.testing.assert_array_equal(zarr.open_array(store, path="theirs")[:], model)
    z[:] = model * 2
    np.testing.assert_array_equal(zarr.open_array(store, path="theirs")[:], model * 2)
    zarr.create_array(store, name="ours", data=model, chunks=(100, 100))
    np.testing.assert_array_equal(zarr.open_array(LocalStore(root), path="ours")[:], model)
    assert sent_and_seen(store)[0] == 0


# Prints how many gets the server has answered meanwhile, and whether all was right.
READS = """
from zarr.core.sync import sync
right = all(
    store.get_sync(f"c/{size}").to_bytes() == bytes([size % 251]) * size
    for size in (0, 1, 70_000, 5_000_000)
)
out = np.empty(5_000_000, "u1")
right = right and store.get_into_sync("c/5000000", out) == 5_000_000
right = right and store.get_sync("none") is None and store.stats()["lanes"] == ["local"]
print(sync(store.server_stats())["gets"], right, flush=True)
"""


def fill(store: UcxStore) -> None:
    for size in (0, 1, 70_000, 5_000_000):
        store.set_sync(f"c/{size}", as_buffer(bytes([size % 251]) * size))


def test_another_process(server: Server, store: UcxStore) -> None:
    fill(store)
    with Script(server.address, {}, "store.ping_sync()\n" + READS) as script:
        assert script.line() == "0 True"


@as_root
def test_another_user_is_sent_the_values(server: Server, store: UcxStore) -> None:
    fill(store)
    before = "import encodings.idna, zarr.core.sync\n"  # another user may not read these
    become = "os.setgroups([]); os.setgid(65534); os.setuid(65534); store.ping_sync()\n"
    with Script(server.address, {}, before + become + READS) as script:
        assert script.line() == "6 True"


@as_root
def test_other_mounts_are_sent_the_values(server: Server, store: UcxStore) -> None:
    """As in a container of the same user, which the directory would let out."""
    fill(store)
    other = ["unshare", "--mount"]
    if subprocess.run([*other, "true"], check=False).returncode != 0:
        pytest.skip("no mount namespaces here")
    with Script(server.address, {}, "store.ping_sync()\n" + READS, inside=other) as script:
        assert script.line() == "6 True"


# ---- keys ----


def test_keys_do_not_lead_out(store: UcxStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "relative").symlink_to("../secret")
    out = np.full(100, BLANK, "u1")
    for key in ("out", "folder/secret", "relative"):
        with pytest.raises(StorageError):
            store.get_sync(key)
        with pytest.raises(StorageError):
            store.get_into_sync(key, out)
    for key in ("../secret", "a/../../secret", str(tmp_path / "secret"), "./out", "a\0b", ""):
        with pytest.raises(ValueError, match="key"):
            store.get_into_sync(key, out)
    assert (out == BLANK).all()


def test_folders_and_what_is_unfinished_are_no_values(store: UcxStore, root: Path) -> None:
    store.set_sync("a/b", as_buffer(b"value"))
    hidden = "a/.ucxstore-0123456789abcdef.partial"
    (root / hidden).write_bytes(b"half")
    os.mkfifo(root / "fifo")
    for key in ("a", hidden, "fifo", "a/b/c"):
        assert read(store, key) is None
    assert sync(store.getsize("a/b")) == 5


def test_a_folder_that_became_a_link(store: UcxStore, root: Path, tmp_path: Path) -> None:
    store.set_sync("a/b", as_buffer(b"inside"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_bytes(b"outside")
    done = False

    def swap() -> None:
        while not done:
            (root / "a").rename(root / "kept")
            (root / "a").symlink_to(outside)
            (root / "a").unlink()
            (root / "kept").rename(root / "a")

    swapping = Background(swap)
    for _ in range(500):
        with suppress(StorageError):
            assert read(store, "a/b") in (b"inside", None)
    done = True
    swapping.join(20)


# ---- changes ----


def test_replaced_while_it_is_read_by_other_processes(server: Server, store: UcxStore) -> None:
    code = """
for _ in range(150):
    value = store.get_sync("key").to_bytes()
    assert len(set(value)) == 1 and len(value) in (100, 70_000, 3_000_000), len(value)
print("whole", flush=True)
"""
    store.set_sync("key", as_buffer(bytes(100)))
    with Script(server.address, {}, code) as one, Script(server.address, {}, code) as two:
        number = 0
        waiting = Background(lambda: (one.line(), two.line()))
        while waiting.running:
            number += 1
            size = (100, 70_000, 3_000_000)[number % 3]
            store.set_sync("key", as_buffer(bytes([number % 256]) * size))
        assert waiting.result == ("whole", "whole")


def test_what_is_written_is_read_by_the_next(server: Server, store: UcxStore) -> None:
    code = """
for line in sys.stdin:
    value = store.get_sync("key")
    print("none" if value is None else value.to_bytes()[0], flush=True)
"""
    with Script(server.address, {}, code) as script:
        for number in range(200):
            store.set_sync("key", as_buffer(bytes([number]) * (100 if number % 2 else 200_000)))
            script.say("read\n")
            assert script.line() == str(number)
        store.delete_sync("key")
        script.say("read\n")
        assert script.line() == "none"


def test_cut_by_others_while_it_is_read(store: UcxStore, root: Path) -> None:
    model = np.ones((1000, 5000), "u1")
    z = zarr.create_array(store, name="a", data=model, chunks=(500, 5000), compressors=None)
    path = root / "a/c/0/0"
    done = False

    def cut() -> None:
        while not done:
            os.truncate(path, 1_000_000)
            os.truncate(path, 2_500_000)

    cutting = Background(cut)
    whole = 0
    for _ in range(100):
        try:
            found = z[:]
        except (StorageError, ValueError, ServerLostError):
            continue
        whole += 1
        assert set(np.unique(found)) <= {0, 1}
    done = True
    cutting.join(20)
    os.truncate(path, 1_000_000)
    with pytest.raises(ValueError, match="1000000 bytes"):
        z[:]


# ---- ends ----


@pytest.mark.parametrize("call", CALLS)
def test_a_killed_server(call: str, root: Path) -> None:
    with Server.spawn(str(root), local=True) as server, connected(server.address) as store:
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        error, message = Background(calls(store)[call]).failure(20)
        assert issubclass(error, (ServerLostError, ConnectError))
        assert place_of(server) in message


@pytest.mark.parametrize("call", ["get", "get_into", "set", "missing"])
def test_a_server_killed_meanwhile(call: str, root: Path) -> None:
    with Server.spawn(str(root), local=True) as server, connected(server.address) as store:
        repeated = Repeated(calls(store)[call])
        eventually(lambda: repeated.rounds > 3)
        os.kill(server.pid, signal.SIGKILL)
        repeated.mark()
        assert issubclass(repeated.failure(20)[0], (ServerLostError, ConnectError))


def test_nothing_is_found_of_a_server_that_is_gone(root: Path) -> None:
    """Not even before the kernel tells of the end of the socket."""
    for _ in range(5):
        with Server.spawn(str(root), local=True) as server, connected(server.address) as store:
            out = filled(BLANK, 5_000_000)
            assert store.get_into_sync("key", out) == out.size
            os.kill(server.pid, signal.SIGKILL)
            eventually(lambda pid=server.pid: has_ended(pid), pause=0.0)
            small = np.empty(10, "u1")
            assert access_to(store).channel.see("key", small) is None
            with pytest.raises((ServerLostError, ConnectError)):
                store.get_into_sync("key", out)


def test_a_closed_server(root: Path) -> None:
    server = Server(root, local=True)
    with connected(server.address) as store:
        server.close()
        for name, call in calls(store).items():
            error, message = Background(call).failure(20)
            assert issubclass(error, (ServerLostError, ConnectError)), name
            assert place_of(server) in message


def test_a_server_of_the_same_directory_goes_on(root: Path) -> None:
    with Server.spawn(str(root), local=True) as first, connected(first.address) as store:
        place = place_of(first)
        os.kill(first.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        with Server.spawn(str(root), place, local=True), UcxStore(f"ucx://{place}") as other:
            assert read(other, "key") == bytes([VALUE]) * 5_000_000


def test_forks(server: Server) -> None:
    with Script(server.address, {}, FORK) as script:
        assert script.line() == "well"
        script.end()
    eventually(lambda: server.sessions == 0)


def test_a_killed_client(server: Server, store: UcxStore) -> None:
    code = """
store.set_sync("key", as_buffer(filled(VALUE, 20_000_000)))
out = filled(BLANK, 20_000_000)
print("goes", flush=True)
while True:
    store.get_into_sync("key", out)
    store.get_sync("key")
"""
    for _ in range(3):
        with Script(server.address, {}, code) as script:
            assert script.line() == "goes"
            script.kill()
        eventually(lambda: server.sessions == 1)
        assert read(store, "key") == bytes([VALUE]) * 20_000_000


def test_a_client_exits_while_it_reads(server: Server) -> None:
    code = """
store.set_sync("key", as_buffer(filled(VALUE, 50_000_000)))
out = filled(BLANK, 50_000_000)
rounds = []
def forever():
    try:
        while True:
            store.get_into_sync("key", out)
            rounds.append(1)
    except (ServerLostError, ConnectError):  # the interpreter exits
        pass
threading.Thread(target=forever, daemon=True).start()
eventually(lambda: len(rounds) > 2)
"""
    with Script(server.address, {}, code) as script:
        assert script.end() == ""
    eventually(lambda: server.sessions == 0)


def test_no_descriptor_stays_open(server: Server) -> None:
    code = """
store.set_sync("small", as_buffer(b"value"))
store.set_sync("large", as_buffer(filled(VALUE, 5_000_000)))
out = filled(BLANK, 5_000_000)
def use():
    for _ in range(20):
        assert store.get_sync("small").to_bytes() == b"value"
        assert store.get_sync("none") is None
        store.get_into_sync("large", out)
def descriptors():
    return len(os.listdir("/proc/self/fd"))
use()
before = descriptors()
for _ in range(5):
    use()
eventually(lambda: descriptors() == before)
print("well", flush=True)
"""
    own = 0
    for _ in range(4):
        with Script(server.address, {}, code) as script:
            assert script.line() == "well"
            script.end()
        eventually(lambda: server.sessions == 0)
        own = own or descriptors()  # the server keeps some after its first client
    eventually(lambda: descriptors() <= own)


# ---- event loops ----


def test_a_large_read_leaves_the_event_loop_alone(store: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, 50_000_000)))
    out = filled(BLANK, 50_000_000)

    async def work() -> int:
        turns = 0
        reading = asyncio.ensure_future(store.get_into("key", out))
        while not reading.done():
            await loop_turns()
            turns += 1
        assert await reading == out.size
        return turns

    # On a busy machine it can be over before the loop runs again; if it ran on the loop's thread,
    # it would be each time.
    eventually(lambda: asyncio.run(work()) > 20)
    assert (out == VALUE).all()


def test_requests_that_are_cancelled(store: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(VALUE, 20_000_000)))

    async def work() -> None:
        for pause in range(40):
            out = filled(BLANK, 20_000_000)
            reading = asyncio.ensure_future(store.get_into("key", out))
            await loop_turns(pause)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            before = out.copy()
            await loop_turns()
            np.testing.assert_array_equal(out, before)  # nobody writes to it any more

    asyncio.run(work())
    assert read(store, "key") == bytes([VALUE]) * 20_000_000
