"""`z[...]` of large raw chunks: mapped where that is less work, and still the caller's own."""

import gc
import os
import signal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.fixtures import store_of_the_server as store_of_the_server
from tests.local.servers import local_server_of_its_own as local_server_of_its_own
from tests.local.shown import held, waiting
from ucxstore import UcxStore
from ucxstore.server import Server

PIECE = 2 << 20


def values(nbytes: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, "u1")


def create(store: Any, x: npt.NDArray[Any], chunks: Any, name: str = "a") -> Any:
    return zarr.create_array(
        store, name=name, data=x, chunks=chunks, compressors=None, overwrite=True
    )


def mapped(z: Any, selection: Any = ...) -> npt.NDArray[Any]:
    """Return what is selected, of which something is mapped."""
    before = z.store.stats()["mapped"]
    found: npt.NDArray[Any] = z[selection]
    assert z.store.stats()["mapped"] > before
    return found


@pytest.mark.parametrize("nbytes", [8 * PIECE, 10 * PIECE + 1, 20_000_001, 9 * PIECE - 5000])
def test_one_chunk(store: UcxStore, nbytes: int) -> None:
    x = values(nbytes)
    z = create(store, x, (nbytes,))
    found = mapped(z)
    np.testing.assert_array_equal(found, x)
    assert found.flags.writeable
    assert type(found) is np.ndarray
    before = store.stats()
    np.testing.assert_array_equal(z[...], x)
    after = store.stats()
    assert after["mapped"] - before["mapped"] == 1
    assert after["direct"] == before["direct"]
    assert after["bytes_read"] - before["bytes_read"] == nbytes
    assert after["staged_bytes"] == before["staged_bytes"]


def test_chunks_along_the_first_axis(store: UcxStore) -> None:
    x = values(40 * PIECE).reshape(40, PIECE)
    z = create(store, x, (10, PIECE))
    np.testing.assert_array_equal(z[...], x)
    assert store.stats()["mapped"] == 4
    np.testing.assert_array_equal(z[3:37], x[3:37])
    np.testing.assert_array_equal(z[::2], x[::2])


def test_chunks_that_begin_between_pages(store: UcxStore) -> None:
    x = values(30_000_000).reshape(30, 1_000_000)
    z = create(store, x, (10, 1_000_000))
    mapped(z)  # the first chunk
    np.testing.assert_array_equal(z[...], x)
    np.testing.assert_array_equal(z[:, 5:1000], x[:, 5:1000])


def test_chunks_that_begin_between_huge_pages(server: Server) -> None:
    with UcxStore(server.address) as store:
        x = values(30 * 1_228_800).reshape(30, 1_228_800)
        z = create(store, x, (10, 1_228_800))
        found = z[...]
        assert store.stats()["mapped"] == 3
        np.testing.assert_array_equal(found, x)
        found[11] = 7
        np.testing.assert_array_equal(z[...], x)
        np.testing.assert_array_equal(z[3:27], x[3:27])
        x = values(30_000_000).reshape(30, 1_000_000)  # no whole pages
        z = create(store, x, (10, 1_000_000))
        np.testing.assert_array_equal(z[...], x)


def test_the_result_is_the_readers_own(store: UcxStore) -> None:
    x = values(20_000_000)
    z = create(store, x, x.shape)
    first, second = mapped(z), mapped(z)
    first[...] = 7
    first[12345:4_000_000:999] = 8
    second[::4096] ^= 255
    expected = x.copy()
    expected[::4096] ^= 255
    np.testing.assert_array_equal(second, expected)
    assert set(np.unique(first)) == {7, 8}
    np.testing.assert_array_equal(z[...], x)
    with store.view_array_sync(z, map=True) as view:
        np.testing.assert_array_equal(view.array, x)
    first.sort()
    np.testing.assert_array_equal(z[...], x)


def test_it_stays_as_it_is(server: Server) -> None:
    store = UcxStore(server.address)
    x = values(20_000_000)
    z = create(store, x, x.shape)
    found = mapped(z)
    for seed in range(1, 6):
        z[...] = values(20_000_000, seed)
    np.testing.assert_array_equal(z[...], values(20_000_000, 5))
    np.testing.assert_array_equal(found, x)
    assert waiting(store) >= 20_000_000
    del found
    gc.collect()
    eventually(lambda: waiting(store) == 0)
    found = mapped(z)
    eventually(lambda: held(store) >= 20_000_000)
    store.delete_sync("a/c/0")
    server.close()
    np.testing.assert_array_equal(found, values(20_000_000, 5))


def test_it_stays_when_the_server_is_killed() -> None:
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        x = values(20_000_000)
        found = mapped(create(store, x, x.shape))
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        np.testing.assert_array_equal(found, x)
        found += 1
        np.testing.assert_array_equal(found, x + np.uint8(1))


def test_parts_of_a_result_keep_it(store: UcxStore) -> None:
    x = values(20_000_000)
    z = create(store, x, x.shape)
    part = mapped(z)[5_000_000:5_000_100]
    z[...] = 0
    z[...] = 1
    assert waiting(store) >= 20_000_000
    np.testing.assert_array_equal(part, x[5_000_000:5_000_100])
    del part
    eventually(lambda: waiting(store) == 0)


def test_memory_that_is_read_into_again_is_not_mapped(store: UcxStore) -> None:
    """Its user keeps it: after the first time a copy is better."""
    x = values(20_000_000)
    z = create(store, x, x.shape)
    mapped(z)
    out = zarr.core.buffer.default_buffer_prototype().nd_buffer.empty(x.shape, x.dtype)
    for turn in range(3):
        before = store.stats()
        z.get_basic_selection(..., out=out)
        np.testing.assert_array_equal(out.as_numpy_array(), x)
        after = store.stats()
        assert after["mapped"] - before["mapped"] == (turn == 0)
        assert after["direct"] - before["direct"] == (turn > 0)


@pytest.mark.parametrize("mapping", [False, True])
def test_as_the_store_says(server: Server, store: UcxStore, mapping: bool) -> None:
    x = values(12 * PIECE).reshape(12, PIECE)
    z = create(store, x, (2, PIECE))  # chunks that are too small for "auto"
    big = create(store, values(20_000_000), (20_000_000,), "b")
    mapped(big)
    other = UcxStore(server.address, map=mapping)
    theirs = zarr.open_array(other, path="a", mode="r")
    if mapping:
        np.testing.assert_array_equal(mapped(theirs), x)
    for array, expected in ((theirs, x), (zarr.open_array(other, path="b", mode="r"), big[...])):
        np.testing.assert_array_equal(array[...], expected)
    assert (other.stats()["mapped"] > 0) == mapping
    before = store.stats()["mapped"]
    np.testing.assert_array_equal(z[...], x)
    assert store.stats()["mapped"] == before


def test_small_results_are_copied(store: UcxStore) -> None:
    x = values(7 * (1 << 20))
    z = create(store, x, x.shape)
    mapped(create(store, values(20_000_000), (20_000_000,), "b"))
    before = store.stats()["mapped"]
    np.testing.assert_array_equal(z[...], x)
    assert store.stats()["mapped"] == before


def test_what_may_be_held_bounds_it() -> None:
    with Server("memory://", local=True, mapped_limit=45_000_000) as server:
        store = UcxStore(server.address)
        arrays = [create(store, values(20_000_000, n), (20_000_000,), str(n)) for n in range(3)]
        results = [mapped(z) for z in arrays[:2]]
        before = store.stats()["mapped"]
        np.testing.assert_array_equal(arrays[2][...], values(20_000_000, 2))
        assert store.stats()["mapped"] == before
        np.testing.assert_array_equal(results[0], values(20_000_000))
        del results
        mapped(arrays[2])


def test_a_fork_has_its_own(server: Server) -> None:
    code = """
import zarr
from zarr.core.sync import sync
def waiting():
    return sync(store.server_stats())["arena_bytes_waiting"]
x = np.random.default_rng(0).integers(0, 256, 20_000_000, "u1")
z = zarr.create_array(store, name="a", data=x, chunks=x.shape, compressors=None)
result = z[...]
assert store.stats()["mapped"] == 1
(ear, mouth), (told, tells) = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    os.close(mouth)  # so that it ends with its parent, whatever that ends of
    try:
        assert os.read(ear, 1) == b"x"
        assert (result == x).all()
        result[::4096] = 5
        assert (result[1::4096] == x[1::4096]).all()
        del result
        os.write(tells, b"y")
        os.read(ear, 1)
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
os.close(tells)
result[5] = x[5] + 1
del result
for byte in range(5):
    z[...] = byte
assert waiting() >= 20_000_000
os.write(mouth, b"x")
assert os.read(told, 1) == b"y"
eventually(lambda: waiting() == 0)
os.write(mouth, b"x")
assert os.waitpid(pid, 0)[1] == 0
print("well", flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "well"
        assert script.end() == ""


def test_processes_share_the_memory(server: Server, store: UcxStore) -> None:
    """What is mapped and not written to is there once, however many have it, at once."""
    code = """
import zarr
z = zarr.open_array(store, path="a", mode="r")
result = z[...]
assert store.stats()["mapped"] == 1
total = int(result.sum(dtype="u8"))
def proportional():
    begin = result.__array_interface__["data"][0]
    sizes = []
    with open("/proc/self/smaps") as file:
        inside = False
        for line in file:
            head = line.split()[0]
            if "-" in head and not head.endswith(":"):
                low, high = (int(part, 16) for part in head.split("-"))
                inside = low < begin + result.nbytes and begin < high
            elif inside and head == "Pss:":
                sizes.append(int(line.split()[1]) * 1024)
    return sum(sizes)
print(total, flush=True)
sys.stdin.readline()
print(proportional(), flush=True)
sys.stdin.readline()
"""
    x = values(40_000_000)
    scripts = [Script(server.address, {}, f"sys.stdin.readline()\n{code}") for _ in range(4)]
    create(store, x, x.shape)
    try:
        for script in scripts:
            script.say("read\n")
        assert {script.line() for script in scripts} == {str(int(x.sum(dtype="u8")))}
        for script in scripts:
            script.say("measure\n")
        shares = [int(script.line()) for script in scripts]
        assert sum(shares) < 1.1 * x.nbytes
    finally:
        for script in scripts:
            with script:
                pass
