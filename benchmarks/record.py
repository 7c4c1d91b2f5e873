"""Write all results and every single time to a JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.result import Row
from benchmarks.scale import Scale


def write(
    path: Path,
    scale: Scale,
    machine: Mapping[str, str],
    rows: Sequence[Row],
    loads: Mapping[str, str],
    errors: Mapping[str, str],
) -> None:
    found = {
        "machine": machine,
        "scale": asdict(scale),
        "rows": [_row(row, loads[row.name]) for row in rows],
        "errors": errors,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def _row(row: Row, load: str) -> dict[str, Any]:
    lines = [
        {
            **asdict(line),
            "target": None if line.target is None else str(line.target),
            "reached": line.reached,
        }
        for line in row.lines
    ]
    return {**asdict(row), "lines": lines, "load": load}
