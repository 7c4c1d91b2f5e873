"""Processes that end, fork and are forked in mid-transfer."""

import os
import signal

import pytest

from tests.adversity.conftest import StartServer, Ucx
from tests.adversity.scripts import Script
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import VALUE, filled
from tests.adversity.ways import over_ucx
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import UcxStore


@pytest.fixture
def store(store: UcxStore) -> UcxStore:
    store.set_sync("key", as_buffer(filled(VALUE)))
    store.set_sync("medium", as_buffer(filled(VALUE, 5_000_000)))
    return store


IN_THE_BACKGROUND = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
out = filled(BLANK)
failures = []
def read():
    try:
        while True:
            wipe(out)
            assert store.get_into_sync("key", out) == LARGE
            assert (out == VALUE).all()
    except (ServerLostError, ConnectError):  # the interpreter exits, or the server has ended
        pass
    except BaseException as error:
        failures.append(error)
        raise
def write():
    value = as_buffer(filled(5))
    try:
        while True:
            store.set_sync("written", value)
    except (ServerLostError, ConnectError):  # the interpreter exits, or the server has ended
        pass
def reads():
    mine = filled(BLANK, 5_000_000)
    assert store.get_into_sync("medium", mine) == 5_000_000
    assert (mine == VALUE).all()
    async def main():
        return await asyncio.gather(*(store.getsize("key") for _ in range(10)))
    assert set(asyncio.run(main())) == {LARGE}
def in_the_background(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    eventually(lambda: begun(out) if call is read else store.stats()["bytes_written"], pause=0.0)
    return thread
"""


@pytest.mark.parametrize("call", ["read", "write"])
def test_the_interpreter_exits(server: RemoteServer, store: UcxStore, ucx: Ucx, call: str) -> None:
    with Script(server.address, ucx, IN_THE_BACKGROUND + f"in_the_background({call})") as script:
        assert script.end() == ""
    eventually(lambda: server.sessions == 1)
    assert store.get_sync("key") is not None


ANSWERED_SLOWLY = """
import subprocess
from ucxstore.server.operating import Operating
begun = threading.Event()
def answer_slowly(*_):
    begun.set()
    end = time.monotonic() + 5
    while time.monotonic() < end:
        nothing_happens(0.001)
Operating.__call__ = answer_slowly
mine = Server("memory://")
asking = [sys.executable, "-m", "ucxstore", "sessions", mine.address]
threading.Thread(target=subprocess.run, args=(asking,), kwargs={"stderr": -3}, daemon=True).start()
assert begun.wait(60)
"""


def test_the_interpreter_exits_while_it_answers_an_operator(server: RemoteServer, ucx: Ucx) -> None:
    """Its handler has the GIL of a thread of the server's, which the interpreter does not know."""
    with Script(server.address, ucx, ANSWERED_SLOWLY) as script:
        assert script.end() == ""


def test_the_interpreter_exits_before_its_threads_have_the_gil_again(
    server: RemoteServer, store: UcxStore, ucx: Ucx
) -> None:
    """Requests that end at exit wake their threads up while the interpreter is finalized."""
    code = """
def read_small():
    try:
        while True:
            store.get_sync("small")
    except (ServerLostError, ConnectError):
        pass
store.set_sync("small", as_buffer(b"small"))
for _ in range(50):
    threading.Thread(target=read_small, daemon=True).start()
eventually(lambda: store.stats()["bytes_read"] > 5_000)
"""
    for _ in range(3):
        with Script(server.address, ucx, code) as script:
            assert script.end() == ""
    eventually(lambda: server.sessions == 1)


def test_the_interpreter_exits_with_awaited_requests(
    server: RemoteServer, store: UcxStore, ucx: Ucx
) -> None:
    code = """
out = filled(BLANK)
import warnings
warnings.simplefilter("ignore")  # of a loop that nobody closed
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)  # of tasks that nobody awaited
tasks = [loop.create_task(store.get_into("key", out)) for _ in range(3)]
wipe(out)
while not partly_filled(out):
    loop.call_soon(loop.stop)
    loop.run_forever()
"""
    with Script(server.address, ucx, code) as script:
        script.end()
    eventually(lambda: server.sessions == 1)
    assert store.get_sync("key") is not None


def test_forks_in_mid_transfer(server: RemoteServer, store: UcxStore, ucx: Ucx) -> None:
    code = """
reading = in_the_background(read)
for _ in range(3):
    until_begun(out)
    children = [in_child(reads) for _ in range(2)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
assert reading.is_alive() and not failures
store.set_sync("parent", as_buffer(b"goes on"))
print(store.get_sync("parent").to_bytes(), flush=True)
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.line() == "b'goes on'"
        script.end()
    eventually(lambda: server.sessions == 1)


def test_a_forked_child_exits_as_an_interpreter_does(
    server: RemoteServer, store: UcxStore, ucx: Ucx
) -> None:
    """The child does not call os._exit: it runs everything that is registered for exit."""
    code = """
in_the_background(read)
for uses in (True, False):
    child = os.fork()
    if child == 0:
        if uses:
            reads()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
until_begun(out)
assert not failures
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.end() == ""


def test_grandchildren(server: RemoteServer, store: UcxStore, ucx: Ucx) -> None:
    code = """
in_the_background(read)
def versions(left):
    reads()
    if left:
        assert os.waitpid(in_child(lambda: versions(left - 1)), 0)[1] == 0
    reads()
versions(2)
assert not failures
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.end() == ""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools(server: RemoteServer, store: UcxStore, ucx: Ucx, method: str) -> None:
    code = f"""
in_the_background(read)
context = multiprocessing.get_context({method!r})
with context.Pool({2 if method == "fork" else 1}) as pool:
    found = pool.starmap(UcxStore.get_sync, [(store, "small")] * 6)
assert [one.to_bytes() for one in found] == [b"value"] * 6
assert not failures
"""
    store.set_sync("small", as_buffer(b"value"))
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.end() == ""
    eventually(lambda: server.sessions == 1)


@over_ucx
def test_forks_while_another_thread_maps_memory(
    server: RemoteServer, store: UcxStore, ucx: Ucx
) -> None:
    """A thread is inside UCX's hook on mmap; the child inherits its lock for ever."""
    code = """
import ctypes
assert store.get_sync("medium") is not None  # the hooks are there
ucm = ctypes.CDLL("libucm.so.0", os.RTLD_NOLOAD)
ucm.ucm_event_enter()  # as the hook does
def with_a_deadline():
    signal.alarm(10)
    reads()
    store.set_sync("from a child", as_buffer(filled(5)))
child = in_child(with_a_deadline)
ended = os.waitpid(child, 0)[1]
ucm.ucm_event_leave()
assert ended == 0, ended
reads()
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.end() == ""
    eventually(lambda: server.sessions == 1)


def test_the_parent_dies_and_a_child_lives(server: RemoteServer, store: UcxStore, ucx: Ucx) -> None:
    code = """
in_the_background(read)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(writer)
    os.read(reader, 1)  # until the parent is gone
    nothing_happens(60)
    os._exit(0)
print(child, flush=True)
nothing_happens(60)
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        child = int(script.line())
        try:
            assert server.sessions == 2
            script.kill()
            eventually(lambda: server.sessions == 1)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
    assert store.get_sync("key") is not None


def test_the_server_dies_and_a_forked_child_finds_out_itself(
    start_server: StartServer, ucx: Ucx
) -> None:
    server = start_server()
    code = """
store.set_sync("key", as_buffer(filled(VALUE)))
store.set_sync("medium", as_buffer(filled(VALUE, 5_000_000)))
reading = in_the_background(read)
def outlives():
    reads()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        store.get_sync("key")
    except (ServerLostError, ConnectError) as error:
        print("child:", type(error).__name__, flush=True)
child = in_child(outlives)
reading.join()
assert os.waitpid(child, 0)[1] == 0
"""
    with Script(server.address, ucx, IN_THE_BACKGROUND + code) as script:
        assert script.line() == "ready"
        server.process.kill()
        script.say("the server is dead\n")
        assert script.end() in {"child: ServerLostError\n", "child: ConnectError\n"}
