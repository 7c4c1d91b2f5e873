"""Every exception that ucxstore raises of its own.

UcxStoreError
├── AddressError (ValueError)            a malformed ucx:// address
├── InvalidKeyError (ValueError)         a key that no server takes
├── ConnectError (ConnectionError)       a server could not be reached or used
│   ├── NotAServerError                      something else answers at that port
│   ├── ProtocolVersionError                 the two sides speak different versions
│   └── AuthenticationError (PermissionError)  a wrong or missing secret, on either side
├── ServerLostError (ConnectionError)    the server went away before or during a request
│   └── ServerRestartedError                 came back without the values that it held
├── RequestTimeoutError (TimeoutError)   no progress within the timeout
├── OperationCancelledError              cancelled by the caller
├── ReadOnlyServerError (PermissionError)  a write to a server that only reads
├── ValueTooLargeError (ValueError)      a value, or range of one, larger than `out`
├── ChunkSizeError (ValueError)          a stored value that is not the size of a raw chunk
├── ShardError (ValueError)              a shard that its index does not fit, or that keeps changing
├── StorageError (OSError)               the server could not read or keep a value
│   └── ScratchEndedError                    its scratch space has ended
├── ResourceError (OSError)              no descriptor is left in this process
├── OutOfMemoryError (MemoryError)       no memory is left in this process for a value
├── ProtocolError                        a peer broke the protocol
├── FallbackError (RuntimeError)         strict mode: a chunk would leave the short path
└── UcxUnavailableError (ImportError)    no usable UCX library

In parentheses stands the builtin that each also is, so that ``except TimeoutError`` and the like
work as elsewhere. A message names the peer, the key and the cause, as far as there are any.

The native core finds these classes by name, so this module imports nothing of ours. Each is made
from its message alone, and so pickles: Dask ships exceptions between processes.
"""

import copy


class UcxStoreError(Exception):
    """What every exception of ucxstore derives from."""


class AddressError(UcxStoreError, ValueError):
    """An address that is not ``ucx://host:port[,host:port...][/prefix]``."""


class InvalidKeyError(UcxStoreError, ValueError):
    """A key that no server takes: empty, absolute, with ``..`` in it, too long."""


class ConnectError(UcxStoreError, ConnectionError):
    """A server could not be reached, or not be used once it was."""


class NotAServerError(ConnectError):
    """Something answers at that port, or keeps silent, that is not a server of ours."""


class ProtocolVersionError(ConnectError):
    """The other side speaks another version of the protocol."""


class AuthenticationError(ConnectError, PermissionError):
    """The secret is wrong or missing, at the client or at the server."""


class ServerLostError(UcxStoreError, ConnectionError):
    """The server went away before or during a request."""


class ServerRestartedError(ServerLostError):
    """One of a store's servers has restarted without the values that it held."""


class RequestTimeoutError(UcxStoreError, TimeoutError):
    """A request made no progress for as long as the store's ``timeout``."""


class OperationCancelledError(UcxStoreError):
    """The caller cancelled the operation."""


class ReadOnlyServerError(UcxStoreError, PermissionError):
    """The server takes no writes."""


class ValueTooLargeError(UcxStoreError, ValueError):
    """The value, or the range of it that was asked for, is larger than ``out``."""


class ChunkSizeError(UcxStoreError, ValueError):
    """The stored value does not have the size of a raw chunk."""


class ShardError(UcxStoreError, ValueError):
    """A shard does not fit its index, or is replaced again and again while it is read."""


class StorageError(UcxStoreError, OSError):
    """The server's storage failed: a full disk, a missing permission."""


class ScratchEndedError(StorageError):
    """The scratch space has ended: its owner has closed it, or was gone for its time-out."""


class ResourceError(UcxStoreError, OSError):
    """No descriptor is left in this process."""


# MemoryError first: pickled where tblib is at work, it is made by the `__new__` found first.
class OutOfMemoryError(MemoryError, UcxStoreError):
    """No memory is left in this process for a value."""


class ProtocolError(UcxStoreError):
    """A peer sent what the protocol does not allow."""


class FallbackError(UcxStoreError, RuntimeError):
    """A chunk would have left the short path, and strict mode forbids it."""


class UcxUnavailableError(UcxStoreError, ImportError):
    """No UCX library was found, or none that is recent enough."""


def without_frames[E: BaseException](error: E) -> E:
    """Return a copy that holds no frame, and so none of the memory that is named in one.

    Distributed has exceptions copied with their tracebacks, so these go by themselves.
    """
    found = copy.copy(error)
    found.__traceback__ = found.__cause__ = found.__context__ = None
    return found
