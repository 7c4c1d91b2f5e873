"""What ends while the local plane is in use: servers, clients, and processes that fork."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

from tests.adversity.scripts import Script
from tests.adversity.transfers import (
    BLANK,
    VALUE,
    Background,
    Repeated,
    filled,
    wipe,
)
from tests.conftest import place_of
from tests.eventually import eventually, nothing_happens
from tests.stopping import stop
from tests.values import as_buffer
from ucxstore import ConnectError, ServerLostError, ServerRestartedError, UcxStore
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess

PROTOTYPE = default_buffer_prototype()
SIZE = 5_000_000


def connected(address: str) -> UcxStore:
    """Return a store that uses the local plane, with a value under "key"."""
    store = UcxStore(address)
    store.set_sync("key", as_buffer(filled(VALUE, SIZE)))
    assert store.stats()["lanes"] == ["local"]
    return store


def calls(store: UcxStore) -> dict[str, Callable[[], object]]:
    out = filled(BLANK, SIZE)
    return {
        "get": lambda: store.get_sync("key"),
        "get_into": lambda: store.get_into_sync("key", out),
        "missing": lambda: store.get_sync("none"),
        "set": lambda: store.set_sync("other", as_buffer(filled(5, SIZE))),
        "small": lambda: store.set_sync("other", as_buffer(b"small")),
        "await": lambda: asyncio.run(store.get("key", PROTOTYPE)),
        "exists": lambda: asyncio.run(store.exists("key")),
        "delete": lambda: store.delete_sync("other"),
    }


CALLS = ["get", "get_into", "missing", "set", "small", "await", "exists", "delete"]


# ---- servers ----


@pytest.mark.parametrize("call", CALLS)
def test_a_killed_server(call: str) -> None:
    with Server.spawn("memory://", local=True) as server, connected(server.address) as store:
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        attempt = Background(calls(store)[call])
        error, message = attempt.failure(20)
        assert issubclass(error, (ServerLostError, ConnectError))
        assert place_of(server) in message


@pytest.mark.parametrize("call", ["get_into", "set", "small", "missing", "exists"])
def test_a_server_killed_meanwhile(call: str) -> None:
    with Server.spawn("memory://", local=True) as server, connected(server.address) as store:
        repeated = Repeated(calls(store)[call])
        eventually(lambda: repeated.rounds > 3)
        os.kill(server.pid, signal.SIGKILL)
        repeated.mark()
        error, message = repeated.failure(20)
        assert issubclass(error, (ServerLostError, ConnectError))
        assert place_of(server) in message


def test_values_that_are_held_outlive_their_server() -> None:
    with Server.spawn("memory://", local=True) as server, connected(server.address) as store:
        held = store.get_sync("key")
        assert held is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        assert held.to_bytes() == bytes([VALUE]) * SIZE


def test_a_stopped_server_is_given_up_in_time() -> None:
    with (
        Server.spawn("memory://", local=True) as server,
        UcxStore(server.address, timeout=0.5, connect_timeout=30) as store,
    ):
        store.set_sync("key", as_buffer(b"value"))
        stop(server.pid)
        try:
            for call in ("missing", "set", "small", "exists"):
                error, message = Background(calls(store)[call]).failure(20)
                assert issubclass(error, TimeoutError), error
                assert place_of(server) in message
        finally:
            os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: store.get_sync("key") is not None)


def test_a_closed_server() -> None:
    server = Server("memory://", local=True)
    with connected(server.address) as store:
        server.close()
        for name, call in calls(store).items():
            error, message = Background(call).failure(20)
            assert issubclass(error, (ServerLostError, ConnectError)), name
            assert place_of(server) in message


def test_a_server_closed_meanwhile() -> None:
    server = Server("memory://", local=True)
    with connected(server.address) as store:
        repeated = Repeated(calls(store)["set"])
        eventually(lambda: repeated.rounds > 3)
        server.close()
        repeated.mark()
        assert issubclass(repeated.failure(20)[0], (ServerLostError, ConnectError))


def test_clients_leave_a_drained_server() -> None:
    with Server("memory://", local=True) as server, connected(server.address) as store:
        assert server.drain(20.0)
        assert server.sessions == 0
        with pytest.raises(ServerLostError):
            store.get_sync("key")
        other = UcxStore(server.address, ucx={"MAX_EAGER_LANES": 3}, connect_timeout=2)
        with pytest.raises(ConnectError):
            other.get_sync("key")


def start_again(server: ServerProcess, store: UcxStore) -> ServerProcess:
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not store.stats()["lanes"])
    return Server.spawn("memory://", place_of(server), local=True)


def test_a_restarted_server() -> None:
    values = np.arange(10_000).reshape(100, 100)
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        array = zarr.create_array(store, name="a", data=values, chunks=(10, 100), fill_value=-1)
        assert store.stats()["lanes"] == ["local"]
        with start_again(server, store):
            for _ in range(2):
                with pytest.raises(ServerRestartedError, match=place_of(server)):
                    array[...]
                with pytest.raises(ServerRestartedError, match=place_of(server)):
                    array[5] = 0
            store.accept_restarted_sync()
            assert (array[...] == -1).all()
            array[...] = values
            np.testing.assert_array_equal(array[...], values)
            assert store.stats()["lanes"] == ["local"]


# ---- clients ----


def test_the_server_lets_go_of_a_killed_client() -> None:
    code = """
out = filled(BLANK, 5_000_000)
store.set_sync("key", as_buffer(filled(VALUE, 5_000_000)))
assert store.stats()["lanes"] == ["local"]
print("goes", flush=True)
while True:
    store.get_into_sync("key", out)
    held = store.get_sync("key")
    store.set_sync("key", as_buffer(out))
"""
    with Server("memory://", local=True) as server, UcxStore(server.address) as store:
        for _ in range(3):
            with Script(server.address, {}, code) as script:
                assert script.line() == "goes"
                nothing_happens(0.05)  # somewhere in the loop
                script.kill()
            eventually(lambda: server.sessions == (1 if store.stats()["lanes"] else 0))
            assert store.get_sync("key") is not None
            store.set_sync("key", as_buffer(filled(7, SIZE)))
            value = store.get_sync("key")
            assert value is not None
            assert value.to_bytes() == bytes([7]) * SIZE


def test_a_client_exits_in_the_middle() -> None:
    code = """
store.set_sync("key", as_buffer(filled(VALUE, 5_000_000)))
out = filled(BLANK, 5_000_000)
def forever(call):
    try:
        while True:
            call()
    except (ServerLostError, ConnectError):  # the interpreter exits
        pass
rounds = []
def read():
    store.get_into_sync("key", out)
    rounds.append(1)
for call in (read, lambda: store.set_sync("other", as_buffer(out))):
    threading.Thread(target=forever, args=(call,), daemon=True).start()
eventually(lambda: len(rounds) > 2)
"""
    with Server("memory://", local=True) as server:
        with Script(server.address, {}, code) as script:
            assert script.end() == ""
        eventually(lambda: server.sessions == 0)


FORK = """
store.set_sync("key", as_buffer(filled(VALUE, 5_000_000)))
held = store.get_sync("key")
assert store.stats()["lanes"] == ["local"]
def use():
    for turn in range(5):
        key = f"c/{os.getpid()}/{turn}"
        store.set_sync(key, as_buffer(filled(turn, 300_000)))
        out = filled(BLANK, 5_000_000)
        assert store.get_into_sync("key", out) == 5_000_000 and (out == VALUE).all()
        assert store.get_sync(key).to_bytes() == bytes([turn]) * 300_000
    assert store.stats()["lanes"] == ["local"], store.stats()["lanes"]
children = [in_child(use) for _ in range(4)]
use()
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
use()
assert held.to_bytes() == bytes([VALUE]) * 5_000_000
print("well", flush=True)
"""


def test_a_forked_child_connects_anew() -> None:
    with Server("memory://", local=True) as server:
        with Script(server.address, {}, FORK) as script:
            assert script.line() == "well"
            script.end()
        eventually(lambda: server.sessions == 0)


def test_a_child_that_does_nothing_holds_no_session() -> None:
    code = """
store.set_sync("key", as_buffer(b"value"))
child = os.fork()
if child == 0:
    signal.pause()
store.close()
del store
import gc; gc.collect()
print(child, flush=True)
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""
    with Server("memory://", local=True) as server, Script(server.address, {}, code) as script:
        script.line()
        eventually(lambda: server.sessions == 0)
        script.say("end\n")
        script.end()


def test_a_forked_child_of_a_server_closes_what_it_has() -> None:
    code = (
        "import os, time; from ucxstore.server import Server; from ucxstore import UcxStore\n"
        "s = Server('memory://', local=True)\n"
        "store = UcxStore(s.address); store.get_sync('key')\n"
        "pid = os.fork()\n"
        "if pid == 0: s.close(); time.sleep(60); os._exit(0)\n"
        "print(s.address, pid, flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        address, child = parent.stdout.readline().split()
        try:
            with connected(address) as store:
                parent.kill()
                parent.wait()
                eventually(lambda: not store.stats()["lanes"])  # the child keeps no socket open
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_forked_child_changes_nothing_that_a_server_shows() -> None:
    """The arenas, the index and the pins are shared memory: the child has the same."""
    code = """
import gc
server = Server("memory://", local=True)
print(server.address, flush=True)
sys.stdin.readline()
for end in ("leaves", "exits", "closes"):
    child = os.fork()
    if child == 0:
        if end == "closes":
            server.close()
        del server
        gc.collect()
        with Server("memory://", local=True) as mine, UcxStore(mine.address) as its:
            its.set_sync("key", as_buffer(filled(5, 5_000_000)))
            assert (its.get_sync("key").as_numpy_array() == 5).all()
        if end != "leaves":
            sys.exit(0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done", flush=True)
sys.stdin.readline()
server.close()
"""
    with Server("memory://") as unused, Script(unused.address, {}, code) as script:
        with connected(script.line()) as store:
            script.say("fork\n")
            out = filled(BLANK, SIZE)

            def read() -> None:
                wipe(out)
                assert store.get_into_sync("key", out) == SIZE
                assert (out == VALUE).all()

            with Repeated(read) as reading:
                assert script.line() == "done"
                rounds = reading.rounds
                eventually(lambda: reading.rounds > rounds + 3)
                assert reading.error is None
            store.set_sync("key", as_buffer(filled(9, SIZE)))
            assert store.get_into_sync("key", out) == SIZE
            assert (out == 9).all()
            assert store.stats()["lanes"] == ["local"]
        script.say("end\n")
        assert script.end() == ""


# ---- many ----


MANY = """
start, met, end = os.pipe(), os.pipe(), os.pipe()
def use(number):
    os.read(start[0], 1)
    value = str(number).encode() * 10_000
    store.set_sync(f"c/{number}", as_buffer(value))
    assert store.get_sync(f"c/{number}").to_bytes() == value
    assert store.get_sync("key").to_bytes() == bytes(100)
    assert store.stats()["lanes"] == ["local"]
children = []
for number in range(50):
    child = os.fork()
    if child == 0:
        try:
            use(number)
            os.write(met[1], b"y")
            os.read(end[0], 1)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os.write(met[1], b"n")
            os._exit(1)
    children.append(child)
os.write(start[1], bytes(50))
print(sum(os.read(met[0], 1) == b"y" for _ in children), flush=True)
sys.stdin.readline()
os.write(end[1], bytes(50))
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 50
"""


def test_many_processes_connect_at_once() -> None:
    with (
        Server("memory://", local=True, threads=2) as server,
        UcxStore(server.address) as store,
        Script(server.address, {}, MANY) as script,
    ):
        store.set_sync("key", as_buffer(bytes(100)))
        assert script.line() == "50"
        assert server.sessions == 51
        script.say("end\n")
        assert script.end() == ""
        eventually(lambda: server.sessions == 1)
