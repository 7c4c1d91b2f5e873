"""Serve values: in threads of this process, or in a process of its own.

UCX is loaded with `Server`, not by this import: who only makes options does without.
"""

from typing import TYPE_CHECKING

from ucxstore.server.options import ServerOptions

if TYPE_CHECKING:
    from ucxstore.server.server import Server

__all__ = ["Server", "ServerOptions"]


def __getattr__(name: str) -> object:
    if name == "Server":
        from ucxstore.server.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
