"""The result of a row: lines with figures, compared to targets."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.timing import Times

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
}


class Target(NamedTuple):
    sign: str
    bound: float

    def is_reached(self, value: float) -> bool:
        return _COMPARISONS[self.sign](value, self.bound)

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


def at_least(bound: float) -> Target:
    return Target(">=", bound)


def at_most(bound: float) -> Target:
    return Target("<=", bound)


def below(bound: float) -> Target:
    return Target("<", bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison or figure.

    Parameters
    ----------
    what, against : str
        What was measured, and for a ratio, what it is compared to.
    median, minimum : float
        Of the repetitions. For a ratio, the ratio of the median times and of the shortest times.
    unit : str
        "x" for "times as fast".
    target : Target or None
        For the median.
    counts : bool
        Whether the target applies to this line. If not, the line only shows another line's target.
    """

    what: str
    median: float
    minimum: float
    unit: str
    against: str = ""
    target: Target | None = None
    counts: bool = True

    @property
    def reached(self) -> bool | None:
        return None if self.target is None else self.target.is_reached(self.median)

    @property
    def missed(self) -> bool:
        return self.counts and self.reached is False


@dataclass(slots=True, kw_only=True)
class Row:
    """A measurement: its lines, the times behind them, and notes."""

    name: str
    title: str
    lines: list[Line]
    times: dict[str, Times] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def times_as_fast(
    times: dict[str, Times],
    name: str,
    against: str,
    target: Target | None = None,
    *,
    counts: bool = True,
) -> Line:
    """Make the line that compares two candidates, which took turns."""
    ours, theirs = times[name], times[against]
    return Line(
        what=name,
        against=against,
        median=theirs.median / ours.median,
        minimum=theirs.minimum / ours.minimum,
        unit="x",
        target=target,
        counts=counts and target is not None,
    )


def figure(
    what: str,
    values: Sequence[float],
    unit: str,
    target: Target | None = None,
    *,
    counts: bool = True,
) -> Line:
    """Make the line of a figure that is not a ratio."""
    return Line(
        what=what,
        median=median(values),
        minimum=min(values),
        unit=unit,
        target=target,
        counts=counts and target is not None,
    )
