"""Write the HTML page: a chart that tells the story, then the details, folded."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from profiles.report.best import best
from profiles.report.cases import Cases, Column, layout_title, row_of
from profiles.report.story import choose, sentence, story
from profiles.report.tables import FIGURES, NOT_RUN, Links, culprits_table, figures_table, headline
from profiles.result import CaseResult
from ucxstore.copies.figures import READ_NOTE, figure, name_culprits
from ucxstore.drawing.chart import Bar, Bars, draw, scale_of
from ucxstore.drawing.page import Part, Section, paragraph, write_page
from ucxstore.drawing.tables import Cell, Table

_COUNTED = (
    "Each case runs in a new process, under memray: an array is written to a store, or read from "
    "it. Stores are opened and connected before. All figures are multiples of the array, which is "
    "not counted itself: neither the user's array in a write, nor the result in a read. "
    "Server rows are the same transfers, counted in the server's process; the values that it "
    "stores are not counted there."
)
SMALL = (
    "The array is small. What takes the same memory for any array, such as threads and a "
    "compressor's own buffers, is a larger part of it: figures are up to 0.1 higher than those of "
    "100 MB. They serve to compare stores."
)
_SMALL_BYTES = 50_000_000
_FIGURES = {
    "peak": "the most memory that was allocated at one moment, beyond the array",
    "total": (
        "all memory that was allocated in blocks of at least half a chunk: copies that follow one "
        "another, each freed before the next, are not in the peak"
    ),
    "of it grown": "the part of the total that was allocated by realloc, which may copy the block",
    "resident set": "how much the process grew beyond the array, as counted by the kernel",
    "best": "the least that is possible; the reason is in the table under each chart",
}
_UNSEEN = (
    "The figures do not include what the kernel copies between a process and its sockets or the "
    "page cache. Over TCP that is one copy at each end.",
    "memray does not see System V and POSIX shared memory. They are only in the resident set, as "
    "far as they are touched.",
    "What a process maps once to send values of any size to a server of its host is fixed memory, "
    "16 MiB over local. It is only in the resident set, too.",
    "Copies into memory that is allocated already, such as a small buffer that is used again and "
    "again, take time but no memory, and are not counted.",
)
_LEGEND = (
    "peak: extra memory at the peak. total: allocated in all. The mark in each bar: the best "
    "achievable."
)
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
    """Return the page as HTML.

    Parameters
    ----------
    cases : iterable of CaseResult
        In the order of the rows. Those that failed are shown as failed.
    machine, settings : mapping
        Names and values for the top of the page, as in the file of the results. A value may be a
        mapping or a list.
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
    told = {name.replace("_", " "): _write(one) for name, one in {**machine, **settings}.items()}
    notes = _notes(found.all())
    overview = replace(headline(found.all(), links), title=f"One chunk: {FIGURES}")
    sections = [
        Section("What is counted", [_COUNTED, _FIGURES]),
        Section("What is not seen", [_UNSEEN]),
        Section("Machine and versions", [told, _versions(found.all())]),
        *([Section("Notes", [notes])] if notes else []),
        *([Section("All stores", [overview])] if len(overview.rows) > 1 else []),
        Section("Index of charts", [_index(found)]),
        *_groups(found, links),
    ]
    title = "Extra copies, counted"
    return write_page(title, _story(found), sections, left=left, what="case")


def is_small(cases: Iterable[CaseResult]) -> bool:
    """Tell whether memory of constant size shows in the figures."""
    return any(0 < case.nbytes < _SMALL_BYTES for case in cases)


def _story(cases: Cases) -> list[Part]:
    drawn = story(cases.all())
    if not drawn:
        return []
    nbytes = max(case.nbytes for case in cases.all())
    what = (
        f"{READ_NOTE} The array is {nbytes / 1e6:g} MB of random numbers in one chunk. Each bar is "
        "the larger of two figures, the peak and the total."
    )
    small = f" {SMALL}" if is_small(cases.all()) else ""
    said = paragraph(sentence(choose(cases)), "sentence")
    return [said, drawn, paragraph(f"{what}{small}", "muted")]


def _write(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_write, value))
    return str(value)


def _versions(cases: Iterable[CaseResult]) -> dict[str, str]:
    """Return the names of packages, and the versions in use."""
    used: dict[str, dict[str, dict[str, None]]] = {}
    for case in cases:
        for package, version in case.versions.items():
            used.setdefault(package, {}).setdefault(version, {})[case.store] = None
    return {package: _write_versions(versions) for package, versions in sorted(used.items())}


def _write_versions(versions: Mapping[str, Collection[str]]) -> str:
    """Return the version of most stores, then each other version with its stores."""
    most, *others = sorted(versions, key=lambda version: len(versions[version]), reverse=True)
    return "; ".join([most, *(f"{other} ({' | '.join(versions[other])})" for other in others)])


def _notes(cases: Iterable[CaseResult]) -> list[str]:
    rows: dict[str, dict[str, None]] = {}
    for case in cases:
        if case.note:
            rows.setdefault(case.note, {})[row_of(case).label] = None
    return [f"{note} ({' | '.join(labels)})" for note, labels in rows.items()]


def _kinds(cases: Cases) -> list[tuple[str, str]]:
    """Return the directions and codecs, in the order of the workloads."""
    return [*dict.fromkeys((column.direction, column.codec) for column in cases.columns)]


def _id(column: Column) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(column))


def _index(cases: Cases) -> Table:
    layouts = list(dict.fromkeys(column.layout for column in cases.columns))
    rows = [
        [
            Cell(f"{direction} {codec}"),
            *(
                Cell(layout_title(layout), f"#{_id(column)}")
                if (column := Column(direction, codec, layout)) in cases.columns
                else Cell(NOT_RUN)
                for layout in layouts
            ),
        ]
        for direction, codec in _kinds(cases)
    ]
    return Table("Every chart", ["workload", *map(layout_title, layouts)], rows)


def _groups(cases: Cases, links: Links) -> Iterator[Section]:
    """Yield the charts of each direction and codec, which share their scale."""
    for kind in _kinds(cases):
        columns = [column for column in cases.columns if column[:2] == kind]
        drawn = {column: [*map(_bars, cases.of_column(column))] for column in columns}
        scale = scale_of(row for rows in drawn.values() for row in rows)
        charts = [
            Section("", [*_workload(cases, column, rows, scale, links)], _id(column))
            for column, rows in drawn.items()
        ]
        yield Section(f"Charts: {' '.join(kind)}", [_LEGEND, *charts])


def _workload(
    cases: Cases, column: Column, rows: Sequence[Bars], scale: float, links: Links
) -> Iterator[Part]:
    found = cases.of_column(column)
    description = (
        f"Bars for {len(found)} stores, in multiples of the array: extra memory at the peak, and "
        "allocated in all, each with a mark at the best achievable. The table below the chart has "
        "the same figures."
    )
    yield draw(
        f"{column.title}: extra memory, in arrays",
        description,
        rows,
        unit="array",
        name=_id(column),
        scale=scale,
    )
    if missing := [row.label for row in cases.rows if cases.find(row, column) is None]:
        yield f"Not run: {'; '.join(missing)}."
    if failed := [case for case in found if case.counts is None]:
        yield [f"failed: {row_of(case).label}: {case.error}" for case in failed]
    if len(failed) < len(found):
        tables = figures_table(found, links), culprits_table(found)
        yield Section("Figures and culprits", [table for table in tables if table.rows])


def _bars(case: CaseResult) -> Bars:
    row, counts = row_of(case), case.counts
    if counts is None:
        failed = Bar(0, "failed; the reason is below the chart")
        return Bars(row.label, [failed], row.is_ours, f"{row.label}: {case.error}")
    ideal = best(case)
    bars = [
        Bar(counts.peak_extra, f"{figure(counts.peak_extra)} peak", ideal.peak),
        Bar(counts.total, f"{figure(counts.total)} total", ideal.total),
    ]
    tip = (
        f"{row.label}. Best: {figure(ideal.peak)} and {figure(ideal.total)}, {ideal.reason}. "
        f"By: {name_culprits(counts, case.nbytes) or 'many small allocations'}"
    )
    return Bars(row.label, bars, row.is_ours, f"{tip}. {case.note}" if case.note else tip)
