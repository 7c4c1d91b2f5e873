"""A Zarr store whose chunks travel over UCX straight into the buffer they are read into.

Each name is imported when it is first used, and UCX is loaded when something is first connected or
served: zarr imports the package in every process that looks for codec pipelines.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ucxstore.base.errors import (
        AddressError,
        AuthenticationError,
        ChangeLostError,
        ChangeTimeoutError,
        ChunkSizeError,
        ClusterError,
        ConnectError,
        EvictedError,
        FallbackError,
        GrantError,
        IntegrityError,
        InvalidKeyError,
        NotAServerError,
        NotMappedError,
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
        StoreClosedError,
        UcxStoreError,
        UcxUnavailableError,
        UnknownOutcomeError,
        UnreadableFolderError,
        ValueTooLargeError,
    )
    from ucxstore.base.meter import progress
    from ucxstore.base.secret import Secret
    from ucxstore.client.view import View
    from ucxstore.pipeline import ZeroCopyCodecPipeline
    from ucxstore.pipeline.selection import PipelineWarning
    from ucxstore.server import Server
    from ucxstore.stores.allocation import Allocation
    from ucxstore.stores.scratch import Scratch
    from ucxstore.stores.store import UcxStore

    __version__: str

__all__ = [
    "AddressError",
    "Allocation",
    "AuthenticationError",
    "ChangeLostError",
    "ChangeTimeoutError",
    "ChunkSizeError",
    "ClusterError",
    "ConnectError",
    "EvictedError",
    "FallbackError",
    "GrantError",
    "IntegrityError",
    "InvalidKeyError",
    "NotAServerError",
    "NotMappedError",
    "OperationCancelledError",
    "OutOfMemoryError",
    "PipelineWarning",
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
    "StoreClosedError",
    "UcxStore",
    "UcxStoreError",
    "UcxUnavailableError",
    "UnknownOutcomeError",
    "UnreadableFolderError",
    "ValueTooLargeError",
    "View",
    "ZeroCopyCodecPipeline",
    "__version__",
    "progress",
]


# Where the names are. All others are exceptions.
_MODULES = {
    "Allocation": "ucxstore.stores.allocation",
    "PipelineWarning": "ucxstore.pipeline.selection",
    "Scratch": "ucxstore.stores.scratch",
    "Secret": "ucxstore.base.secret",
    "Server": "ucxstore.server",
    "UcxStore": "ucxstore.stores.store",
    "View": "ucxstore.client.view",
    "ZeroCopyCodecPipeline": "ucxstore.pipeline",
    "progress": "ucxstore.base.meter",
}


if not TYPE_CHECKING:  # else type checkers would take any name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value: object = _find_version()
        elif name in __all__:
            from importlib import import_module

            value = getattr(import_module(_MODULES.get(name, "ucxstore.base.errors")), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ucxstore")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
