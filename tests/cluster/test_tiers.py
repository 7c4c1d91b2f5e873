"""Servers of one server: which orders of reads and writes clients of them see."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.clients import Clients
from tests.conftest import address_of
from tests.eventually import eventually, nothing_happens
from tests.values import read, write
from ucxstore import UcxStore
from ucxstore.server import Server

type Start = Callable[..., Any]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def make(*args: Any, spawn: bool = False, **options: Any) -> Any:
            return stack.enter_context((Server.spawn if spawn else Server)(*args, **options))

        yield make


def source_of(kind: str, start: Start, folder: Path) -> Any:
    """Start servers that are a source; return their address."""
    match kind:
        case "memory":
            return start("memory://").address
        case "directory":
            return start(folder).address
        case _:
            return address_of([start("memory://") for _ in range(3)])


@pytest.mark.parametrize("kind", ["memory", "directory", "set"])
@pytest.mark.parametrize("faults", ["none", "kill -9", "joins and leaves"])
def test_each_key_is_linearizable(kind: str, faults: str, start: Start, tmp_path: Path) -> None:
    """Through all servers of a source. Nobody writes to the source past them."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    address = source_of(kind, start, tmp_path)
    servers = [start(address, spawn=True), start(address), start(address)]
    with ExitStack() as stack:

        def connect(*some: Any, **options: Any) -> UcxStore:
            return stack.enter_context(UcxStore(address_of(some), **options))

        stores = [
            connect(*servers),
            connect(servers[2], servers[0]),
            connect(servers[1], local="auto"),
            connect(servers[2], local="off"),
        ]
        with Clients(stores, seed) as clients:
            nothing_happens(1.5)
            if faults == "kill -9":
                os.kill(servers[0].pid, signal.SIGKILL)
                nothing_happens(2)
            elif faults == "joins and leaves":
                for _ in range(2):
                    with Server(address) as guest, Clients([connect(guest)], seed + 99) as more:
                        nothing_happens(0.7)
                    for key, history in more.history.items():
                        clients.history[key] += history
            nothing_happens(1)
        clients.check(seed)


@pytest.mark.parametrize("kind", ["memory", "directory", "set"])
def test_with_writes_to_the_source_itself(kind: str, start: Start, tmp_path: Path) -> None:
    """Servers that ask each time keep the promise for those that write to their source, too."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    address = source_of(kind, start, tmp_path)
    servers = [start(address, freshness="always") for _ in range(2)]
    with ExitStack() as stack:
        stores = [
            stack.enter_context(UcxStore(one))
            for one in (servers[0].address, servers[1].address, address, address)
        ]
        with Clients(stores, seed) as clients:
            nothing_happens(3)
        clients.check(seed)


def test_a_write_to_the_source_itself_is_seen_after_the_freshness(start: Start) -> None:
    """And not before: the servers answer from their caches, as the page on consistency says."""
    source = start("memory://")
    servers = [start(source.address), start(source.address, freshness=1.0)]
    with (
        UcxStore(source.address) as direct,
        UcxStore(servers[0].address) as lasting,
        UcxStore(servers[1].address) as bounded,
    ):
        write(direct, "k", b"old")
        assert read(lasting, "k") == read(bounded, "k") == b"old"
        write(direct, "k", b"new")
        changed = time.monotonic()
        eventually(lambda: read(bounded, "k") == b"new")
        assert time.monotonic() - changed < 3.0
        assert read(lasting, "k") == b"old"
        write(lasting, "k", b"newer")  # what goes through one of them reaches all
        assert read(bounded, "k") == read(lasting, "k") == read(direct, "k") == b"newer"
