"""``ucxstore copies --quick``: at stores of this machine, and at the user's own."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import run
from ucxstore.cli.copies import main, report
from ucxstore.copies import Counts, Culprit, quick
from ucxstore.copies.quick import Result, Row, workloads
from ucxstore.copies.workload import Workload
from ucxstore.server import Server
from ucxstore.server.identity import IDENTITY_FILE

COUNTS = Counts(0, 1.0, 2.0, 0.0, 0.0, (Culprit(4_000_000, 1, "total", "read (a.py:1)", "x"),))


@pytest.fixture
def transfers(full: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of transfers at each location; full runs make all of them."""

    def some(side: int) -> list[Workload]:
        return [one for one in workloads(side) if (one.codec, one.layout) == ("raw", "one")]

    if not full:
        monkeypatch.setattr(quick, "workloads", some)
    return len(quick.workloads(1000))


def test_locations_of_the_user(tmp_path: Path, transfers: int) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/value").write_text("of somebody else")
    with Server(tmp_path / "served") as server:
        locations = [f"{server.address}/prefix", str(tmp_path / "mine")]
        done = run("copies", "--quick", "--json", "--size", 4, *locations)
    assert (done.returncode, done.stderr) == (0, "")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["row"]["name"] for result in results] == [
        location for location in locations for _ in range(transfers)
    ]
    peaks = {
        (result["row"]["pipeline"], *result["workload"].values()): result["counts"]["peak_extra"]
        for result in results
    }
    assert peaks["zero-copy", "read", "raw", "one", 1000] < 0.2
    assert peaks["default", "read", "raw", "one", 1000] == pytest.approx(1, abs=0.2)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["value"]
    left = [path.name for path in (tmp_path / "served").rglob("*") if path.is_file()]
    assert left == [IDENTITY_FILE]


def test_the_report_has_a_table_for_each_direction() -> None:
    rows = [Row("LocalStore", "/x"), Row("UcxStore", "ucx://x", "zero-copy")]
    results = [Result(row, load, COUNTS) for row in rows for load in workloads(1000)]
    results[-1] = Result(rows[1], workloads(1000)[-1], None, "it broke")
    text = report(results)
    assert re.findall("^(write|read): ", text, re.MULTILINE) == ["write", "read"]
    *_, last, _, error = text.splitlines()
    assert re.split("  +", last) == [
        *("UcxStore", "zero-copy", "1.00 / 2.00", "1.00 / 2.00", "1.00 / 2.00", "failed"),
        "1.00 read",
    ]
    assert error == "UcxStore zero-copy read-zstd-grid: it broke"


def test_a_location_that_does_not_work(tmp_path: Path, transfers: int) -> None:
    (tmp_path / "file").touch()
    done = run("copies", "--quick", "--size", 0.1, tmp_path / "file")
    assert done.returncode == 1
    assert "Not a directory" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        f"ucxstore copies: {transfers} of {transfers} transfers failed"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "make copies"),
        (["--quick", "--size", "0"], "--size: 0"),
        (["--quick", "--ucx", "TLS"], "NAME=VALUE"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ucxstore copies: ")
    assert message in line
