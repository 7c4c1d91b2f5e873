"""The page's tables: the overview of all stores, and the figures and culprits of a chart."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from urllib.parse import quote

from profiles.report.best import best
from profiles.report.cases import Cases, Column, Row, flamegraph_of, row_of
from profiles.report.html import Content, Html, element, heading, join, link, number, table
from profiles.result import CaseResult
from ucxstore.copies import Counts, Culprit
from ucxstore.copies.figures import figure, pair

_MEGABYTE = 1e6


class Links:
    """Make links to flamegraphs."""

    def __init__(self, flamegraphs: Collection[str], folder: str) -> None:
        self._flamegraphs = flamegraphs
        self._folder = folder

    def around(self, text: str, case: CaseResult) -> Content:
        """Return the text, as a link if the case has a flamegraph."""
        name = flamegraph_of(case, self._flamegraphs)
        return link(text, f"{self._folder}/{quote(name)}.html") if name else text


def overview(cases: Cases, columns: Sequence[Column], links: Links) -> Html:
    """Return the table of all stores with some workloads."""
    header = [
        heading("store"),
        *(heading(f"{column.direction} {column.codec}", "number") for column in columns),
    ]
    rows = (
        element(
            "tr",
            _row_heading(row),
            *(number(_pair_of(cases.find(row, column), links)) for column in columns),
            class_=_style(row),
        )
        for row in cases.rows
    )
    return table("One chunk: extra at the peak / allocated in all, in arrays", header, rows)


def figures_table(cases: Sequence[CaseResult], links: Links) -> Html:
    """Return the table of all figures of a workload."""
    columns = ("peak", "total", "of it grown", "resident set", "peak, MB", "best")
    header = [heading("store"), *(heading(name, "number") for name in columns), heading("why")]
    rows = (_figures_row(case, case.counts, links) for case in cases if case.counts is not None)
    return table("Figures, in arrays", header, rows)


def culprits_table(cases: Sequence[CaseResult]) -> Html:
    """Return the table of the frames that allocated, case after case."""
    header = [
        heading("store"),
        heading("at"),
        heading("arrays", "number"),
        heading("blocks", "number"),
        heading("Python frame"),
        heading("native frame"),
    ]
    return table("What was allocated, and where", header, _culprit_rows(cases))


def _pair_of(case: CaseResult | None, links: Links) -> Content:
    if case is None:
        return "not run"
    if case.counts is None:
        return element("span", "failed", class_="failed", title=case.error)
    return links.around(pair(case.counts.peak_extra, case.counts.total), case)


def _figures_row(case: CaseResult, counts: Counts, links: Links) -> Html:
    row, ideal = row_of(case), best(case)
    cells = (
        links.around(figure(counts.peak_extra), case),
        links.around(figure(counts.total), case),
        figure(counts.grown),
        figure(counts.rss_extra),
        f"{counts.peak / _MEGABYTE:.1f}",
        pair(ideal.peak, ideal.total),
    )
    why = element("td", ideal.reason, class_="why")
    return element("tr", _row_heading(row, case.note), *map(number, cells), why, class_=_style(row))


def _culprit_rows(cases: Iterable[CaseResult]) -> Iterator[Html]:
    for case in cases:
        culprits = case.counts.culprits if case.counts is not None else ()
        for index, culprit in enumerate(culprits):
            first = [_row_heading(row_of(case), span=len(culprits))] if index == 0 else []
            yield element("tr", *first, *_culprit_cells(culprit, case), class_=_style(row_of(case)))


def _culprit_cells(culprit: Culprit, case: CaseResult) -> tuple[Html, ...]:
    return (
        element("td", culprit.at),
        number(figure(culprit.bytes / case.nbytes if case.nbytes > 0 else 0)),
        number(str(culprit.blocks)),
        element("td", culprit.python, class_="frame"),
        element("td", culprit.native, class_="frame"),
    )


def _row_heading(row: Row, note: str = "", span: int = 1) -> Html:
    parts: list[Content] = [row.label]
    if note:
        parts.append(element("span", note, class_="note"))
    return element("th", join(parts, ""), scope="row", rowspan=str(span), class_="store")


def _style(row: Row) -> str:
    return "ours" if row.is_ours else "other"
