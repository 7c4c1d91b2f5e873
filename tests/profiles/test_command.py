"""``python -m profiles``: what it measures, writes, resumes and refuses."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.__main__ import main
from profiles.result import CaseResult

STORE = ["--quick", "--jobs", "1", "--stores", "localstore-default"]
ONE = [*STORE, "--workloads", "read-raw-one"]


def run(folder: Path, *options: str) -> int:
    output, flamegraphs = str(folder / "output"), str(folder / "flamegraphs")
    return main([*options, "--output", output, "--flamegraphs", flamegraphs])


def cases(folder: Path) -> list[CaseResult]:
    found = json.loads((folder / "output/copies.json").read_text())
    return [CaseResult.from_json(case) for case in found["cases"]]


def test_a_run_and_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else Python may take one of its arenas meanwhile: 1 MiB, of 16 MB that are counted.
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    (tmp_path / "flamegraphs").mkdir()
    (tmp_path / "flamegraphs/read-raw-one-LocalStore-default.html").touch()
    assert run(tmp_path, *ONE) == 0
    [case] = cases(tmp_path)
    assert case.counts is not None
    assert case.counts.peak_extra == pytest.approx(1, abs=0.01)
    assert case.counts.total == pytest.approx(1, abs=0.001)
    assert case.stored_nbytes == case.nbytes == 16_000_000
    assert Path(case.capture).stat().st_size > 0
    out, err = capsys.readouterr()
    assert "1 case, 1 at a time: about 2 s" in err.splitlines()[0]
    assert "[1/1" in err
    assert "The array is small." in out
    assert "1.00" in out
    assert "flamegraphs/read-raw-one-LocalStore-default.html" in out
    report = (tmp_path / "output/copies.md").read_text()
    assert re.search(r"\| LocalStore \| default \| 1\.00 / 1\.00 \|", report)
    page = (tmp_path / "output/copies.html").read_text()
    assert "LocalStore" in page
    assert "../flamegraphs/read-raw-one-LocalStore-default.html" in page


def test_resuming_runs_only_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *ONE) == 0
    [first] = cases(tmp_path)
    capsys.readouterr()
    assert run(tmp_path, *STORE, "--workloads", "raw-one", "--resume") == 0
    assert "[1/1" in capsys.readouterr().err
    assert {case.direction for case in cases(tmp_path)} == {"write", "read"}
    assert first in cases(tmp_path)


def test_resuming_drops_rows_that_are_gone(tmp_path: Path) -> None:
    assert run(tmp_path, *ONE) == 0
    record = tmp_path / "output/copies.json"
    record.write_text(record.read_text().replace("LocalStore", "a store of an old version"))
    assert run(tmp_path, *ONE, "--resume") == 0
    assert [case.store for case in cases(tmp_path)] == ["LocalStore"]


def test_resuming_keeps_what_connecting_takes(tmp_path: Path) -> None:
    assert run(tmp_path, *ONE) == 0
    file = tmp_path / "output/copies.json"
    found = json.loads(file.read_text())
    kept = {"shared memory": 2, "TCP": 1}
    file.write_text(json.dumps({**found, "connections": {"TCP": 1, "gone": 3, "shared memory": 2}}))
    assert run(tmp_path, *ONE, "--resume") == 0
    assert json.loads(file.read_text())["connections"] == kept
    assert "0.0 MiB over TCP" in (tmp_path / "output/copies.md").read_text()


def test_an_interrupted_run_ends_and_is_resumed(tmp_path: Path) -> None:
    options = [*STORE, "--output", str(tmp_path / "output")]
    with subprocess.Popen(
        [sys.executable, "-m", "profiles", *options],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "about" in process.stderr.readline()
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=240)
    assert first.startswith("[1/")
    assert process.returncode == 130
    assert rest.endswith("profiles: interrupted (--resume goes on)\n")
    # However many those are: each that was reported is kept, and some are left to resume with.
    told = [first, *(line for line in rest.splitlines() if line.startswith("["))]
    all_cases = int(first[1:].partition(",")[0].partition("/")[2])
    assert len(cases(tmp_path)) == len(told) < all_cases
    # The page has them, too.
    page = (tmp_path / "output/copies.html").read_text()
    assert page.endswith("</html>\n")
    assert f"The run has not ended: {all_cases - len(told)} case" in page


def test_what_failed_is_in_the_report_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("profiles.zarr2_case.PYTHON", tmp_path / "none")
    options = ["--quick", "--stores", "zarr-2.18-local", "--workloads", "write-raw-one"]
    assert run(tmp_path, *options) == 1
    [case] = cases(tmp_path)
    assert "make zarr2" in case.error
    assert case.counts is None
    assert "make zarr2" in capsys.readouterr().out
    assert run(tmp_path, *options, "--resume") == 1
    assert len(cases(tmp_path)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stores", "tensorstore"], "tensorstore"),
        (["--workloads", "write-lzma"], "write-lzma"),
        (["--jobs", "0"], "--jobs: 0"),
    ],
)
def test_bad_options(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("profiles: ")
    assert message in line


@pytest.mark.parametrize("content", ["", "[]", '{"settings": {}}', '{"cases": 3}'])
def test_a_file_that_is_no_report(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output/copies.json").write_text(content)
    code = run(tmp_path, *STORE, "--workloads", "write-raw-one", "--resume")
    if content == '{"settings": {}}':
        assert code == 0  # of other settings: begun anew
    else:
        assert code == 2
        assert "copies.json" in capsys.readouterr().err
