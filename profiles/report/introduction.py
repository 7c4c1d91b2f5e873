"""The text about the charts: the machine, the versions, what is counted and what is not."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from profiles.report.cases import row_of
from profiles.report.html import Content, Html, element, facts, folded, items
from profiles.result import CaseResult

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
_FIGURES: tuple[tuple[str, Content], ...] = (
    ("peak", "the most memory that was allocated at one moment, beyond the array"),
    (
        "total",
        "all memory that was allocated in blocks of at least half a chunk: copies that follow one "
        "another, each freed before the next, are not in the peak",
    ),
    (
        "of it grown",
        "the part of the total that was allocated by realloc, which may copy the block",
    ),
    ("resident set", "how much the process grew beyond the array, as counted by the kernel"),
    ("best", "the least that is possible; the reason is in the table under each chart"),
)
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


def is_small(cases: Iterable[CaseResult]) -> bool:
    """Tell whether memory of constant size shows in the figures."""
    return any(0 < case.nbytes < _SMALL_BYTES for case in cases)


def introduction(
    cases: Sequence[CaseResult], circumstances: Iterable[tuple[str, object]]
) -> Iterator[Html]:
    """Yield folded sections of text.

    Parameters
    ----------
    cases : sequence of CaseResult
        Their versions and notes are listed.
    circumstances : iterable of (str, object)
        The machine and the settings: names and values. A value may be a mapping or a list.
    """
    yield folded("What is counted", element("p", _COUNTED), facts(_FIGURES))
    yield folded("What is not seen", items(_UNSEEN))
    yield folded(
        "Machine and versions",
        facts((name.replace("_", " "), _write_fact(value)) for name, value in circumstances),
        element("h3", "Versions"),
        facts(_versions(cases)),
    )
    notes = list(_notes(cases))
    if notes:
        yield folded("Notes", items(notes))


def _write_fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_write_fact(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_write_fact, value))
    return str(value)


def _versions(cases: Iterable[CaseResult]) -> list[tuple[str, Content]]:
    """Return the names of packages, and the versions in use."""
    used: dict[str, dict[str, dict[str, None]]] = {}
    for case in cases:
        for package, version in case.versions.items():
            used.setdefault(package, {}).setdefault(version, {})[case.store] = None
    return [(package, _write_versions(versions)) for package, versions in sorted(used.items())]


def _write_versions(versions: Mapping[str, Collection[str]]) -> str:
    """Return the version of most stores, then each other version with its stores."""
    most, *others = sorted(versions, key=lambda version: len(versions[version]), reverse=True)
    return "; ".join([most, *(f"{other} ({' | '.join(versions[other])})" for other in others)])


def _notes(cases: Iterable[CaseResult]) -> Iterator[str]:
    rows: dict[str, dict[str, None]] = {}
    for case in cases:
        if case.note:
            rows.setdefault(case.note, {})[row_of(case).label] = None
    return (f"{note} ({' | '.join(labels)})" for note, labels in rows.items())
