"""`Server` and its options: serve values in threads of this process, or in a new process.

The native core is loaded when `Server` is first used. To make options, it is not needed.
"""

from typing import TYPE_CHECKING

from ucxstore.server.options.server_options import ServerOptions

if TYPE_CHECKING:
    from ucxstore.server.server import Server

__all__ = ["Server", "ServerOptions"]


def __getattr__(name: str) -> object:
    if name == "Server":
        from ucxstore.server.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
