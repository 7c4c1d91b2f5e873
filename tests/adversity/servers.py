"""Servers in processes of their own, which tests may kill, stop and question."""

import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from tests.adversity.nursery import Child
from ucxstore.options import UcxValue
from ucxstore.server import Server


def serve(
    channel: Connection,
    root: str,
    bind: str,
    ucx: Mapping[str, UcxValue],
    read_only: bool,
    shared: bool,
    local: bool = False,
) -> None:
    """Be a server, and answer questions about it, until the channel ends."""
    with Server(
        root,
        bind,
        create=root != "memory://" and not read_only,
        ucx=ucx,
        read_only=read_only,
        shared=shared,
        local=local,
        ucx_shared_memory=True,
    ) as server:
        channel.send(server.address)
        while True:
            try:
                question = channel.recv()
            except EOFError:
                return
            channel.send(server.sessions if question == "sessions" else server.stats())


class RemoteServer:
    """A server in a process of its own."""

    def __init__(self, process: Child) -> None:
        self.process = process
        self.address = str(process.hear())

    @property
    def place(self) -> str:
        """Where it listens: "host:port", as messages name it."""
        return self.address.removeprefix("ucx://")

    @property
    def sessions(self) -> int:
        return int(self.process.ask("sessions"))

    @property
    def stats(self) -> dict[str, int]:
        return dict(self.process.ask("stats"))


def files_under(root: Path) -> set[str]:
    """Return all files below a directory, hidden ones too, by relative paths."""
    return {
        os.path.relpath(Path(folder) / name, root)
        for folder, _, names in os.walk(root)
        for name in names
    }
