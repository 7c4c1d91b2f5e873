"""The ways between a client and a server of one host: the local plane, plain TCP, and UCX's."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ucxstore import Server, UcxStore
from ucxstore.server.spawn import ServerProcess


@dataclass(frozen=True, slots=True)
class Way:
    """How a client reaches a server.

    Parameters
    ----------
    name : str
        As rows print it.
    lane : str
        What ``stats()["lanes"]`` of a store has, before the name of a device.
    local : str
        The client's option: ``"auto"`` for the local plane, ``"ucx"`` for UCX's shared memory, or
        ``"off"``. The server offers what it asks for, and no more.
    network : str
        The option of both.
    ucx : mapping
        UCX options of both.
    """

    name: str
    lane: str
    local: str = "off"
    network: str = "auto"
    ucx: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_local(self) -> bool:
        """Whether the server shows its values to clients of its host, which read them there."""
        return self.local == "auto"

    @property
    def uses_ucx(self) -> bool:
        """Whether values go over UCX."""
        return self.local == "ucx" or self.network == "ucx"

    @property
    def of_server(self) -> dict[str, Any]:
        """The options of `Server`."""
        return {
            "local": self.is_local,
            "ucx_shared_memory": self.local == "ucx",
            "network": self.network,
            "ucx": dict(self.ucx),
        }

    @property
    def of_client(self) -> dict[str, Any]:
        """The options of `UcxStore`, which can be sent to a child as JSON."""
        return {"local": self.local, "network": self.network, "ucx": dict(self.ucx)}

    def serve(
        self, storage: str | Path, *, read_only: bool = False, **options: Any
    ) -> AbstractContextManager[ServerProcess]:
        """Start a server in a process of its own; a directory may be new, or is only read.

        A directory has one server that writes to it.
        """
        create = isinstance(storage, Path) and not read_only
        return Server.spawn(
            storage, read_only=read_only, create=create, **self.of_server, **options
        )

    def open(self, address: str, **options: Any) -> UcxStore:
        """Open a store that leaves zarr's configuration alone."""
        return UcxStore(address, select_pipeline=False, **self.of_client, **options)

    def check(self, store: UcxStore) -> str:
        """Return the lanes of a store that is connected.

        Raises
        ------
        RuntimeError
            If it has come another way: its figures would be taken for those of this one.
        """
        lanes = store.stats()["lanes"]
        if {"".join(lane.partition("/")[:2]) for lane in lanes} != {self.lane}:
            raise RuntimeError(f"a store that should go by {self.name} has the lanes {lanes}")
        return f"lanes, {self.name}: {', '.join(lanes)}"


LOCAL = Way("local", "local", local="auto")
SHARED_MEMORY = Way("shared memory", "posix/", local="ucx")
TCP = Way("TCP", "tcp", network="tcp")
UCX_OVER_TCP = Way("UCX over TCP", "tcp/", network="ucx", ucx={"TLS": "tcp"})
WAYS = (LOCAL, SHARED_MEMORY, TCP, UCX_OVER_TCP)
