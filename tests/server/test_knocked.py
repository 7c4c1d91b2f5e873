"""Strangers that connect to UCX's sockets before the peer does: they keep nobody out."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.server import Server

ROOT = Path(__file__).parents[2]
CLIENTS = 30
NOBODY = 65534


@contextmanager
def knocking(server: Server) -> Iterator[None]:
    """Knock at all that listens from now on, as another user if that can be."""
    port = server.address.rpartition(":")[2]
    user = [str(NOBODY)] if os.geteuid() == 0 else []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.server.knocking", port, *user],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as knocker:
        try:
            assert knocker.stdout is not None
            assert knocker.stdout.readline() == b"ready\n"
            yield
        finally:
            knocker.kill()


@pytest.mark.parametrize("local", ["off", pytest.param("ucx", marks=pytest.mark.full)])
def test_all_connect_beside_a_knocker(local: str) -> None:
    with Server("memory://") as server, knocking(server):
        connected = 0
        for number in range(CLIENTS):
            # Of their own, each: equal ones share a connection.
            ucx = {"KEEPALIVE_INTERVAL": f"{20 + number}s"}
            with UcxStore(server.address, local=local, ucx=ucx, connect_timeout=60) as store:
                store.set_sync(str(number), as_buffer(b"value"))
                connected += 1
        assert connected == CLIENTS
        assert server.stats()["value_count"] == CLIENTS
