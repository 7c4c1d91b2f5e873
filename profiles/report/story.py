"""The story in one chart: how many copies six stores make when they read, raw and zstd."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from profiles.report.cases import Cases, Column, Row
from profiles.result import CaseResult
from ucxstore.copies.figures import READ_NOTE, READ_TITLE, figure, read_bars, weight
from ucxstore.drawing.chart import draw

_RAW, _ZSTD = (Column("read", codec, "one") for codec in ("raw", "zstd"))

# The stores of the chart: of each line the first row that was measured, and of all lines the first
# six. A store that may be on the other end of a network is shown there.
_STORES = (
    (("UcxStore, memory", "TCP"), ("UcxStore, memory", "shared memory")),
    (("LocalStore", ""),),
    (("ObjectStore, S3", ""), ("ObjectStore, local", "")),
    (("FsspecStore, s3fs", ""), ("FsspecStore, local", "")),
    (("MemoryStore", ""),),
    (("zarrs-python, local", ""),),
    (("UcxStore, directory", "TCP"),),
)
_MOST = 6

_NONE = 0.05  # arrays; less is not a copy


@dataclass(frozen=True, slots=True)
class Told:
    """A store of the chart, and the larger of its two figures in either read, in arrays."""

    row: Row
    raw: float
    zstd: float

    @property
    def name(self) -> str:
        """The store without where its values are."""
        return self.row.store.partition(", ")[0]

    @property
    def label(self) -> str:
        """The row in words."""
        if self.row.store == "MemoryStore":
            return "MemoryStore, in the reader's own process"
        over = f", over {self.row.transport}" if self.row.transport else ""
        return f"{self.row.store}{over}"


def choose(cases: Cases) -> list[Told]:
    """Return the stores of the chart, fewest copies first; none that has failed."""
    found = [told for names in _STORES for told in _first(cases, names)][:_MOST]
    return sorted(found, key=lambda told: (round(told.raw + told.zstd, 2), not told.row.is_ours))


def _first(cases: Cases, names: Sequence[tuple[str, str]]) -> Iterator[Told]:
    for store, transport in names:
        for row in cases.rows:
            if (row.store, row.transport, row.side) == (store, transport, "client"):
                raw, zstd = (_copies(cases.find(row, column)) for column in (_RAW, _ZSTD))
                if raw is not None and zstd is not None:
                    yield Told(row, raw, zstd)
                    return


def _copies(case: CaseResult | None) -> float | None:
    return None if case is None or case.counts is None else weight(case.counts)


def sentence(stores: Sequence[Told]) -> str:
    """Say what the chart shows."""
    raw = _say([(told, told.raw) for told in stores])
    zstd = _say([(told, told.zstd) for told in stores])
    return f"To read a raw array, {raw}. To read a zstd array, {zstd}."


def _say(figures: Sequence[tuple[Told, float]]) -> str:
    """Name the stores with the least memory, and the range of the others."""
    fewest = _figure(min((value for _, value in figures), default=0.0))
    first = dict.fromkeys(told.name for told, value in figures if _figure(value) == fewest)
    said = f"{_join([*first])} {_take(len(first))} {fewest}"
    rest = [(told.name, value) for told, value in figures if told.name not in first]
    if not rest:
        return said
    (low, least), (high, most) = (pick(rest, key=lambda one: one[1]) for pick in (min, max))
    if _figure(least) == _figure(most):
        return f"{said}; {_join([name for name, _ in rest])} {_take(len(rest))} {_figure(most)}"
    return f"{said}; the others take from {_figure(least)} ({low}) to {_figure(most)} ({high})"


def _take(count: int) -> str:
    return "take" if count > 1 else "takes"


def _figure(value: float) -> str:
    return "no extra memory" if value < _NONE else f"{figure(value)} arrays"


def _join(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def story(cases: Iterable[CaseResult], *, image: bool = False) -> str:
    """Draw the chart; "" if no store has both reads."""
    stores = choose(Cases(cases))
    rows = [read_bars(told.label, told.raw, told.zstd, own=told.row.is_ours) for told in stores]
    if not rows:
        return ""
    note = READ_NOTE if image else ""
    return draw(READ_TITLE, sentence(stores), rows, unit="array", note=note, image=image)
