"""Check histories of registers while they happen: is there still an order that explains all reads?

Exact, as `tests/register.py` is, and quicker, as it keeps no history: it keeps what may be true. A
`Possibility` is a value that the register may have now, with the pending writes that have taken
effect on the way to it, and the values that each pending read has passed. A write takes effect only
when an answer needs that: so there are few possibilities, mostly one.
"""

from collections.abc import Callable, Hashable, Iterator

type Value = int
"""What was written; 0 if the key is missing."""

MISSING = 0

# Kinds of operations. An `ADD` writes if the key is missing.
GET, SET, ADD, REMOVE = "get", "set", "add", "remove"

# Outcomes of a change.
MADE, NOT_MADE, UNKNOWN = "made", "not made", "unknown"

# Bounds the search, where many outcomes are unknown; see `Register.is_sure`.
_MOST = 3000

type _Possibility = tuple[Value, frozenset[int], frozenset[tuple[int, Value]]]


class Register:
    """The operations on one key that are pending, and what may be true of it."""

    __slots__ = ("_may_be", "_pending", "_unknown", "is_sure")

    def __init__(self) -> None:
        self.is_sure = True
        self._pending: dict[int, tuple[str, Value]] = {}
        self._unknown: set[int] = set()
        self._may_be: set[_Possibility] = {(MISSING, frozenset(), frozenset())}

    def copy(self) -> "Register":
        other = Register.__new__(Register)
        other.is_sure = self.is_sure
        other._pending = dict(self._pending)
        other._unknown = set(self._unknown)
        other._may_be = self._may_be  # is replaced, and never changed
        return other

    def key(self) -> Hashable:
        return (
            tuple(sorted(self._pending.items())),
            frozenset(self._unknown),
            frozenset(self._may_be),
        )

    def begin(self, op: int, kind: str, value: Value = MISSING) -> None:
        """Note that an operation begins."""
        self._pending[op] = kind, value
        if kind in (GET, ADD):
            self._may_be = {(now, done, seen | {(op, now)}) for now, done, seen in self._may_be}

    def read(self, op: int, value: Value) -> bool:
        """Note what a read has returned; tell whether that can be."""
        return self._end(op, lambda one: (op, value) in one[2])

    def answer(self, op: int, outcome: str) -> bool:
        """Note what a client was told of a change; tell whether that can be."""
        kind, _ = self._pending[op]
        if outcome == UNKNOWN:
            self._unknown.add(op)
            self._may_be = {
                (now, done, _without(seen, op) if kind == ADD else seen)
                for now, done, seen in self._may_be
            }
            return True
        if outcome == MADE:
            return self._end(op, lambda one: op in one[1])
        return self._end(op, lambda one: op not in one[1])

    def found(self, op: int) -> bool:
        """Note that an `ADD` has found a value; tell whether that can be."""
        return self._end(
            op,
            lambda one: op not in one[1] and any(at == op and seen for at, seen in one[2]),
        )

    def fail(self, op: int) -> None:
        """Note that a read has failed."""
        del self._pending[op]
        self._may_be = {(now, done, _without(seen, op)) for now, done, seen in self._may_be}

    def _end(self, op: int, explains: Callable[[_Possibility], bool]) -> bool:
        found: set[_Possibility] = set()
        tried: set[_Possibility] = set()
        stack = list(self._may_be)
        others = any(
            kind in (GET, ADD) and one != op and one not in self._unknown
            for one, (kind, _) in self._pending.items()
        )
        adds = any(kind == ADD for kind, _ in self._pending.values())
        while stack:
            one = stack.pop()
            if one in tried:
                continue
            tried.add(one)
            if len(tried) > _MOST:
                self.is_sure = False
                break
            if explains(one):
                found.add((one[0], one[1] - {op}, _without(one[2], op)))
                continue
            for more, unknown in self._next(one):
                # Nobody sees it if what has no known end is replaced at once.
                if others or adds or not unknown or explains(more):
                    stack.append(more)
        del self._pending[op]
        self._may_be = found
        self._forget_settled()
        return bool(found) or not self.is_sure

    def _next(self, one: _Possibility) -> Iterator[tuple[_Possibility, bool]]:
        """Yield what may be true once a pending change has taken effect."""
        now, done, seen = one
        readers = None
        for op, (kind, value) in self._pending.items():
            if kind == GET or op in done or (kind == ADD and now != MISSING):
                continue
            if readers is None:
                readers = [
                    at
                    for at, (other, _) in self._pending.items()
                    if other in (GET, ADD) and at not in self._unknown
                ]
            new = seen.union([(at, value) for at in readers]) if readers else seen
            yield (value, done | {op}, new), op in self._unknown

    def _forget_settled(self) -> None:
        for op in list(self._unknown):
            if all(op in done for _, done, _ in self._may_be):
                self._unknown.discard(op)
                del self._pending[op]
                self._may_be = {(now, done - {op}, seen) for now, done, seen in self._may_be}


def _without(seen: frozenset[tuple[int, Value]], op: int) -> frozenset[tuple[int, Value]]:
    if not seen:
        return seen
    return frozenset(one for one in seen if one[0] != op)
