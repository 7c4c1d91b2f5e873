"""A Zarr store whose chunks travel over UCX straight into the buffer they are read into.

UCX is loaded when something is first connected or served, not by this import: zarr imports the
package in every process that looks for codec pipelines.
"""

from importlib import import_module
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
from ucxstore.secret import Secret

if TYPE_CHECKING:
    from ucxstore.pipeline import ZeroCopyCodecPipeline
    from ucxstore.scratch import Scratch
    from ucxstore.server import Server
    from ucxstore.store import UcxStore

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


# Imported when they are first used: a client needs no server, and `ucxstore --help` no zarr.
_MODULES = {
    "Scratch": "ucxstore.scratch",
    "Server": "ucxstore.server",
    "UcxStore": "ucxstore.store",
    "ZeroCopyCodecPipeline": "ucxstore.pipeline",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
