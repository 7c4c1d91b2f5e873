"""Children that are forked while other threads read, connect or import: each of them comes back.

A child finds every lock as its parent's other threads had it at the fork. So it hangs, rarely, if
one lock is forgotten. These tests fork often, and where it is worst.
"""

from collections.abc import Iterator

import pytest

from tests.adversity.scripts import Script
from tests.adversity.ways import WAYS, any_way, most_ways, spawn
from tests.values import as_buffer
from ucxstore import UcxStore

COMMON = """
import faulthandler, queue
PATIENCE = 30
lost = []
def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)  # its default ends a process that waits for a lock, too
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return child
def come_back(children):
    for child in children:
        status = os.waitpid(child, 0)[1]
        if status:
            lost.append((child, status))
def reads():
    assert bytes(store.get_sync("key").to_bytes()) == b"value" * 1000
    assert store.stats()["bytes_read"] > 0
over = False
def keep_reading():
    while not over:
        store.get_sync("key")
        asyncio.run(store.get("key", prototype))
        store.stats()
from zarr.core.buffer import default_buffer_prototype
prototype = default_buffer_prototype()
"""


@pytest.fixture
def address(way: str) -> Iterator[str]:
    with spawn(way, "memory://") as server:
        with UcxStore(server.address, ucx=WAYS[way].get("ucx", {})) as store:
            store.set_sync("key", store_value())
        yield server.address


def store_value() -> object:

    return as_buffer(b"value" * 1000)


@pytest.fixture(autouse=True)
def the_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto" if way == "local" else "ucx")
    monkeypatch.setenv("UCX_LOG_LEVEL", "fatal")  # a child may do without a cache of UCX


@pytest.mark.parametrize("forks", [40, pytest.param(400, marks=pytest.mark.full)])
@any_way
def test_forks_beside_reading_threads(way: str, address: str, forks: int) -> None:
    """Threads take turns as often as Python lets them, so that many are under a lock."""
    code = f"""
sys.setswitchinterval(1e-6)
reads()
threads = [threading.Thread(target=keep_reading) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range({forks} // 8):
    come_back([in_child(reads) for _ in range(8)])
over = True
for thread in threads:
    thread.join()
assert not lost, lost
reads()
"""
    with Script(address, WAYS[way].get("ucx", {}), COMMON + code) as script:
        assert script.end(200) == ""


@pytest.mark.parametrize("every", [97, pytest.param(7, marks=pytest.mark.full)])
@most_ways
def test_a_fork_at_each_step_of_a_first_use(way: str, address: str, every: int) -> None:
    """Each step is a line of ours in Python, at which the thread stands while its process forks.

    It stands at each line with a lock of ours held, and at some of the others.
    """
    ucx = WAYS[way].get("ucx", {})
    code = f"""
ucx = {ucx!r}
steps, forked = queue.SimpleQueue(), queue.SimpleQueue()
from ucxstore.base import process
number, stood = 0, set()
def trace(frame, event, _):
    global number
    if "/ucxstore/" not in frame.f_code.co_filename:
        return None
    if event == "line":
        number += 1
        line = frame.f_code.co_filename, frame.f_lineno
        locked = line not in stood and any(each.locked() for each in list(process._locks))
        if locked or number % {every} == 0:
            stood.add(line)
            steps.put(frame.f_code.co_qualname)
            forked.get()
    return trace
def first_use():
    sys.settrace(trace)
    try:
        for _ in range(3):
            store.get_sync("key")
            asyncio.run(store.get("key", prototype))
            mine = UcxStore(store.address, ucx=ucx, timeout=20)
            mine.get_sync("key")
            asyncio.run(mine.get("key", prototype))
            mine.stats()
            mine.close()
    finally:
        sys.settrace(None)
        steps.put(None)
thread = threading.Thread(target=first_use, daemon=True)
thread.start()
children = 0
while (step := steps.get()) is not None:
    if not process.is_importing():  # a fork would wait for that
        come_back([in_child(reads)])
        children += 1
    assert not lost, (step, lost)
    forked.put(None)
thread.join()
assert children >= 10, children
"""
    with Script(address, ucx, COMMON + code) as script:
        assert script.end(200) == ""


@pytest.mark.parametrize("way", ["local"])
def test_a_fork_while_a_module_is_imported(way: str, address: str) -> None:
    """Python has a lock for each module, which a child inherits as it is."""
    code = """
import importlib.abc, importlib.util
begun = queue.SimpleQueue()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "ucxstore.filesystem":
            begun.put(None)
            sys.meta_path.remove(self)
            nothing_happens(0.3)
            return importlib.util.find_spec(name)
def importing():
    import ucxstore.filesystem
sys.modules.pop("ucxstore.filesystem", None)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=importing, daemon=True)
thread.start()
begun.get()
come_back([in_child(importing)])
thread.join()
assert not lost, lost
"""
    with Script(address, {}, COMMON + code) as script:
        assert script.end(120) == ""
