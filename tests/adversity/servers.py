"""Servers in processes of their own, which tests may kill, stop and question."""

import ctypes
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from tests.adversity.nursery import Child
from ucxstore.base.options import UcxValue
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


def port_of(address: str) -> int:
    """Return the port of a server's address."""
    return int(address.rpartition(":")[2])


def files_under(root: Path) -> set[str]:
    """Return all files below a directory, hidden ones too, by relative paths."""
    return {
        os.path.relpath(Path(folder) / name, root)
        for folder, _, names in os.walk(root)
        for name in names
    }


_CAPABILITY_VERSION = 0x20080522  # the third, with two words a set
_DAC = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what makes root free of permissions


def serve_as_anybody(channel: Connection, root: str, ucx: Mapping[str, UcxValue]) -> None:
    """Serve as a user to whom permissions apply, even if that is root."""
    be_anybody()
    serve(channel, root, "127.0.0.1:0", ucx, False, False)


def be_anybody() -> None:
    """Have permissions apply to this process from now on, even if it is root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then their upper words
    assert libc.capget(header, sets) == 0
    for index in range(3):
        sets[index] &= ~_DAC
    assert libc.capset(header, sets) == 0
