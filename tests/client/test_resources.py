"""A client that runs out of descriptors or memory says so, and blames no server's storage."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.adversity.transfers import filled
from tests.values import as_buffer
from ucxstore import OutOfMemoryError, UcxStore
from ucxstore.base.native import core
from ucxstore.server import Server

LARGE = 256 << 20

# Each prints the failure of its last call, and what it is by Python's own names.
BEGIN = """
import asyncio, os, resource, sys
from ucxstore import UcxStore
from ucxstore.base.native import core
from ucxstore.client.loops import current_queue
core.ucx_version()  # UCX is loaded by now: its files could not be opened later
store = UcxStore(sys.argv[1])
def say(call):
    try:
        call()
    except Exception as error:
        bases = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
        print(type(error).__name__, ",".join(bases), error)
def use_up():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        pass
"""

CONNECT = """
use_up()
say(lambda: store.get_sync("key"))
"""

AWAIT = """
store.get_sync("key")
async def read():
    use_up()
    await store.get("key")
say(lambda: asyncio.run(read()))
"""

READ = """
store.get_sync("key")
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
say(lambda: store.get_sync("large"))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert store.get_sync("key") is not None
"""


@pytest.fixture
def address() -> Iterator[str]:
    with Server("memory://") as server, UcxStore(server.address) as store:
        store.set_sync("key", as_buffer(b"value"))
        store.set_sync("large", as_buffer(filled(1, LARGE)))
        yield server.address


def said_by(code: str, address: str) -> str:
    command = [sys.executable, "-c", BEGIN + code, address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


def test_no_descriptor_is_left_to_connect(address: str) -> None:
    said = said_by(CONNECT, address)
    assert said.startswith("ConnectError ConnectionError,OSError,")
    assert address.removeprefix("ucx://") in said


def test_no_descriptor_is_left_for_an_event_loop(address: str) -> None:
    said = said_by(AWAIT, address)
    assert said.startswith("ResourceError OSError,")
    assert "Too many open files" in said


def test_no_memory_is_left_for_a_value(address: str) -> None:
    said = said_by(READ, address)
    assert said.startswith("OutOfMemoryError MemoryError,")
    assert "protocol" not in said


def test_a_value_that_no_memory_holds() -> None:
    with pytest.raises(OutOfMemoryError, match="any memory"):
        core.allocate((1 << 64) - 1)
