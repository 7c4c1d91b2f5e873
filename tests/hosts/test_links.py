"""Links that go dead while something is read, and come back."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hosts.conftest import RunOn
from tests.hosts.network import Host

SETUP = """
values = np.random.default_rng(5).integers(0, 1000, (1200, 1000), "i4")
array = zarr.create_array(
    store, name="a", data=values, chunks=(150, 125), fill_value=-1, compressors=None
)
"""

SHARED = (
    """
store = UcxStore(store.address)  # with timeouts as they are, which leave time to notice a dead link
"""
    + SETUP
    + """
rounds = 0
def read():
    global rounds
    while True:
        np.testing.assert_array_equal(array[...], values)
        rounds += 1
def go_on():
    before = rounds
    eventually(lambda: rounds > before + 2 or not reading.is_alive(), 60)
    assert reading.is_alive()
def asked():
    return store.stats()["servers"][{lost!r}]["requests"]
reading = threading.Thread(target=read, daemon=True)
reading.start()
go_on()
print("reads", flush=True)
sys.stdin.readline()
eventually(lambda: store.stats()["servers"][{lost!r}].get("failovers"), 60)
go_on()
before = asked()
print("has gone on without it", flush=True)
sys.stdin.readline()
eventually(lambda: asked() > before + 2, 60)
go_on()
os._exit(0)
"""
)

VOLATILE = (
    """
store = UcxStore(store.address, connect_timeout=5)
"""
    + SETUP
    + """
def read_chunks():
    # Each chunk is what it was, or an error that names the server and the chunk.
    lost = 0
    for i in range(8):
        for j in range(8):
            chunk = slice(150 * i, 150 * (i + 1)), slice(125 * j, 125 * (j + 1))
            try:
                found = array[chunk]
            except ConnectionError as error:
                assert {lost!r} in str(error), error
                assert f"'a/c/{{i}}/{{j}}'" in str(error), error
                lost += 1
            else:
                np.testing.assert_array_equal(found, values[chunk])
    return lost
assert read_chunks() == 0
print("reads", flush=True)
sys.stdin.readline()
try:
    array[...]
except ConnectionError as error:
    assert {lost!r} in str(error) and "'a/c/" in str(error), error
else:
    raise AssertionError("read without the server")
assert 0 < read_chunks() < 64
print("is without it", flush=True)
sys.stdin.readline()
def is_back():
    try:
        return store.get_sync("a/zarr.json") and not read_chunks()
    except ConnectionError:
        return False
eventually(is_back, 60, pause=0.2)
np.testing.assert_array_equal(array[...], values)
"""
)


@pytest.mark.scales
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "volatile"])
def test_a_link_goes_dead_in_mid_read(
    hosts: Sequence[Host], run_on: RunOn, tmp_path: Path, shared: bool
) -> None:
    reading, *serving = hosts
    lost = serving[1]
    address = f"ucx://{','.join(host.place for host in serving)}"
    with ExitStack() as stack:
        for host in serving:
            root = (tmp_path / "data", "--shared", "--create") if shared else ("memory://",)
            # The shared script exits in the middle of a read: any of them may miss it.
            loses_client = shared or host is lost
            stack.enter_context(host.serving(*root, loses_client=loses_client))
        code = (SHARED if shared else VOLATILE).format(lost=lost.place)
        script = run_on(reading, address, code)
        assert script.line() == "reads"
        lost.unplug()
        try:
            script.say("unplugged\n")
            assert script.line() in {"has gone on without it", "is without it"}
        finally:
            lost.plug()
        script.say("plugged\n")
        assert script.end(60) == ""
