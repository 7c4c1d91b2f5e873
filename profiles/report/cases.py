"""The results as a matrix in the order of the report: rows are stores, columns workloads."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from profiles.result import CaseResult
from ucxstore.copies.workload import CODECS, DIRECTIONS, LAYOUTS

_SIDES = ("client", "server")

# Pipelines that reports leave out, since the store's name implies them.
_IMPLIED_PIPELINES = ("zero-copy", "none")

_LAYOUT_TITLES = {
    "one": "one chunk",
    "rows": "row chunks",
    "grid": "grid of chunks",
    "shard": "one shard",
}


class Row(NamedTuple):
    """A row of the report: a store, its pipeline and transport, and the measured process."""

    store: str
    pipeline: str
    transport: str
    side: str

    @property
    def over(self) -> str:
        """The transport, and the side if it is the server."""
        return self.transport if self.side == "client" else f"{self.transport}, {self.side}".strip()

    @property
    def label(self) -> str:
        """The row in one line, short enough for a phone."""
        pipeline = "" if self.pipeline in _IMPLIED_PIPELINES else self.pipeline
        return " · ".join(part for part in (self.store, pipeline, self.over) if part)

    @property
    def is_ours(self) -> bool:
        """Whether the store is a `UcxStore`."""
        return self.store.startswith("UcxStore")


class Column(NamedTuple):
    """A column of the report: a workload, without its size."""

    direction: str
    codec: str
    layout: str

    @property
    def title(self) -> str:
        """The heading."""
        return f"{self.direction} {self.codec}, {layout_title(self.layout)}"


class Cases:
    """The results by row and column.

    Parameters
    ----------
    cases : iterable of CaseResult
        If several have the same row and workload, the last one counts. Each result that is found
        here has either counts or an error.
    """

    def __init__(self, cases: Iterable[CaseResult]) -> None:
        self._found = {(row_of(case), column_of(case)): _settled(case) for case in cases}
        rows = dict.fromkeys(row for row, _ in self._found)
        stores = list(dict.fromkeys(row[:3] for row in rows))
        # The row of a server follows that of its client, whenever they were measured.
        self.rows = sorted(rows, key=lambda row: (stores.index(row[:3]), _rank(_SIDES, row.side)))
        self.columns = sorted(dict.fromkeys(column for _, column in self._found), key=_column_rank)

    def find(self, row: Row, column: Column) -> CaseResult | None:
        """Return the case, or None if there is none."""
        return self._found.get((row, column))

    def of_row(self, row: Row) -> list[CaseResult]:
        """Return the cases of a row, in the order of the workloads."""
        return [case for column in self.columns if (case := self.find(row, column))]

    def of_column(self, column: Column) -> list[CaseResult]:
        """Return the cases of a workload, in the order of the rows."""
        return [case for row in self.rows if (case := self.find(row, column))]

    def all(self) -> list[CaseResult]:
        """Return all cases, row by row."""
        return [case for row in self.rows for case in self.of_row(row)]


def _settled(case: CaseResult) -> CaseResult:
    if case.error and case.counts is not None:  # counts of a failed case mean nothing
        return replace(case, counts=None)
    if not case.error and case.counts is None:
        return replace(case, error="no reason was given")
    return case


def row_of(case: CaseResult) -> Row:
    """Return the row of a case."""
    return Row(case.store, case.pipeline, case.transport, case.side)


def column_of(case: CaseResult) -> Column:
    """Return the column of a case."""
    return Column(case.direction, case.codec, case.layout)


def layout_title(layout: str) -> str:
    """Return the readable name of a layout."""
    return _LAYOUT_TITLES.get(layout, layout)


def _column_rank(column: Column) -> tuple[int, int, int]:
    return (
        _rank(DIRECTIONS, column.direction),
        _rank(CODECS, column.codec),
        _rank(LAYOUTS, column.layout),
    )


def _rank(known: Sequence[str], name: str) -> int:
    """Return the position of a name; unknown names come last."""
    return known.index(name) if name in known else len(known)
