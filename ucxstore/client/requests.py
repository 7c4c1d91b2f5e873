"""Requests to the servers of a store, each kind described once: pure, no I/O.

A `Request` says what is asked, and for which keys. It starts as one native operation at one
server; a cluster splits it by where its keys are, and joins what the servers answer. So a
`RequestKind` says all that a request needs: the method of the core's ``Connection`` that sends it,
which servers a cluster asks, and how their answers become one. The functions below make the
requests; what they take and return is described there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import Layout, Memory

if TYPE_CHECKING:
    from ucxstore._core import (
        Allocation,
        Buffer,
        Completions,
        Connection,
        Loan,
        Operation,
        ResultMemory,
    )

type Method = Callable[[Connection], Callable[..., Operation]]
"""Returns the method of the core's that sends a request to a server, given its connection."""

type Found = tuple[npt.NDArray[np.uint8], int, int]
"""The bytes of the ranges that were asked for, joined; then size and version of the value."""

type Lent = tuple[npt.NDArray[np.uint8], int, int, "Loan | None"]
"""The same, and the loan of a server's memory that the bytes are in; ``None`` for a copy."""

type Part = tuple[int, int, Sequence[int], Sequence[int], npt.NDArray[np.int64] | None]
"""First byte, bytes of a run, counts and strides of runs, and offsets to repeat all of it at."""

type Positions = Sequence[int]
"""The positions of keys in a request, in ascending order."""

type Answers = Sequence[tuple[Positions, Any]]
"""The answers of servers, each for some of a request's keys, in the order of arrival."""

type Page = tuple[list[str], str, Sequence[str]]
"""Names, the cursor of the next page (or ``""``), and folders that a server may not open."""

type Measured = tuple[int, int, Sequence[str]]
"""Keys, the bytes of their values, and folders that a server may not open."""

# What `read_parts` takes for a value of any version, and of any size.
ANY_VERSION = 0
ANY_SIZE = -1

# What it answers for a key: read, missing, or there in another version.
READ, MISSING, CHANGED = range(3)


class Route(Enum):
    """Which servers of a cluster a request goes to.

    Servers that all serve the same values stand in for one another, whatever the route. The routes
    are for servers that each have values of their own; all of them keep copies of metadata.
    """

    CHUNKS = auto()
    """The server of each key. All are keys of chunks, which have no copies."""
    READ = auto()
    """The server of each key; for metadata any server that has a copy."""
    WRITE = auto()
    """The server of each key; for metadata all servers."""
    ADD = auto()
    """The server of each key; for metadata its first server decides, and the others follow."""
    ALL = auto()
    """All servers."""


class RequestKind[T](NamedTuple):
    """What requests of one kind have in common.

    Parameters
    ----------
    method : callable
        Returns the method of the core's ``Connection``.
    route : Route
        Which servers of a cluster are asked.
    join : callable
        Makes one answer, given how many keys were asked for and what servers have answered.
    columns : set of str
        The arguments that are lists with the same number of items for each key.
    keyed : bool
        Whether the method takes keys. Otherwise the key is only for placement and errors.
    copies : RequestKind, optional
        The kind of request to the other servers by `Route.ADD`, once the first has decided.
    following : callable, optional
        Returns the next request to the same server, given a request and its answer.
    of_server : bool
        Whether it is about a server, and not about the store's values.
    """

    method: Method
    route: Route
    join: Callable[[int, Answers], T]
    columns: Set[str] = frozenset()
    keyed: bool = True
    copies: "RequestKind[Any] | None" = None
    following: "Callable[[Request[T], T], Request[T] | None] | None" = None
    of_server: bool = False


class Request[T](NamedTuple):
    """A request to a store's servers, whose answer is a ``T``.

    Parameters
    ----------
    kind : RequestKind
    keys : sequence of str
        With the store's prefix.
    arguments : mapping
        The other arguments of the core's method.
    """

    kind: RequestKind[T]
    keys: Sequence[str]
    arguments: Mapping[str, Any]

    def start(
        self, connection: "Connection", timeout: float, completions: "Completions | None"
    ) -> "Operation":
        """Send it to one server.

        Parameters
        ----------
        connection : Connection
        timeout : float
            Seconds that it may go without progress.
        completions : Completions or None
            Where its operation completes; ``None`` if a thread waits for it.
        """
        kind, keys, arguments = self
        positional = (keys,) if kind.keyed else ()
        method = kind.method(connection)
        return method(*positional, timeout=timeout, completions=completions, **arguments)

    def for_keys(self, positions: Positions) -> "Request[T]":
        """Return the same request for some of its keys, given by position."""
        count = len(self.keys)
        if len(positions) == count:
            return self
        columns = {
            name: pick(self.arguments[name], positions, len(self.arguments[name]) // count)
            for name in self.kind.columns & self.arguments.keys()
        }
        return Request(self.kind, pick(self.keys, positions), {**self.arguments, **columns})

    def for_copies(self) -> "Request[Any]":
        """Return the request to the other servers, once the first has decided: see `Route.ADD`."""
        assert self.kind.copies is not None
        return Request(self.kind.copies, self.keys, self.arguments)


def pick[V](values: Sequence[V], positions: Positions, width: int = 1) -> Sequence[V]:
    """Return the values of some keys; each key has `width` of them."""
    if width == 1:
        return [values[position] for position in positions]
    return [
        value
        for position in positions
        for value in values[position * width : (position + 1) * width]
    ]


# ---- how answers join ----


def _each(count: int, answers: Answers) -> list[Any]:
    """Return an item for each key; a later answer replaces an earlier one."""
    items: list[Any] = [None] * count
    for positions, result in answers:
        for position, item in zip(positions, result, strict=True):
            items[position] = item
    return items


def _missing(count: int, answers: Answers) -> list[int]:
    return sorted(positions[i] for positions, result in answers for i in result)


def _nothing(count: int, answers: Answers) -> None:
    return None


def _total(count: int, answers: Answers) -> int:
    return sum(result for _, result in answers)


def _measures(count: int, answers: Answers) -> Measured:
    keys, sizes, unreadable = zip(*(measured for _, measured in answers), strict=True)
    return sum(keys), sum(sizes), _each_once(unreadable)


def _page(count: int, answers: Answers) -> Page:
    """Return the names of all servers, as far as all their pages reach."""
    # A cursor is the first key that is not in its page.
    cursor = min((cursor for _, (_, cursor, _) in answers if cursor), default="")
    names = {name for _, (names, *_) in answers for name in names if not cursor or name < cursor}
    return sorted(names), cursor, _each_once(unreadable for _, (*_, unreadable) in answers)


def _folder(count: int, answers: Answers) -> Page:
    names = _each_once(names for _, (names, *_) in answers)
    return names, "", _each_once(unreadable for _, (*_, unreadable) in answers)


def _each_once(names: Iterable[Iterable[str]]) -> list[str]:
    return sorted({name for some in names for name in some})


def only(count: int, answers: Answers) -> Any:
    """Return what a single server has answered."""
    ((_, result),) = answers
    return result


# ---- the kinds ----


def _next_page(request: Request[Page], answer: Page) -> Request[Page] | None:
    _, cursor, _ = answer
    if not cursor:
        return None
    return request._replace(arguments={**request.arguments, "cursor": cursor})


_GET: RequestKind[list[Found | None]] = RequestKind(
    lambda core: core.get, Route.READ, _each, {"ranges", "versions"}
)
_BORROW: RequestKind[list[Lent | None]] = RequestKind(
    lambda core: core.get, Route.READ, _each, {"ranges", "versions"}
)
_GET_INTO: RequestKind[list[int | None]] = RequestKind(
    lambda core: core.get_into, Route.READ, _each, {"ranges", "outs", "owners"}
)
_GET_INTO_BUFFERS: RequestKind[list[int | None]] = RequestKind(
    lambda core: core.get_into_buffers, Route.READ, _each, {"outs"}
)
_STAT: RequestKind[list[int]] = RequestKind(lambda core: core.stat, Route.READ, _each)
_READ_BOXES: RequestKind[list[int]] = RequestKind(
    lambda core: core.read_boxes, Route.CHUNKS, _missing, {"boxes"}
)
_READ_PARTS: RequestKind[list[int]] = RequestKind(
    lambda core: core.read_parts,
    Route.CHUNKS,
    _each,
    {"sources", "targets", "expected", "versions"},
)
_SET: RequestKind[list[bool]] = RequestKind(
    lambda core: core.set, Route.WRITE, _each, {"values", "owners"}
)
_ADD: RequestKind[list[bool]] = RequestKind(
    lambda core: core.add, Route.ADD, _each, {"values", "owners"}, copies=_SET
)
_SET_FILE: RequestKind[list[bool]] = RequestKind(
    lambda core: core.set_file, Route.WRITE, _each, {"values", "owners"}
)
_ADD_FILE: RequestKind[list[bool]] = RequestKind(
    lambda core: core.add_file, Route.ADD, _each, {"values", "owners"}, copies=_SET_FILE
)
_SET_PARTS: RequestKind[None] = RequestKind(
    lambda core: core.set_parts, Route.CHUNKS, _nothing, {"values"}
)
_WRITE_BOXES: RequestKind[None] = RequestKind(
    lambda core: core.write_boxes, Route.CHUNKS, _nothing, {"starts"}
)
_DELETE: RequestKind[None] = RequestKind(lambda core: core.delete, Route.WRITE, _nothing)
_DELETE_PREFIX: RequestKind[int] = RequestKind(
    lambda core: core.delete_prefix, Route.ALL, _total, keyed=False
)
_MEASURE: RequestKind[Measured] = RequestKind(
    lambda core: core.measure, Route.ALL, _measures, keyed=False
)
_LIST_KEYS: RequestKind[Page] = RequestKind(
    lambda core: core.list_page, Route.ALL, _page, keyed=False
)
_LIST_FOLDER: RequestKind[Page] = RequestKind(
    # Storages end the pages of a folder at different names, so all pages are merged.
    lambda core: core.list_page,
    Route.ALL,
    _folder,
    keyed=False,
    following=_next_page,
)


def _of_server[T](method: Method, join: Callable[[int, Answers], T]) -> RequestKind[T]:
    return RequestKind(method, Route.ALL, join, keyed=False, of_server=True)


_PING = _of_server(lambda core: core.ping, _nothing)
_STATS: RequestKind[bytes] = _of_server(lambda core: core.stats, only)
_OPERATE: RequestKind[bytes] = _of_server(lambda core: core.operate, only)
_BEGIN_SPACE = _of_server(lambda core: core.begin_space, _nothing)
_RENEW_SPACE = _of_server(lambda core: core.renew_space, _nothing)
_END_SPACE = _of_server(lambda core: core.end_space, _nothing)


# ---- reading ----


def get(
    keys: Sequence[str],
    ranges: Sequence[Sequence[NativeRange]],
    versions: Sequence[int] | None = None,
    recipe: str = "",
) -> Request[list[Found | None]]:
    """Read values into memory of the core's.

    Parameters
    ----------
    keys : sequence of str
    ranges : sequence
        The ranges of each value to read; an empty list for all of it.
    versions : sequence of int, optional
        The version that each must have. A value of another version is found with
        ``None`` in place of its bytes.
    recipe : str, optional
        Where keys are names of decoded values, how the server is to decode them.
    """
    arguments: dict[str, Any] = {"ranges": ranges}
    if versions is not None:
        arguments["versions"] = versions
    if recipe:
        arguments["recipe"] = recipe
    return Request(_GET, keys, arguments)


def borrow(
    keys: Sequence[str],
    ranges: Sequence[Sequence[NativeRange]],
    versions: Sequence[int] | None = None,
    recipe: str = "",
) -> Request[list[Lent | None]]:
    """Read values as `get` does, but take the server's own memory where it can be seen.

    That cannot be written to, and what is held of it, the server cannot use for anything else. It
    takes the memory back from a client that holds too much: whoever has read bytes there must look
    afterwards whether the loan is lost.

    Parameters
    ----------
    keys, ranges, versions, recipe
        As for `get`.
    """
    request = get(keys, ranges, versions, recipe)
    return Request(_BORROW, keys, {**request.arguments, "borrow": True})


def get_into(
    keys: Sequence[str], ranges: Sequence[Sequence[NativeRange]], outs: Sequence[Memory]
) -> Request[list[int | None]]:
    """Read values into memory of the caller's; the answer is how many bytes each took."""
    layouts, owners = [out.layout for out in outs], [out.owner for out in outs]
    return Request(_GET_INTO, keys, {"ranges": ranges, "outs": layouts, "owners": owners})


def get_into_buffers(keys: Sequence[str], outs: "list[Buffer]") -> Request[list[int | None]]:
    """Do as `get_into`, of whole values into plain bytes."""
    return Request(_GET_INTO_BUFFERS, keys, {"outs": outs})


def read_boxes(
    keys: Sequence[str],
    boxes: list[int],
    out: Memory,
    chunk_shape: Sequence[int],
    result: "ResultMemory | None" = None,
    recipe: str = "",
) -> Request[list[int]]:
    """Read a box of each raw chunk into a box of an array; the answer is which are missing.

    Parameters
    ----------
    keys : sequence of str
    boxes : list of int
        For each key and axis three numbers: where the box starts in the chunk, where it starts in
        the array, and its length.
    out : Memory
        The array.
    chunk_shape : sequence of int
    result : ResultMemory, optional
        The memory of the array, if values may be mapped into it.
    recipe : str, optional
        As for `get`.
    """
    arguments = {
        "boxes": boxes,
        "out": out.layout,
        "chunk_shape": chunk_shape,
        "owner": out.owner,
        "result": result,
        "recipe": recipe,
    }
    return Request(_READ_BOXES, keys, arguments)


def read_parts(
    keys: Sequence[str],
    sources: Sequence[Part],
    targets: Sequence[Part],
    out: Memory,
    sizes: Sequence[int] | None = None,
    versions: Sequence[int] | None = None,
    recipe: str = "",
) -> Request[list[int]]:
    """Read a part of each value into a part of one memory; see `READ` for the answers.

    Parameters
    ----------
    keys : sequence of str
    sources, targets : sequence of Part
        Which bytes of the value, and which of the memory, counted from its first item.
    out : Memory
    sizes : sequence of int, optional
        How many bytes each value must have; `ANY_SIZE` for any.
    versions : sequence of int, optional
        The version that each must have; `ANY_VERSION` for any.
    recipe : str, optional
        As for `get`.
    """
    address, *_ = out.layout
    arguments = {
        "sources": sources,
        "targets": targets,
        "address": address,
        "expected": [ANY_SIZE] * len(keys) if sizes is None else sizes,
        "versions": [ANY_VERSION] * len(keys) if versions is None else versions,
        "owner": out.owner,
        "recipe": recipe,
    }
    return Request(_READ_PARTS, keys, arguments)


# ---- writing ----


def set(keys: Sequence[str], values: Sequence[Memory]) -> Request[list[bool]]:
    """Write values."""
    return _set(_SET, keys, values)


def add(keys: Sequence[str], values: Sequence[Memory]) -> Request[list[bool]]:
    """Write values whose keys are missing; the answer is which were written."""
    return _set(_ADD, keys, values)


def _set(
    kind: RequestKind[list[bool]], keys: Sequence[str], values: Sequence[Memory]
) -> Request[list[bool]]:
    layouts, owners = [value.layout for value in values], [value.owner for value in values]
    return Request(kind, keys, {"values": layouts, "owners": owners})


def commit(
    key: str, value: Memory, file: "Allocation | None", *, if_absent: bool
) -> Request[list[bool]]:
    """Write a value that was computed into memory of ours, as `set` and `add` do.

    Parameters
    ----------
    key : str
    value : Memory
    file : Allocation or None
        Whose memory that is: a server of this host takes it over if it can.
    if_absent : bool
        Only if the key is missing.
    """
    if file is None:
        return _set(_ADD if if_absent else _SET, [key], [value])
    request = _set(_ADD_FILE if if_absent else _SET_FILE, [key], [value])
    return request._replace(arguments={**request.arguments, "file": file})


def set_parts(
    keys: Sequence[str], values: Sequence[Sequence[Layout]], owners: list[Any]
) -> Request[None]:
    """Write values that lie in several parts of memory, which the owners hold."""
    return Request(_SET_PARTS, keys, {"values": values, "owners": owners})


def write_boxes(
    keys: Sequence[str], starts: list[int], value: Memory, chunk_shape: Sequence[int]
) -> Request[None]:
    """Write whole raw chunks from an array, in which each starts where `starts` says by axis."""
    arguments = {
        "starts": starts,
        "value": value.layout,
        "chunk_shape": chunk_shape,
        "owner": value.owner,
    }
    return Request(_WRITE_BOXES, keys, arguments)


def delete(keys: Sequence[str]) -> Request[None]:
    """Delete keys, missing ones too."""
    return Request(_DELETE, keys, {})


def delete_prefix(prefix: str) -> Request[int]:
    """Delete all keys that begin with a prefix; the answer is how many there were."""
    return Request(_DELETE_PREFIX, [prefix], {"prefix": prefix})


# ---- sizes, listings and counters ----


def stat(keys: Sequence[str]) -> Request[list[int]]:
    """Ask for the sizes of values; -1 for a missing key."""
    return Request(_STAT, keys, {})


def measure(prefix: str, *, any: bool) -> Request[Measured]:
    """Ask how many keys begin with a prefix, and for the bytes of their values.

    With `any`, of one key at most. Copies at several servers count once for each server.
    """
    return Request(_MEASURE, [prefix], {"prefix": prefix, "any": any})


def list_page(prefix: str, *, delimited: bool, cursor: str) -> Request[Page]:
    """List names under a prefix from a cursor on."""
    kind = _LIST_FOLDER if delimited else _LIST_KEYS
    arguments = {"prefix": prefix, "delimited": delimited, "cursor": cursor}
    return Request(kind, [prefix], arguments)


def ping() -> Request[None]:
    """Send an empty request: one round trip."""
    return Request(_PING, [""], {})


def stats() -> Request[bytes]:
    """Ask one server for its counters, as JSON."""
    return Request(_STATS, [""], {})


def operate(request: str) -> Request[bytes]:
    """Ask one server as its operator: JSON, answered by JSON, both as docs/wire.md has them."""
    return Request(_OPERATE, [""], {"request": request})


# ---- scratch spaces ----


def begin_space(name: str, quota: int, timeout_ms: int) -> Request[None]:
    """Make a scratch space of `quota` bytes; it ends `timeout_ms` after its last renewal."""
    arguments = {"name": name, "quota": quota, "timeout_ms": timeout_ms}
    return Request(_BEGIN_SPACE, [name], arguments)


def renew_space(name: str) -> Request[None]:
    """Renew a scratch space."""
    return Request(_RENEW_SPACE, [name], {"name": name})


def end_space(name: str) -> Request[None]:
    """End a scratch space, and free its values."""
    return Request(_END_SPACE, [name], {"name": name})
