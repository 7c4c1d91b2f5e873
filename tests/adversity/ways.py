"""Servers and stores over each way between them: the local plane, UCX's ways, plain TCP."""

from pathlib import Path
from typing import Any

import pytest

from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess

WAYS: dict[str, dict[str, Any]] = {
    "local": {"local": True},
    "shared-memory": {"local": False, "ucx_shared_memory": True},
    "tcp": {"local": False, "ucx": {"TLS": "tcp"}},
    "plain-tcp": {"local": False},
}

# For tests of UCX itself.
over_ucx = pytest.mark.parametrize("ucx", [{}, {"TLS": "tcp"}], ids=["shared-memory", "tcp"])

any_way = pytest.mark.parametrize("way", WAYS)

# For tests that take long, of what is above UCX: over TCP too in full runs.
most_ways = pytest.mark.parametrize(
    "way", ["local", "shared-memory", pytest.param("tcp", marks=pytest.mark.full)]
)

# Likewise, of what is the same behind each session.
one_way = pytest.mark.parametrize(
    "way",
    [
        "local",
        pytest.param("shared-memory", marks=pytest.mark.full),
        pytest.param("tcp", marks=pytest.mark.full),
    ],
)


def spawn(way: str, root: str | Path, bind: str = "127.0.0.1:0", **options: Any) -> ServerProcess:
    """Start a server in a process of its own."""
    create = root != "memory://"
    return Server.spawn(root, bind, create=create, **WAYS[way], **options)


def open_store(way: str, address: str, **options: Any) -> UcxStore:
    """Open a store that goes this way."""
    given = WAYS[way]
    local = "auto" if given["local"] else "ucx"
    network = "tcp" if way == "plain-tcp" else "ucx"
    return UcxStore(address, local=local, network=network, ucx=given.get("ucx"), **options)
