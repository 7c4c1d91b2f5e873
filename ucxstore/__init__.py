"""A Zarr store whose chunks travel over UCX straight into the buffer they are read into.

UCX is loaded when something is first connected or served, not by this import: zarr imports the
package in every process that looks for codec pipelines.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ucxstore.errors import (
    AddressError,
    AuthenticationError,
    ChunkSizeError,
    ConnectError,
    FallbackError,
    InvalidKeyError,
    NotAServerError,
    OperationCancelledError,
    OutOfMemoryError,
    ProtocolError,
    ProtocolVersionError,
    ReadOnlyServerError,
    RequestTimeoutError,
    ResourceError,
    ScratchEndedError,
    ServerLostError,
    ServerRestartedError,
    ShardError,
    StorageError,
    UcxStoreError,
    UcxUnavailableError,
    ValueTooLargeError,
)
from ucxstore.pipeline import ZeroCopyCodecPipeline
from ucxstore.scratch import Scratch
from ucxstore.secret import Secret
from ucxstore.store import UcxStore

if TYPE_CHECKING:
    from ucxstore.server import Server

try:
    __version__ = version("ucxstore")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "AddressError",
    "AuthenticationError",
    "ChunkSizeError",
    "ConnectError",
    "FallbackError",
    "InvalidKeyError",
    "NotAServerError",
    "OperationCancelledError",
    "OutOfMemoryError",
    "ProtocolError",
    "ProtocolVersionError",
    "ReadOnlyServerError",
    "RequestTimeoutError",
    "ResourceError",
    "Scratch",
    "ScratchEndedError",
    "Secret",
    "Server",
    "ServerLostError",
    "ServerRestartedError",
    "ShardError",
    "StorageError",
    "UcxStore",
    "UcxStoreError",
    "UcxUnavailableError",
    "ValueTooLargeError",
    "ZeroCopyCodecPipeline",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name == "Server":  # a client needs none of it
        from ucxstore.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
