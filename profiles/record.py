"""`Record`: the results of a run in a JSON file, which is written after every case.

An interrupted run is resumed from it.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from profiles.report.page import is_small, render_page
from profiles.report.story import story
from profiles.report.tables import markdown_tables
from profiles.result import CaseResult
from profiles.stores import ROWS, TRANSPORTS, Row
from ucxstore.copies.workload import Workload

_ORDER = {(row.store, row.pipeline, row.transport): number for number, row in enumerate(ROWS)}


class Record:
    """The results of a run so far.

    Parameters
    ----------
    file : Path
        The JSON file.
    side : int
        Items along each axis of the array.
    """

    def __init__(self, file: Path, side: int) -> None:
        self.cases: list[CaseResult] = []
        self.connections: dict[str, int] = {}
        self._file = file
        self._settings = {"array": f"{side} x {side} float32, random", "bytes": side * side * 4}
        self._machine = {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "CPUs": str(os.cpu_count()),
            "Python": platform.python_version(),
        }

    @classmethod
    def of(cls, file: Path) -> Self:
        """Return the record of a file as it is, whatever its settings were.

        Raises
        ------
        OSError, KeyError, ValueError
            If the file cannot be read, or is not a record.
        """
        found = json.loads(file.read_text())
        record = cls(file, 0)
        record._settings, record._machine = found["settings"], found["machine"]
        record.connections = found["connections"]
        record.cases = [CaseResult.from_json(case) for case in found["cases"]]
        return record

    @property
    def is_small(self) -> bool:
        """Whether the array is so small that memory of constant size shows in the figures."""
        return is_small(self.cases)

    def resume(self) -> None:
        """Take over the results of an earlier run with the same settings.

        Failures are left out, and so are rows that this version does not have.

        Raises
        ------
        ValueError
            If the file is not a record.
        """
        try:
            found = json.loads(self._file.read_text())
            if found["settings"] != self._settings:
                return
            cases = [CaseResult.from_json(case) for case in found["cases"]]
            self.add_connections(found["connections"])
        except FileNotFoundError:
            return
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self._file} is not a record to resume: {error}") from error
        self.cases = [case for case in cases if not case.error and _row_of(case) in _ORDER]

    def has(self, row: Row, workload: Workload) -> bool:
        """Tell whether a case has results."""
        return any(
            _row_of(case) == (row.store, row.pipeline, row.transport)
            and (case.direction, case.codec, case.layout)
            == (workload.direction, workload.codec, workload.layout)
            for case in self.cases
        )

    def add(self, results: Sequence[CaseResult]) -> None:
        """Add the results of a case, in the order of the rows, and write the file."""
        self.cases = sorted([*self.cases, *results], key=lambda case: _ORDER[_row_of(case)])
        self.write(self._file)

    def add_connections(self, connections: Mapping[str, int]) -> None:
        """Add the bytes that a client needs to connect, in the order of the transports."""
        found = {**self.connections, **connections}
        self.connections = {name: found[name] for name in TRANSPORTS if name in found}

    def write(self, file: Path) -> None:
        """Write all results as JSON, with a line for each case."""
        head = {
            "machine": self._machine,
            "settings": self._settings,
            "connections": self.connections,
        }
        cases = ",\n".join(json.dumps(case.to_json()) for case in self.cases)
        partial = file.with_suffix(".partial")
        partial.write_text(f'{json.dumps(head)[:-1]}, "cases": [\n{cases}\n]}}\n')
        partial.replace(file)

    def markdown(self) -> str:
        """Return the results as Markdown: the settings, and the tables."""
        versions = {
            name: version
            for case in self.cases
            if not case.store.startswith("zarr 2")  # it has its own versions
            for name, version in case.versions.items()
        }
        connections = ", ".join(
            f"{nbytes / 2**20:.1f} MiB over {name}" for name, nbytes in self.connections.items()
        )
        return (
            f"# Copies, counted\n\n`make copies` has written this: {self._settings['array']}; "
            f"{', '.join(f'{name} {version}' for name, version in versions.items())}. "
            "[README](../README.md) has the method.\n\n"
            f"Connecting takes, of a client's memory: {connections or 'unknown'}. That includes "
            "loading UCX, which `local` and `TCP` do without."
            f"\n\n{markdown_tables(self.cases)}\n"
        )

    def image(self) -> str:
        """Return the chart that opens the page as an SVG image."""
        return story(self.cases, image=True)

    def page(self, flamegraphs: set[str], folder: str, left: int = 0) -> str:
        """Return the results as an HTML page with charts, and links to flamegraphs in a folder."""
        connections = {
            f"connecting, {name}": f"{nbytes / 2**20:.1f} MiB"
            for name, nbytes in self.connections.items()
        }
        return render_page(
            self.cases,
            machine=self._machine,
            settings={**self._settings, **connections},
            flamegraphs=flamegraphs,
            folder=folder,
            left=left,
        )


def _row_of(case: CaseResult) -> tuple[str, str, str]:
    return case.store, case.pipeline, case.transport
