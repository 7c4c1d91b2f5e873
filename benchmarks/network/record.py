"""All that a run has measured: every window, what was skipped, what has failed; as JSON."""

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.network.windows import Window


@dataclass(slots=True)
class Cell:
    """The windows of one way, with one load, on one network."""

    network: str
    way: str
    op: str
    nbytes: int
    clients: int
    windows: list[Window]

    def median(self, figure: Callable[[Window], float | None]) -> float | None:
        """Return the median of a figure; ``None`` if it was not measured."""
        return _of_windows(self.windows, figure, statistics.median)

    def least(self, figure: Callable[[Window], float | None]) -> float | None:
        """Return the minimum of a figure."""
        return _of_windows(self.windows, figure, min)

    def most(self, figure: Callable[[Window], float | None]) -> float | None:
        """Return the maximum of a figure."""
        return _of_windows(self.windows, figure, max)


def _of_windows(
    windows: Iterable[Window],
    figure: Callable[[Window], float | None],
    summary: Callable[[list[float]], float],
) -> float | None:
    found = [value for window in windows if (value := figure(window)) is not None]
    return summary(found) if found else None


@dataclass(slots=True)
class Crowd:
    """Processes that have connected to a server at once, and stay.

    Parameters
    ----------
    way : str
    clients : int
        How many are there in the end.
    at_once : int
        How many connected at the same moment.
    seconds : list of float
        Until the last of those had read a value.
    failed : list of int
        How many of them could not.
    errors : list of str
        The most frequent reasons.
    nbytes, descriptors : float
        What the server holds for each of all.
    alone, beside : list of Window
        One active client of another server, and one beside the others.
    """

    way: str
    clients: int
    at_once: int
    seconds: list[float]
    failed: list[int]
    errors: list[str]
    nbytes: float
    descriptors: float
    alone: list[Window]
    beside: list[Window]


@dataclass(slots=True)
class Record:
    """A run."""

    machine: dict[str, str]
    load: dict[str, str] = field(default_factory=dict)  # of the machine, before each part
    quick: bool = False
    cells: list[Cell] = field(default_factory=list)
    settings: list[Cell] = field(default_factory=list)  # of UCX
    crowds: list[Crowd] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)  # of a client, by way
    skipped: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # that each part took

    def cell(self, network: str, way: str, op: str, nbytes: int, clients: int = 1) -> Cell | None:
        """Return a cell, if it was measured."""
        for cell in self.cells:
            if (cell.network, cell.way, cell.op, cell.nbytes, cell.clients) == (
                network,
                way,
                op,
                nbytes,
                clients,
            ):
                return cell
        return None

    def networks(self) -> list[str]:
        """Return the networks that there are cells of, in their order."""
        return list(dict.fromkeys(cell.network for cell in self.cells))


def write(record: Record, path: Path) -> None:
    """Write a record; each cell is one line."""
    found = asdict(record)
    parts = []
    for name, value in found.items():
        if name in ("cells", "settings", "crowds"):
            lines = ",\n".join(f"  {json.dumps(_rounded(one))}" for one in value)
            parts.append(f' "{name}": [\n{lines}\n ]' if value else f' "{name}": []')
        else:
            parts.append(f' "{name}": {json.dumps(_rounded(value))}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def read(path: Path) -> Record:
    """Read what `write` has written."""
    found = json.loads(path.read_text())
    for name in ("cells", "settings"):
        found[name] = [Cell(**{**one, "windows": _windows(one["windows"])}) for one in found[name]]
    found["crowds"] = [
        Crowd(**{**one, "alone": _windows(one["alone"]), "beside": _windows(one["beside"])})
        for one in found["crowds"]
    ]
    return Record(**found)


def _windows(values: Iterable[Any]) -> list[Window]:
    return [Window(*value) for value in values]


def _rounded(value: Any) -> Any:
    """Round all numbers to five digits: more of them mean nothing."""
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {key: _rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [_rounded(one) for one in value]
    return value
