"""Rows of `make bench` whose targets hold on a busy machine, too: what is counted, not timed."""

from pathlib import Path

import pytest

import benchmarks
from benchmarks.rows import ROWS
from benchmarks.scale import QUICK


@pytest.mark.parametrize("name", ["connects", pytest.param("held", marks=pytest.mark.full)])
def test_targets_are_reached(name: str, tmp_path: Path) -> None:
    row = ROWS[name](QUICK, tmp_path)
    assert row.name == name
    assert any(line.counts for line in row.lines)
    assert [line for line in row.lines if line.missed] == []


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_measured(name: str, tmp_path: Path) -> None:
    row = ROWS[name](QUICK, tmp_path)
    assert [line.what for line in row.lines]


def test_rows_are_described() -> None:
    text = Path(benchmarks.__file__).with_name("README.md").read_text()
    assert [name for name in ROWS if f"| `{name}` |" not in text] == []
