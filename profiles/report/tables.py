"""Make the tables: for the terminal, as Markdown, for the page, and the one of docs/copies.md."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import quote

from profiles.report.best import best
from profiles.report.cases import Cases, Column, Row, layout_title, row_of
from profiles.result import CaseResult
from ucxstore.copies import Counts
from ucxstore.copies.figures import figure, name_culprits, pair, weight
from ucxstore.drawing.tables import Cell, Notes, Table, markdown_table, plain_table

FIGURES = "extra at the peak / allocated in all, in arrays"
NOT_RUN = "-"
RAW = "raw"
_MEGABYTE = 1e6
_ROW = ("store", "pipeline", "over")  # the columns of `_CellMaker.row_cells`


@dataclass(frozen=True, slots=True)
class Links:
    """Make links to flamegraphs.

    Parameters
    ----------
    flamegraphs : collection of str
        The names of the existing flamegraphs, without ``.html``.
    folder : str
        Their folder, relative to the page with the links.
    """

    flamegraphs: Collection[str] = frozenset()
    folder: str = "flamegraphs"

    def to(self, case: CaseResult) -> str:
        """Return the link of a case, whose flamegraph is named as its capture; "" for none."""
        name = PurePosixPath(case.capture).stem
        return quote(f"{self.folder}/{name}.html") if name and name in self.flamegraphs else ""


def terminal_tables(cases: Iterable[CaseResult]) -> str:
    """Return a table for each direction, raw and compressed, for a terminal.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows.
    """
    return "\n\n".join(map(plain_table, _make_tables(Cases(cases), Links())))


def markdown_tables(cases: Iterable[CaseResult], links: Links = Links()) -> str:
    """Return the tables of `terminal_tables` in Markdown, with links to flamegraphs."""
    return "\n\n".join(map(markdown_table, _make_tables(Cases(cases), links)))


def headline(cases: Iterable[CaseResult], links: Links = Links(), *, codec: str = "zstd") -> Table:
    """Return the table of docs/copies.md: one chunk, written and read, raw and compressed.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows.
    links : Links
    codec : str
        The codec of the compressed columns.
    """
    found = Cases(cases)
    columns = [Column(direction, c, "one") for direction in ("write", "read") for c in (RAW, codec)]
    maker = _CellMaker(links)
    rows = [
        [*maker.row_cells(row, found.of_row(row)), *(maker.of(found.find(row, w)) for w in columns)]
        for row in found.rows
        if any(found.find(row, column) for column in columns)
    ]
    ideal = [Cell("best achievable"), Cell(""), Cell("")]
    ideal += [Cell(_best_of_column(found.of_column(column))) for column in columns]
    header = [*_ROW, *(f"{column.direction} {column.codec}" for column in columns)]
    right = range(len(_ROW), len(header))
    return Table("", header, [ideal, *rows], maker.notes.lines(), right)


def figures_table(cases: Iterable[CaseResult], links: Links) -> Table:
    """Return the table of all figures of a workload."""
    maker = _CellMaker(links)
    rows = [_figures_row(case, case.counts, maker) for case in cases if case.counts is not None]
    header = (*_ROW, "peak", "total", "of it grown", "resident set", "peak, MB", "best", "why")
    right = range(len(_ROW), len(header) - 1)
    return Table("Figures, in arrays", header, rows, maker.notes.lines(), right)


def _figures_row(case: CaseResult, counts: Counts, maker: "_CellMaker") -> list[Cell]:
    ideal, link = best(case), maker.links.to(case)
    return [
        *maker.row_cells(row_of(case), [case]),
        Cell(figure(counts.peak_extra), link),
        Cell(figure(counts.total), link),
        Cell(figure(counts.grown)),
        Cell(figure(counts.rss_extra)),
        Cell(f"{counts.peak / _MEGABYTE:.1f}"),
        Cell(pair(ideal.peak, ideal.total)),
        Cell(ideal.reason),
    ]


def culprits_table(cases: Iterable[CaseResult]) -> Table:
    """Return the table of the frames that allocated, case after case."""
    header = ("store", "at", "arrays", "blocks", "Python frame", "native frame")
    rows = [
        [
            Cell(row_of(case).label, strong=row_of(case).is_ours),
            Cell(culprit.at),
            Cell(figure(culprit.bytes / case.nbytes if case.nbytes > 0 else 0)),
            Cell(str(culprit.blocks)),
            Cell(culprit.python),
            Cell(culprit.native),
        ]
        for case in cases
        for culprit in (case.counts.culprits if case.counts is not None else ())
    ]
    return Table("What was allocated, and where", header, rows, right=[2, 3])


@dataclass(frozen=True, slots=True)
class _CellMaker:
    """Makes the cells of one table, and collects its notes."""

    links: Links
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


def _make_tables(cases: Cases, links: Links) -> list[Table]:
    tables = []
    for direction in dict.fromkeys(column.direction for column in cases.columns):
        of_direction = [column for column in cases.columns if column.direction == direction]
        raw = [column for column in of_direction if column.codec == RAW]
        compressed = [column for column in of_direction if column.codec != RAW]
        for title, columns in ((RAW, raw), ("compressed", compressed)):
            if columns:
                tables.append(_make_table(f"{direction} {title}", cases, columns, links))
    return tables


def _make_table(title: str, cases: Cases, columns: Sequence[Column], links: Links) -> Table:
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
    header = [*_ROW, "codec", *map(layout_title, layouts), "best", "culprit", "ways"]
    return Table(f"{title}: {FIGURES}", header, rows, maker.notes.lines())


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
