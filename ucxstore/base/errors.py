"""All exceptions of ucxstore.

UcxStoreError
├── AddressError (ValueError)            a malformed ucx:// address
├── InvalidKeyError (ValueError)         a key that no server accepts
├── ConnectError (ConnectionError)       a server could not be reached or used
│   ├── NotAServerError                      no ucxstore server is at that port
│   ├── ProtocolVersionError                 the two sides speak different versions
│   ├── AuthenticationError (PermissionError)  a wrong or missing secret, on either side
│   └── ClusterError                         servers that do not make up a set of servers
├── ServerLostError (ConnectionError)    the server went away before or during a request
│   └── ServerRestartedError                 came back with another storage than it had
├── RequestTimeoutError (TimeoutError)   no progress within the timeout
├── OperationCancelledError              cancelled by the caller
├── StoreClosedError (ValueError)        the store was closed while the operation was under way
├── ReadOnlyServerError (PermissionError)  a write to a read-only server
├── GrantError (PermissionError)         a request that a grant does not allow, or no longer allows
├── ValueTooLargeError (ValueError)      a value, or range of one, larger than `out`
├── ChunkSizeError (ValueError)          a stored value that is not the size of a raw chunk
├── ShardError (ValueError)              a shard and its index do not fit, or keep changing
├── StorageError (OSError)               the server could not read or keep a value
│   ├── EvictedError                         the server has given the value up
│   ├── UnreadableFolderError                a listing without what is in some folders
│   ├── ScratchEndedError                    its scratch space has ended
│   ├── IntegrityError                       its bytes were changed on their way
│   └── UnknownOutcomeError                  a write or removal that was made, or not
│       ├── ChangeLostError (ServerLostError)    the server was lost before it answered
│       └── ChangeTimeoutError (RequestTimeoutError)  it did not answer in time
├── ResourceError (OSError)              no file descriptor is left in this process
├── OutOfMemoryError (MemoryError)       no memory is left in this process for a value
├── ProtocolError                        a peer broke the protocol
├── NotMappedError (BufferError)         a value that could only be copied, and was not to be
├── FallbackError (RuntimeError)         strict mode: a chunk would leave the short path
└── UcxUnavailableError (ImportError)    no usable UCX library

The builtin class that each also derives from is in parentheses, so ``except TimeoutError`` works
too. A message names the peer, the key and the cause, as far as there are any.

The native core finds these classes by name, so this module imports nothing of ours. Each is made
from its message alone, so that it can be pickled: Dask sends exceptions between processes.
"""

import copy


class UcxStoreError(Exception):
    """Base class of all exceptions of ucxstore."""

    __module__ = "ucxstore"  # where they are imported from, as tracebacks and pickles have it

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__:
            cls.__module__ = UcxStoreError.__module__


class AddressError(UcxStoreError, ValueError):
    """An address that is not ``ucx://host:port[,host:port...][/prefix]``."""


class InvalidKeyError(UcxStoreError, ValueError):
    """A key that no server accepts: empty, absolute, with ``..`` in it, too long."""


class ConnectError(UcxStoreError, ConnectionError):
    """A server could not be reached, or not be used once it was.

    Attributes
    ----------
    may_come : bool
        Whether nobody is there yet, so that a later try may succeed: nothing listens, the name is
        not known, the server ends and may start again.
    over_ucx : bool
        Whether the handshake went well, and the server's UCX did not answer after it.
    reached : bool
        Whether anything took the connection at its address.
    """

    may_come: bool = False
    reached: bool = True
    over_ucx: bool = False


class NotAServerError(ConnectError):
    """What listens at that port does not answer as a ucxstore server."""


class ProtocolVersionError(ConnectError):
    """The other side speaks another version of the protocol."""


class AuthenticationError(ConnectError, PermissionError):
    """The secret is wrong or missing, at the client or at the server."""


class ClusterError(ConnectError):
    """The servers of an address are not a whole set: one is missing, foreign, or there twice."""


class ServerLostError(UcxStoreError, ConnectionError):
    """The server went away before or during a request."""


class ServerRestartedError(ServerLostError):
    """One of a store's servers has another storage than it had, without the values of that."""


class RequestTimeoutError(UcxStoreError, TimeoutError):
    """A request made no progress for as long as the store's ``timeout``."""


class OperationCancelledError(UcxStoreError):
    """The caller cancelled the operation."""


class StoreClosedError(UcxStoreError, ValueError):
    """The store was closed while the operation was under way; it may have been made, or not."""


class ReadOnlyServerError(UcxStoreError, PermissionError):
    """The server is read-only."""


class GrantError(UcxStoreError, PermissionError):
    """The client's grant does not open the key, or for reading alone, or has expired."""


class ValueTooLargeError(UcxStoreError, ValueError):
    """The value, or the range of it that was asked for, is larger than ``out``."""


class ChunkSizeError(UcxStoreError, ValueError):
    """The stored value does not have the size of a raw chunk."""


class ShardError(UcxStoreError, ValueError):
    """A shard and its index do not fit, or it is replaced again and again while it is read."""


class StorageError(UcxStoreError, OSError):
    """The server's storage failed: a full disk, a missing permission."""


class EvictedError(StorageError):
    """The server has given the value up.

    Its memory was full (``when_full="evict"``), or the value was read, in a scratch space that
    frees what has been read once (``read_once=True``). The message says which. The key stays,
    without a value, until it is set or deleted. Whoever uses the server as a cache catches this as
    a miss.
    """


class UnreadableFolderError(StorageError):
    """The server's user may not open a folder, so a listing is without what is in there.

    A listing raises it at its end, when it has given all other names.
    """


class ScratchEndedError(StorageError):
    """The scratch space has ended: its owner closed it, or did not renew it in time."""


class UnknownOutcomeError(StorageError):
    """A write or removal was made, or not, or may still be: the key may have either value.

    A read tells. Once a later change of the key is acknowledged, this one is over.
    """


class ChangeLostError(UnknownOutcomeError, ServerLostError):
    """The server was lost after a change was sent to it, and before it answered."""


class ChangeTimeoutError(UnknownOutcomeError, RequestTimeoutError):
    """The server did not answer a change within the store's ``timeout``."""


class IntegrityError(StorageError):
    """Bytes were changed between the server and here: they do not fit their checksum or tag."""


class ResourceError(UcxStoreError, OSError):
    """No file descriptor is left in this process."""


# MemoryError comes first: tblib unpickles with the `__new__` that it finds first.
class OutOfMemoryError(MemoryError, UcxStoreError):
    """No memory is left in this process for a value."""


class ProtocolError(UcxStoreError):
    """A peer sent what the protocol does not allow."""


class NotMappedError(UcxStoreError, BufferError):
    """Values cannot be mapped, and ``map=True`` forbids copying them."""


class FallbackError(UcxStoreError, RuntimeError):
    """A chunk would have left the short path, and strict mode forbids it."""


class UcxUnavailableError(UcxStoreError, ImportError):
    """No UCX library was found, or none that is recent enough."""


def not_yet(message: str) -> ConnectError:
    """Return the error of a server that may be there later."""
    error = ConnectError(message)
    error.may_come = True
    return error


def without_frames[E: BaseException](error: E) -> E:
    """Return a copy without traceback, cause and context.

    These refer to frames, and so keep the memory alive that variables in a frame refer to. They are
    removed by hand, since exceptions are copied with them once distributed is imported.
    """
    found = copy.copy(error)
    found.__traceback__ = found.__cause__ = found.__context__ = None
    return found
