"""Servers that decode: which orders of reads and writes of chunks their clients see.

As in `tests/cluster/test_consistency.py` and `test_tiers.py`, but of what was decoded. Limits are
so small that chunks are given up and decoded anew all the time.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore
from zarr.storage import LocalStore as FileStore

from tests.conftest import address_of
from tests.decoded.chunk_clients import LIMIT, ChunkClients, make_array
from ucxstore import UcxStore
from ucxstore.base.errors import ShardError
from ucxstore.server import Server

type Start = Callable[..., Any]
type Connect = Callable[..., UcxStore]

KINDS = ["directory", "bucket", "tiers"]


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(1 << 32)
    print("seed", drawn)
    return drawn


@pytest.fixture
def location(kind: str, start: Start, tmp_path: Path) -> Any:
    """Something that several servers may serve: a directory, a bucket, or another server."""
    match kind:
        case "directory":
            return tmp_path
        case "bucket":
            (tmp_path / "bucket").mkdir()
            return LocalStore(tmp_path / "bucket")
    return start("memory://", decoded=None).address


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers that decode; `spawn=True` in a process of its own."""
    with ExitStack() as stack:

        def make(location: Any, *, spawn: bool = False, **options: Any) -> Any:
            begin = Server.spawn if spawn else Server
            return stack.enter_context(begin(location, **{"decoded": LIMIT, **options}))

        yield make


@pytest.fixture
def connect(local: bool) -> Iterator[Connect]:
    with ExitStack() as stack:

        def make(*servers: Any, **options: Any) -> UcxStore:
            return stack.enter_context(UcxStore(address_of(servers), **{"timeout": 60, **options}))

        yield make


def check_servers(servers: list[Any]) -> None:
    """See that they have decoded what was read, and given it up."""
    each = [server.stats() for server in servers]
    for stats in each:
        assert stats["decoded"] > 5
        assert stats["decoded_evicted"] > 0
        assert stats["decodes_failed"] == 0
        assert stats["decoded_bytes"] <= stats["decoded_limit"] == 1 << 20
    assert sum(stats["decoded_hits"] for stats in each) > 0


def check_errors(clients: ChunkClients) -> None:
    """See that nothing failed but reads of shards that were replaced again and again meanwhile."""
    assert not [error for error in clients.failed if not isinstance(error, ShardError)]


@dataclass
class Trial:
    """Servers of one location, and stores at them.

    Parameters
    ----------
    kind : str
    location : Any
    start : Start
    connect : Connect
    """

    kind: str
    location: Any
    start: Start
    connect: Connect

    def run(self, faults: str, seed: int, seconds: float, *, sharded: bool) -> None:
        """Let clients read and write meanwhile, and check what they have seen."""
        servers = [
            self._serve(1, spawn=faults == "kill -9"),
            self._serve("1MiB"),
            self._serve("64MiB"),
        ]
        stores = [self.connect(*servers), *map(self.connect, servers[1:])]
        # A killed server must not hold back its clients for long.
        stores += [self.connect(servers[2], servers[0]), self.connect(servers[0], timeout=2)]
        make_array(stores[0], sharded=sharded)
        with ChunkClients(stores, seed) as clients:
            clients.work(seconds)
            if faults == "kill -9":
                os.kill(servers[0].pid, signal.SIGKILL)
                clients.work(seconds + 1)
            elif faults == "joins and leaves":
                for guest in range(2):
                    clients.add(self._visit(seed, 100 + 2 * guest, seconds / 2))
        if faults == "none":
            check_errors(clients)
        clients.check(seed)
        check_servers(servers[1:])
        assert sum(store.stats()["decode"] for store in stores) == 0

    def _serve(self, cache: int | str, *, spawn: bool = False) -> Any:
        return self.start(self.location, spawn=spawn, **self._options(cache))

    def _options(self, cache: int | str) -> dict[str, Any]:
        return {"shared": True} | ({} if self.kind == "directory" else {"cache": cache})

    def _visit(self, seed: int, first: int, seconds: float) -> ChunkClients:
        """Let a server join, which ends while its clients go on."""
        with Server(self.location, decoded=LIMIT, **self._options("1MiB")) as guest:
            stores = [self.connect(guest, timeout=1, connect_timeout=1) for _ in range(2)]
            with ChunkClients(stores, seed, first) as clients:
                clients.work(seconds)
                guest.close()
        return clients


@pytest.fixture
def trial(kind: str, location: Any, start: Start, connect: Connect) -> Trial:
    return Trial(kind, location, start, connect)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("local", "faults", "sharded"),
    [
        ("on one host", "joins and leaves", False),
        ("between hosts", "none", True),
    ],
    indirect=["local"],
)
def test_each_chunk_is_linearizable(
    local: bool, faults: str, sharded: bool, trial: Trial, seed: int
) -> None:
    trial.run(faults, seed, 1.2, sharded=sharded)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bucket"])
@pytest.mark.parametrize("local", ["on one host"], indirect=True)
def test_each_chunk_is_linearizable_after_a_kill(local: bool, trial: Trial, seed: int) -> None:
    trial.run("kill -9", seed, 1.0, sharded=False)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("faults", ["none", "kill -9", "joins and leaves"])
@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
def test_each_chunk_is_linearizable_for_longer(
    faults: str, sharded: bool, local: bool, trial: Trial, seed: int
) -> None:
    trial.run(faults, seed, 5.0, sharded=sharded)


@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
def test_with_another_program_that_writes_to_the_directory(
    sharded: bool, tmp_path: Path, local: bool, start: Start, connect: Connect, seed: int
) -> None:
    """Each server looks at the file at each read, so it sees what others have renamed there."""
    servers = [start(tmp_path, shared=True) for _ in range(2)]
    stores = [*map(connect, servers), *map(connect, servers)]
    make_array(stores[0], sharded=sharded)
    # It only writes: zarr itself reads a shard in steps, whatever happens between them.
    others = [FileStore(tmp_path), FileStore(tmp_path)]
    with (
        ChunkClients(stores, seed) as clients,
        ChunkClients(others, seed + 99, 100, share_of_reads=0) as more,
    ):
        clients.work(1.5)
        more.work(0)
    check_errors(clients)
    # Of the others a write may fail, where a server removes the folder that has just become empty.
    clients.add(more)
    clients.check(seed)
    check_servers(servers)
