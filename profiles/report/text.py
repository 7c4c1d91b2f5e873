"""Make the tables: for the terminal, as Markdown, and the short one of docs/copies.md."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from profiles.report.best import best
from profiles.report.cases import Cases, Column, Row, flamegraph_of, layout_title
from profiles.report.markup import Cell, Notes, Table, markdown_table, plain_table
from profiles.result import CaseResult
from ucxstore.copies.figures import figure, name_culprits, pair, weight

NOT_RUN = "-"
RAW = "raw"

_NO_FLAMEGRAPHS: frozenset[str] = frozenset()


def terminal_tables(cases: Iterable[CaseResult]) -> str:
    """Return a table for each direction, raw and compressed, for a terminal.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows.
    """
    return "\n\n".join(map(plain_table, _make_tables(Cases(cases), _Links())))


def markdown_tables(
    cases: Iterable[CaseResult],
    flamegraphs: Collection[str] = _NO_FLAMEGRAPHS,
    *,
    folder: str = "flamegraphs",
) -> str:
    """Return the tables of `terminal_tables` in Markdown.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows.
    flamegraphs : collection of str
        The names of the existing flamegraphs, without ``.html``. Figures link to them.
    folder : str
        Their folder, relative to the page with the tables.
    """
    tables = _make_tables(Cases(cases), _Links(flamegraphs, folder))
    return "\n\n".join(map(markdown_table, tables))


def headline(
    cases: Iterable[CaseResult],
    flamegraphs: Collection[str] = _NO_FLAMEGRAPHS,
    *,
    folder: str = "flamegraphs",
    codec: str = "zstd",
) -> str:
    """Return the table of docs/copies.md: one chunk, written and read, raw and compressed.

    Parameters
    ----------
    cases, flamegraphs, folder
        As for `markdown_tables`.
    codec : str
        The codec of the compressed columns.
    """
    found = Cases(cases)
    columns = [Column(direction, c, "one") for direction in ("write", "read") for c in (RAW, codec)]
    headers = ["write raw", f"write {codec}", "read raw", f"read {codec}"]
    maker = _CellMaker(_Links(flamegraphs, folder))
    rows = [
        [*maker.row_cells(row, found.of_row(row)), *(maker.of(found.find(row, w)) for w in columns)]
        for row in found.rows
        if any(found.find(row, column) for column in columns)
    ]
    ideal = [Cell("best achievable"), Cell(""), Cell("")]
    ideal += [Cell(_best_of_column(found.of_column(column))) for column in columns]
    header = ["store", "pipeline", "over", *headers]
    return markdown_table(Table("", header, [ideal, *rows], maker.notes.lines()))


@dataclass(frozen=True, slots=True)
class _Links:
    flamegraphs: Collection[str] = _NO_FLAMEGRAPHS
    folder: str = ""

    def to(self, case: CaseResult) -> str:
        name = flamegraph_of(case, self.flamegraphs)
        return f"{self.folder}/{name}.html" if name else ""


@dataclass(frozen=True, slots=True)
class _CellMaker:
    """Makes the cells of one table, and collects its notes."""

    links: _Links
    notes: Notes = field(default_factory=Notes)

    def of(self, case: CaseResult | None) -> Cell:
        if case is None:
            return Cell(NOT_RUN)
        if case.counts is None:
            return Cell(f"failed {self.notes.mark(case.error)}")
        return Cell(pair(case.counts.peak_extra, case.counts.total), self.links.to(case))

    def row_cells(self, row: Row, cases: Iterable[CaseResult]) -> list[Cell]:
        marks = dict.fromkeys(self.notes.mark(case.note) for case in cases if case.note)
        store = " ".join([row.store, *marks])
        return [Cell(store, strong=row.is_ours), Cell(row.pipeline), Cell(row.over)]


def _make_tables(cases: Cases, links: _Links) -> list[Table]:
    tables = []
    for direction in dict.fromkeys(column.direction for column in cases.columns):
        of_direction = [column for column in cases.columns if column.direction == direction]
        raw = [column for column in of_direction if column.codec == RAW]
        compressed = [column for column in of_direction if column.codec != RAW]
        for title, columns in ((RAW, raw), ("compressed", compressed)):
            if columns:
                tables.append(_make_table(f"{direction} {title}", cases, columns, links))
    return tables


def _make_table(title: str, cases: Cases, columns: Sequence[Column], links: _Links) -> Table:
    direction = columns[0].direction
    codecs = list(dict.fromkeys(column.codec for column in columns))
    layouts = list(dict.fromkeys(column.layout for column in columns))
    maker = _CellMaker(links)
    rows = []
    for row in cases.rows:
        for codec in codecs:
            found = [cases.find(row, Column(direction, codec, layout)) for layout in layouts]
            there = [case for case in found if case is not None]
            rows.append(
                [
                    *maker.row_cells(row, there),
                    Cell("" if codec == RAW else codec),
                    *map(maker.of, found),
                    Cell(_best_of_row(there)),
                    Cell(_worst_culprits(there)),
                    Cell(_ways(there)),
                ]
            )
    header = ["store", "pipeline", "over", "codec", *map(layout_title, layouts), "best", "culprit"]
    header.append("ways")
    heading = f"{title}: extra at the peak / allocated in all, in arrays"
    return Table(heading, header, rows, maker.notes.lines())


def _best_of_row(cases: Iterable[CaseResult]) -> str:
    """Return the best figures, as ranges where they differ between layouts."""
    ideals = [best(case) for case in cases if case.counts is not None]
    if not ideals:
        return ""
    return f"{_span([i.peak for i in ideals])} / {_span([i.total for i in ideals])}"


def _span(values: Sequence[float]) -> str:
    low, high = figure(min(values)), figure(max(values))
    return low if low == high else f"{low} to {high}"


def _best_of_column(cases: Iterable[CaseResult]) -> str:
    """Return the best figures of most rows; a store that keeps the data has others."""
    ideals = (best(case) for case in cases if case.counts is not None)
    common = Counter(pair(ideal.peak, ideal.total) for ideal in ideals).most_common(1)
    return common[0][0] if common else NOT_RUN


def _ways(cases: Iterable[CaseResult]) -> str:
    """Name the ways that chunks went, in any layout, as the documentation has them."""
    return ", ".join(dict.fromkeys(way.upper() for case in cases for way in case.ways))


def _worst_culprits(cases: Iterable[CaseResult]) -> str:
    """Name the culprits of the layout with the largest figure."""
    counted = [(case.counts, case.nbytes) for case in cases if case.counts is not None]
    return name_culprits(*max(counted, key=lambda one: weight(one[0]))) if counted else ""
