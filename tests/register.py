"""Check histories of single registers: is there an order of the operations that explains all reads?

Exact, by the search of Wing and Gong (1993) with the memory of Lowe (2017): an operation may come
next if no other one that is left has ended before it began.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

type Value = bytes | None


@dataclass(frozen=True, slots=True)
class Op:
    """A read or a write of a register.

    `end` is infinite for a write whose end nobody knows: it may come at any time, or never.
    """

    begin: float
    end: float
    writes: bool
    value: Value


def is_linearizable(history: Sequence[Op], first: Value = None) -> bool:
    """Tell whether the operations on a register, which had `first`, have such an order."""
    ops = sorted(history, key=lambda op: op.begin)
    must = sum(1 << at for at, op in enumerate(ops) if op.end < math.inf)
    seen: set[tuple[int, Value]] = set()
    stack: list[tuple[int, Value]] = [(0, first)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        earliest_end = math.inf
        for at, op in enumerate(ops):
            if done >> at & 1:
                continue
            if op.begin > earliest_end:
                break
            earliest_end = min(earliest_end, op.end)
        for at, op in enumerate(ops):
            if op.begin > earliest_end:
                break
            if done >> at & 1:
                continue
            if op.writes:
                stack.append((done | 1 << at, op.value))
            elif op.value == value:
                stack.append((done | 1 << at, value))
    return False
