"""A host that vanishes in the middle of something: no packet tells, and nothing is acknowledged."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.eventually import eventually
from tests.hosts.network import Host

pytestmark = pytest.mark.full  # 25 s until it is noticed, and some to look

SERVES = """
import sys
from ucxstore import Server
with Server("memory://", sys.argv[1], secret="a secret that is long") as server:
    print("serves", flush=True)
    for _ in sys.stdin:
        print(server.sessions, flush=True)
"""

ASKS = """
import itertools, sys
from ucxstore import UcxStore
from ucxstore.base.zarr_compat import cpu
store = UcxStore(sys.argv[1], secret="a secret that is long", timeout=120, connect_timeout=2)
store.set_sync("key", cpu.Buffer.from_bytes(bytes(1_000_000)))
out = bytearray(1_000_000)
try:
    for number in itertools.count():
        store.get_into_sync("key", out)
        if number == 50:
            print("asks", flush=True)
except ConnectionError as error:
    print(error, flush=True)
"""

# Until the kernel's keepalive or a look at what was acknowledged tells: 25 s and a look every 5 s.
NOTICED = 40


@contextmanager
def running(host: Host, code: str, argument: str) -> "Iterator[subprocess.Popen[str]]":
    command = [*host.inside, sys.executable, "-c", code, argument]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                host.end(process.pid, signal.SIGKILL)


def hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def sessions(server: "subprocess.Popen[str]") -> int:
    assert server.stdin is not None
    server.stdin.write("?\n")
    server.stdin.flush()
    return int(hear(server))


def test_both_ends_notice(hosts: Sequence[Host]) -> None:
    serving, using, *_ = hosts
    with (
        running(serving, SERVES, serving.place) as server,
        running(using, ASKS, serving.address) as client,
    ):
        assert hear(server) == "serves"
        assert hear(client) == "asks"
        assert sessions(server) == 1
        using.cut(serving.ip)
        serving.cut(using.ip)
        try:
            begun = time.monotonic()
            eventually(lambda: sessions(server) == 0, NOTICED)
            assert hear(client) == f"{serving.place}: the server is gone"
            assert client.wait(NOTICED) == 0
            assert time.monotonic() < begun + NOTICED
        finally:
            using.mend(serving.ip)
            serving.mend(using.ip)
