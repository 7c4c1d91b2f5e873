"""Write the HTML page: one file with charts, tables and style, without scripts."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files

from profiles.report import chart
from profiles.report.cases import Cases, Column, layout_title, row_of
from profiles.report.details import Links, culprits_table, figures_table, overview
from profiles.report.html import (
    Html,
    element,
    folded,
    heading,
    items,
    join,
    link,
    render,
    table,
)
from profiles.report.introduction import SMALL, introduction, is_small
from profiles.report.story import choose, sentence, story
from profiles.result import CaseResult
from ucxstore.copies.figures import READ_NOTE

TITLE = "Extra copies, counted"
_INDEX = "index"
_OVERVIEW_CODECS = ("raw", "zstd")
_NOTHING: Mapping[str, object] = {}


def render_page(
    cases: Iterable[CaseResult],
    *,
    machine: Mapping[str, object],
    settings: Mapping[str, object] = _NOTHING,
    flamegraphs: Collection[str] = frozenset(),
    folder: str = "flamegraphs",
    left: int = 0,
) -> str:
    """Return the page as HTML: a chart that tells the story, then the details, folded.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows. Those that failed are shown as failed.
    machine, settings : mapping
        Names and values for the top of the page, as in the file of the results.
    flamegraphs : collection of str
        The names of the existing flamegraphs, without ``.html``. Figures link to them.
    folder : str
        Their folder, relative to the page.
    left : int
        The cases that the run has not counted yet.

    Returns
    -------
    str
        To be written as UTF-8.
    """
    found, links = Cases(cases), Links(flamegraphs, folder)
    body = element(
        "body",
        element("header", element("h1", TITLE), *_unfinished(left), *_story(found)),
        element(
            "main",
            *introduction(found.all(), [*machine.items(), *settings.items()]),
            _overview(found, links),
            _index(found),
            *_groups(found, links),
        ),
    )
    head = join(
        (
            Html('<meta charset="utf-8"/>'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
            element("title", TITLE),
            element("style", Html(_style_sheet())),
        )
    )
    whole = element("html", element("head", head), body, lang="en")
    return f"<!DOCTYPE html>\n{render(whole)}\n"


def anchor(column: Column) -> str:
    """Return the id of a workload's chart."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(column))


def _style_sheet() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _unfinished(left: int) -> list[Html]:
    if not left:
        return []
    cases = "case is" if left == 1 else "cases are"
    return [element("p", f"The run has not ended: {left} {cases} missing.", class_="unfinished")]


def _story(cases: Cases) -> list[Html]:
    drawn = story(cases.all())
    if not drawn:
        return []
    nbytes = max(case.nbytes for case in cases.all())
    what = (
        f"{READ_NOTE} The array is {nbytes / 1e6:g} MB of random numbers in one chunk. Each bar is "
        "the larger of two figures, the peak and the total."
    )
    small = f" {SMALL}" if is_small(cases.all()) else ""
    return [
        element("p", sentence(choose(cases)), class_="sentence"),
        element("figure", Html(drawn), element("figcaption", f"{what}{small}"), class_="story"),
    ]


def _index(cases: Cases) -> Html:
    layouts = list(dict.fromkeys(column.layout for column in cases.columns))
    rows = []
    for direction, codec in dict.fromkeys(
        (column.direction, column.codec) for column in cases.columns
    ):
        columns = (Column(direction, codec, layout) for layout in layouts)
        cells = (
            element("td", link(layout_title(column.layout), f"#{anchor(column)}"))
            if column in cases.columns
            else element("td", "not run")
            for column in columns
        )
        name = element("th", f"{direction} {codec}", scope="row")
        rows.append(element("tr", name, *cells))
    header = [heading("workload"), *(heading(layout_title(layout)) for layout in layouts)]
    charts = table("Every chart", header, rows)
    return element("nav", folded("Index of charts", charts), id=_INDEX, **{"aria-label": "Charts"})


def _overview(cases: Cases, links: Links) -> Html:
    columns = [c for c in cases.columns if c.layout == "one" and c.codec in _OVERVIEW_CODECS]
    if not columns:
        return Html("")
    return folded("All stores", overview(cases, columns, links))


def _groups(cases: Cases, links: Links) -> Iterable[Html]:
    for direction, codec in dict.fromkeys(
        (column.direction, column.codec) for column in cases.columns
    ):
        columns = [c for c in cases.columns if (c.direction, c.codec) == (direction, codec)]
        scale = chart.scale_of(case for column in columns for case in cases.of_column(column))
        charts = (_article(cases, column, scale, links) for column in columns)
        yield folded(
            f"Charts: {direction} {codec}", _LEGEND, element("div", *charts, class_="charts")
        )


def _article(cases: Cases, column: Column, scale: float, links: Links) -> Html:
    found = cases.of_column(column)
    parts = [
        element("h3", column.title),
        Html(chart.draw(column.title, anchor(column), found, scale)),
        *_missing(cases, column),
        *_failures(found),
    ]
    if any(case.counts is not None for case in found):
        tables = [figures_table(found, links)]
        if any(case.counts.culprits for case in found if case.counts is not None):
            tables.append(culprits_table(found))
        parts.append(element("details", element("summary", "Figures and culprits"), *tables))
    return element("article", join(parts), class_="work", id=anchor(column))


def _missing(cases: Cases, column: Column) -> list[Html]:
    labels = [row.label for row in cases.rows if cases.find(row, column) is None]
    return [element("p", f"Not run: {'; '.join(labels)}.")] if labels else []


def _failures(cases: Sequence[CaseResult]) -> list[Html]:
    failed = [case for case in cases if case.counts is None]
    reasons = (f"{row_of(case).label}: {case.error}" for case in failed)
    marked = [join((element("span", "failed", class_="failed"), one), " ") for one in reasons]
    return [items(marked)] if marked else []


def _legend() -> Html:
    def swatch(shape: str) -> Html:
        return Html(f'<svg width="28" height="13" aria-hidden="true">{shape}</svg>')

    bar = '<rect class="bar {}" x="1" y="1" width="26" height="10"/>'
    mark = '<line class="best" x1="14" y1="0" x2="14" y2="13"/>'
    entries = (
        (bar.format("peak"), "peak: extra memory at the peak (filled)"),
        (bar.format("total"), "total: allocated in all (outlined)"),
        (mark, "best achievable"),
    )
    named = (join((swatch(shape), text), "") for shape, text in entries)
    return items([*named, "all in multiples of the array"], class_="legend")


_LEGEND = _legend()
