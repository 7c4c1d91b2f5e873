"""The native core of ucxstore: UCX, without the GIL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray


PROTOCOL_VERSION: int = 7

MAX_KEY_BYTES: int = 1024

SCRATCH_FOLDER: str = '__ucxscratch__/'

DECODED_FOLDER: str = '__ucxdecoded__/'

MAX_RECIPE_BYTES: int = 4096

def allocate(size: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """Memory of `size` bytes, not initialised, that is recycled after use."""

class ResultMemory:
    """Memory for a result, that values may be mapped into."""

    def __init__(self, size: int) -> None: ...

    def array(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    def be_eager(self) -> None: ...

    @property
    def mapped(self) -> int: ...

def place(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], target: tuple[int, Sequence[int], Sequence[int], int]) -> None:
    """
    Copy values to their places in an array that is larger than the caches.
    """

def join(values: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)] | None:
    """
    Values of whole pages that lie in shared memory or in files, mapped one after the other; None where that cannot be.
    """

def ucx_version() -> str: ...

def user_at_other_end(fd: int) -> int | None:
    """
    The user id of the process at the other end of a connection of this host; None where the kernel does not tell.
    """

class Operation:
    @property
    def done(self) -> bool: ...

    def wait(self) -> Any: ...

    def result(self) -> Any: ...

    def cancel(self) -> None: ...

    @staticmethod
    def end_unwaited() -> None: ...

class Completions:
    def __init__(self) -> None: ...

    def fileno(self) -> int: ...

    def drain(self) -> list[Operation]: ...

class Allocation:
    @property
    def array(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    def seal(self) -> bool:
        """
        End the writing to the file, which may take a while; False where that cannot be.
        """

    def let_go(self) -> None:
        """Give the file back; arrays keep their bytes. Also for a forked child."""

class Buffer:
    """Memory of an object, to write to as plain bytes."""

    @staticmethod
    def of(object: object) -> Buffer | None:
        """None if the object has no such memory."""

class Loan:
    """Memory of a server that a value is lent in."""

    @property
    def lost(self) -> bool:
        """
        Whether the server has taken it back, so that other bytes may be there.
        """

class Connection:
    @property
    def alive(self) -> bool: ...

    @property
    def leaving(self) -> bool: ...

    @property
    def peer(self) -> str: ...

    @property
    def lanes(self) -> list[str]: ...

    @property
    def checked(self) -> bool: ...

    @property
    def encrypted(self) -> bool: ...

    def close(self) -> None: ...

    def see(self, key: str, out: object) -> int | None: ...

    def see_value(self, key: str) -> bytearray | None: ...

    def hold(self, key: str) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)] | None: ...

    def map_file(self, key: str, waits: bool) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)] | None: ...

    def allocate(self, key: str, size: int) -> Allocation | None: ...

    def get(self, keys: Sequence[str], ranges: Sequence[Sequence[tuple[int, int, int]]], timeout: float, completions: Completions | None = None, versions: Sequence[int] | None = None, borrow: bool = False, recipe: str = '') -> Operation: ...

    def get_into(self, keys: Sequence[str], ranges: Sequence[Sequence[tuple[int, int, int]]], outs: Sequence[tuple[int, Sequence[int], Sequence[int], int]], owners: list[Any], timeout: float, completions: Completions | None = None) -> Operation: ...

    def get_into_buffers(self, keys: Sequence[str], outs: list[Buffer], timeout: float, completions: Completions | None = None) -> Operation: ...

    def read_boxes(self, keys: Sequence[str], boxes: list[int], out: tuple[int, Sequence[int], Sequence[int], int], chunk_shape: Sequence[int], owner: object, result: ResultMemory | None, recipe: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def read_parts(self, keys: Sequence[str], sources: Sequence[tuple[int, int, Sequence[int], Sequence[int], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None]], targets: Sequence[tuple[int, int, Sequence[int], Sequence[int], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None]], address: int, expected: Sequence[int], versions: Sequence[int], owner: object, recipe: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def set(self, keys: Sequence[str], values: Sequence[tuple[int, Sequence[int], Sequence[int], int]], owners: list[Any], timeout: float, completions: Completions | None = None) -> Operation: ...

    def add(self, keys: Sequence[str], values: Sequence[tuple[int, Sequence[int], Sequence[int], int]], owners: list[Any], timeout: float, completions: Completions | None = None) -> Operation: ...

    def set_file(self, keys: Sequence[str], values: Sequence[tuple[int, Sequence[int], Sequence[int], int]], owners: list[Any], file: Allocation, timeout: float, completions: Completions | None = None) -> Operation: ...

    def add_file(self, keys: Sequence[str], values: Sequence[tuple[int, Sequence[int], Sequence[int], int]], owners: list[Any], file: Allocation, timeout: float, completions: Completions | None = None) -> Operation: ...

    def set_parts(self, keys: Sequence[str], values: Sequence[Sequence[tuple[int, Sequence[int], Sequence[int], int]]], owners: list[Any], timeout: float, completions: Completions | None = None) -> Operation: ...

    def write_boxes(self, keys: Sequence[str], starts: list[int], value: tuple[int, Sequence[int], Sequence[int], int], chunk_shape: Sequence[int], owner: object, timeout: float, completions: Completions | None = None) -> Operation: ...

    def delete(self, keys: Sequence[str], timeout: float, completions: Completions | None = None) -> Operation: ...

    def delete_prefix(self, prefix: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def stat(self, keys: Sequence[str], timeout: float, completions: Completions | None = None) -> Operation: ...

    def measure(self, prefix: str, any: bool, timeout: float, completions: Completions | None = None) -> Operation: ...

    def list_page(self, prefix: str, delimited: bool, cursor: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def stats(self, timeout: float, completions: Completions | None = None) -> Operation: ...

    def operate(self, request: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def begin_space(self, name: str, quota: int, timeout_ms: int, timeout: float, completions: Completions | None = None) -> Operation: ...

    def renew_space(self, name: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def end_space(self, name: str, timeout: float, completions: Completions | None = None) -> Operation: ...

    def ping(self, timeout: float, completions: Completions | None = None) -> Operation: ...

class Agreement:
    """A pair of keys of X25519, for one agreement."""

    def __init__(self) -> None: ...

    @property
    def public_key(self) -> bytes: ...

    def secret_with(self, other: bytes) -> bytes: ...

class SealedStream:
    """Encrypted frames on a stream, in order."""

    def __init__(self, send: bytes, receive: bytes) -> None: ...

    def seal(self, frame: bytes) -> bytes: ...

    def open(self, frame: bytes) -> bytes: ...

class ClientPort:
    @property
    def address(self) -> bytes: ...

    def attach(self, fd: int, token: bytes, address: bytes, peer: str, timeout: float) -> Connection: ...

class Client:
    def __init__(self, options: Mapping[str, str], polling: bool) -> None: ...

    def open(self, fd: int = -1, integrity: bool | None = None, shares_memory: bool = False) -> ClientPort: ...

    def close(self, timeout: float) -> None: ...

    def abandon(self) -> None: ...

class LocalClient:
    def __init__(self) -> None: ...

    def attach(self, fd: int, token: bytes, peer: str) -> Connection: ...

    def attach_remote(self, fd: int, token: bytes, peer: str, checked: bool, keys: tuple[bytes, bytes] | None = None) -> Connection: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

class Storage:
    pass

class MemoryStorage(Storage):
    def __init__(self, limit: int = 18446744073709551615, visible: bool = False, mapped_limit: int = 18446744073709551615, hint: str | None = None, evict: Sequence[str] | None = None, spill: str | None = None) -> None:
        """
        Values in memory; `visible`: which other processes may be let see, and hold so many bytes of. With a `hint`, which ends the text of a refusal, `limit` is that of the memory itself, with all that values need besides. What becomes of values that have no room: those whose keys begin with one of `evict` are lost; or all go to files of the directory `spill`, which nobody else uses.
        """

    def leave(self) -> None:
        """Remove what was spilled; the values are used no more."""

    @property
    def held(self) -> int: ...

class DirectoryStorage(Storage):
    def __init__(self, root: str, durability: str = 'atomic', writers: str = 'none') -> None:
        """
        Values as files; `durability`: "none", "atomic" or "fsync"; `writers`: "none", "alone" or "several" servers write to the directory.
        """

    def fileno(self) -> int:
        """The descriptor of the directory."""

    def leave(self) -> None:
        """Leave the directory to other servers; nothing is written any more."""

class Spaces:
    def __init__(self, memory: MemoryStorage, visible: bool = False, limit: int | None = None) -> None:
        """
        Scratch spaces that take of the limit of this memory, and of another one of their own; `visible`: other processes may be let see each.
        """

class DiskFile:
    pass

class DiskFound:
    @property
    def etag(self) -> str: ...

class DiskCache:
    def __init__(self, directory: str, capacity: int) -> None: ...

    def find(self, key: str) -> DiskFound | None: ...

    def find_part(self, key: str, begin: int, end: int, etag: str) -> DiskFound | None: ...

    def add(self, key: str, begin: int | None, length: int, etag: str) -> DiskFile | None: ...

    def forget(self, key: str) -> None: ...

    def forget_prefix(self, prefix: str) -> None: ...

    def write(self, file: DiskFile, buffer: object) -> bool: ...

    def read(self, found: DiskFound) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))] | None: ...

    def sweep(self) -> None: ...

    @property
    def bytes(self) -> int: ...

def log_listen(client: int, server: int) -> None:
    """Queue events of these levels and above; see `ucxstore.base.logs`."""

def log_slow_request(seconds: float) -> None:
    """Report requests that take longer; 0 for none."""

def log_fileno() -> int: ...

def log_wake() -> None: ...

def log_take() -> tuple[list[dict[str, Any]], int]:
    """Take the queued events, and how many were dropped."""

class FairQueue:
    """Numbers that wait, in turns among origins and sessions."""

    def __init__(self) -> None: ...

    def push(self, whose: tuple[str, int], number: int) -> None: ...

    def take(self, next: int) -> tuple[tuple[str, int], int] | None:
        """Next: of 0 anybody, 1 idle origins, 2 idle sessions; it begins."""

    def end(self, whose: tuple[str, int], seconds: float) -> None:
        """End what take() has begun."""

class CachedSource:
    def __init__(self, cache_bytes: int, block_bytes: int, freshness: float | None, write_bytes: int, visible: bool = False) -> None: ...

    def fileno(self) -> int: ...

    def wake(self) -> None: ...

    def take(self) -> list[tuple[Any, ...]]: ...

    def found(self, ticket: int, buffer: object, etag: str, size: int) -> bool: ...

    def missing(self, ticket: int) -> None: ...

    def headed(self, ticket: int, size: int, etag: str) -> None: ...

    def changed(self, ticket: int) -> None: ...

    def stored(self, ticket: int, written: bool, etag: str, may_be_kept: bool) -> bool: ...

    def sized(self, ticket: int, sizes: Sequence[int | None]) -> None: ...

    def removed(self, ticket: int, keys: int) -> None: ...

    def measured(self, ticket: int, keys: int, bytes: int) -> None: ...

    def listed(self, ticket: int, names: Sequence[str], cursor: str) -> None: ...

    def failed(self, ticket: int, why: str, unknown: bool = False) -> None: ...

    def moved(self, ticket: int) -> bool: ...

    def set_lease_end(self, until: int | None) -> None: ...

    def forget_all(self) -> None: ...

    def flush(self, name: str) -> tuple[int, int]:
        """
        Forget the key of this name and all below it; all, without a name. Return the bytes that are free now, and those of forgotten values that other processes still read.
        """

    def believes(self, key: str) -> bool: ...

    def begin_asking(self, keys: Sequence[str], prefixes: Sequence[str]) -> None: ...

    def end_asking(self, keys: Sequence[str], prefixes: Sequence[str]) -> None: ...

    def close(self, why: str) -> None: ...

class DecodedValues:
    """Values that a server decodes once for all of its readers."""

    def __init__(self, prepare: Callable[[str], Any], bytes: int, threads: int, visible: bool = False) -> None:
        """
        Keep so many bytes of them. `prepare` takes a recipe, and returns an object with `nbytes`, `digest` and `decode`; or why it cannot. `decode` takes what is stored and memory for the chunk, and returns why that has failed, or an empty text.
        """

    def close(self, timeout: float) -> bool: ...

class ServerPort:
    @property
    def address(self) -> bytes: ...

    def attach(self, fd: int, token: bytes, address: bytes, peer: str, bounds: tuple[str, bool, int | None, int], origin: str) -> None: ...

class Counter:
    """A number that any thread may add to."""

    def __init__(self) -> None: ...

    def add(self, amount: int = 1) -> None: ...

    def __int__(self) -> int: ...

class Server:
    def __init__(self, storage: Storage | CachedSource, threads: int, ucx: tuple[Mapping[str, str], bool, bool, bool], read_only: bool, scratch: Spaces | None = None, max_sessions: int | None = None, decoded: DecodedValues | None = None) -> None: ...

    def open(self, thread: int, fd: int = -1, shares_memory: bool = False) -> ServerPort: ...

    def join(self, thread: int, fd: int, token: bytes, peer: str, bounds: tuple[str, bool, int | None, int], origin: str, answer: bytes) -> None: ...

    def stay(self, thread: int, fd: int, token: bytes, peer: str, bounds: tuple[str, bool, int | None, int], origin: str, answer: bytes, checked: bool, keys: tuple[bytes, bytes] | None = None) -> None: ...

    def make_room(self, origin: str, waiting: int, is_short: bool) -> bool: ...

    @overload
    def tell(self, name: str, count: Counter) -> None:
        """
        Tell this counter with its own ones, by this name. Before it has sessions.
        """

    @overload
    def tell(self, name: str, disk: DiskCache) -> None:
        """Likewise, the bytes that a disk cache takes."""

    def stats_json(self) -> bytes:
        """All counters as JSON: see docs/wire.md."""

    def sessions_json(self, after: int) -> bytes:
        """
        Clients of sessions with larger numbers than `after`: see docs/wire.md.
        """

    def kick(self, session: int | None, origin: str, but: int) -> int:
        """
        End the session of this number, or all of this origin, but not session `but`; return how many.
        """

    def set_operators(self, handler: Callable[[bytes, int, str], bytes]) -> None:
        """
        Have `handler` answer what operators ask, on a thread of its own, until close(): of a request, who asks by number and by name.
        """

    def failures(self) -> dict[str, int]:
        """Requests that have failed, by why."""

    def latencies(self) -> dict[str, tuple[list[int], float]]:
        """
        Of each kind of request: how many took up to 10 us, twice that, and so on, and the seconds of all.
        """

    def answers(self, timeout: float) -> bool:
        """Whether all threads run what they are given, within so many seconds."""

    @property
    def sessions(self) -> int: ...

    def renew_sessions(self, timeout: float) -> None: ...

    def drain(self, timeout: float) -> bool: ...

    def close(self, timeout: float) -> None: ...
