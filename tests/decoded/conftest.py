"""Servers that decode, of each kind of storage, and both ways to them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from ucxstore.server import Server

type Make = Callable[..., Server]


@pytest.fixture(params=["memory", "directory", "source"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "memory":
            return "memory://"
        case "directory":
            return tmp_path
    return MemoryStore()


@pytest.fixture(params=["on one host", "between hosts"])
def local(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    is_local: bool = request.param == "on one host"
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto" if is_local else "off")
    return is_local


@pytest.fixture
def serve() -> Iterator[Make]:
    """Start servers that end with the test."""
    with ExitStack() as stack:

        def start(location: Any, **options: Any) -> Server:
            return stack.enter_context(Server(location, **({"decoded": "64MiB"} | options)))

        yield start
