"""The ways between a client and a server of one host: the local plane, and UCX's transports."""

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
    is_local : bool
        Whether the server shows its values to clients of its host, and the client reads them there.
    shares_memory : bool
        Whether both let UCX use its shared memory.
    ucx : mapping
        UCX options of both.
    """

    name: str
    is_local: bool = False
    shares_memory: bool = False
    ucx: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def of_server(self) -> dict[str, Any]:
        """The options of `Server`."""
        return {
            "local": self.is_local,
            "ucx_shared_memory": self.shares_memory,
            "ucx": dict(self.ucx),
        }

    @property
    def of_client(self) -> dict[str, Any]:
        """The options of `UcxStore`, which can be sent to a child as JSON."""
        local = "auto" if self.is_local else "ucx" if self.shares_memory else "off"
        return {"local": local, "ucx": dict(self.ucx)}

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
        kinds = {lane.partition("/")[0] for lane in lanes}
        if kinds != ({"local"} if self.is_local else {"posix"} if self.shares_memory else {"tcp"}):
            raise RuntimeError(f"a store that should go by {self.name} has the lanes {lanes}")
        return f"lanes, {self.name}: {', '.join(lanes)}"


LOCAL = Way("local", is_local=True)
SHARED_MEMORY = Way("shared memory", shares_memory=True)
TCP = Way("TCP", ucx={"TLS": "tcp"})
WAYS = (LOCAL, SHARED_MEMORY, TCP)
