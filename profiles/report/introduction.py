"""The text before the charts: the circumstances, what is counted and what is not seen."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from profiles.report.cases import row_of
from profiles.report.html import Content, Html, element, facts, items, join
from profiles.result import CaseResult

_COUNTED = (
    "Each case is a process of its own, under memray: an array is written to a store, or read from "
    "it. Stores are opened and connected beforehand. Everything is in multiples of the array, "
    "which is itself not counted: not the user's array in a write, not the result in a read. "
    "Server rows are the same transfers, seen in the server's process; what it stores is "
    "not counted there."
)
_FIGURES: tuple[tuple[str, Content], ...] = (
    ("peak", "what was alive at the moment when most was, beyond the array"),
    (
        "total",
        "what was allocated over the whole run in blocks of at least half a chunk: copies that "
        "follow one another, each freed before the next, do not show at the peak",
    ),
    ("of it grown", "the part of the total that came by realloc, which may move what is there"),
    ("resident set", "how much the process grew, beyond the array, as the kernel saw it"),
    ("best", "the least that will do, with the reason in the table under each chart"),
)
_UNSEEN = (
    "What the kernel copies between a process and its sockets, or the page cache, is in none of "
    "these figures: over TCP that is one copy at each end.",
    "System V and POSIX shared memory are not allocated as memray sees it: they show in the "
    "resident set only, as far as they are touched.",
    "Copies within memory that is there already, such as a small buffer used again and again, take "
    "time but no memory, and do not show.",
)


def introduction(
    title: str, cases: Sequence[CaseResult], circumstances: Iterable[tuple[str, object]]
) -> Html:
    """Return what stands before the first chart.

    Parameters
    ----------
    title : str
        The page's.
    cases : sequence of CaseResult
        Their versions and notes are told.
    circumstances : iterable of (str, object)
        The machine and the settings; what is said of each may be a mapping or a list.
    """
    parts = [
        element("h1", title),
        facts((name.replace("_", " "), _write_fact(value)) for name, value in circumstances),
        element("h2", "Versions"),
        facts(_versions(cases)),
        element("h2", "What is counted"),
        element("p", _COUNTED),
        facts(_FIGURES),
        element("h2", "What is not seen"),
        items(_UNSEEN),
    ]
    notes = list(_notes(cases))
    if notes:
        parts += [element("h2", "Notes"), items(notes)]
    return element("header", join(parts))


def _write_fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write_fact(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_write_fact, value))
    return str(value)


def _versions(cases: Iterable[CaseResult]) -> list[tuple[str, Content]]:
    """Return what stands beside each package's name."""
    used: dict[str, dict[str, dict[str, None]]] = {}
    for case in cases:
        for package, version in case.versions.items():
            used.setdefault(package, {}).setdefault(version, {})[case.store] = None
    return [(package, _write_versions(versions)) for package, versions in sorted(used.items())]


def _write_versions(versions: Mapping[str, Collection[str]]) -> str:
    """Write the version of most stores, then each other one with its stores."""
    most, *others = sorted(versions, key=lambda version: len(versions[version]), reverse=True)
    return "; ".join([most, *(f"{other} ({' | '.join(versions[other])})" for other in others)])


def _notes(cases: Iterable[CaseResult]) -> Iterator[str]:
    rows: dict[str, dict[str, None]] = {}
    for case in cases:
        if case.note:
            rows.setdefault(case.note, {})[row_of(case).label] = None
    return (f"{note} ({' | '.join(labels)})" for note, labels in rows.items())
