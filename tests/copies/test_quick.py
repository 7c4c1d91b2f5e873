"""``ucxstore copies``: at stores of this machine, and at the user's own."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command import run
from ucxstore.cli.copies import main, progress_of, report
from ucxstore.copies import Counts, Culprit, quick
from ucxstore.copies.page import render_page
from ucxstore.copies.quick import Result, Row, workloads
from ucxstore.copies.workload import Workload
from ucxstore.server import Server

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
    with Server(tmp_path / "served", create=True) as server:
        locations = [f"{server.address}/prefix", str(tmp_path / "mine")]
        done = run("copies", "--json", "--size", 16, *locations)
    assert (done.returncode, done.stderr) == (0, "")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["row"]["name"] for result in results] == [
        location for location in locations for _ in range(transfers)
    ]
    peaks = {
        (result["row"]["pipeline"], *result["workload"].values()): result["counts"]["peak_extra"]
        for result in results
    }
    assert peaks["zero-copy", "read", "raw", "one", 2000] < 0.2
    assert peaks["default", "read", "raw", "one", 2000] == pytest.approx(1, abs=0.2)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["value"]
    left = [path.name for path in (tmp_path / "served").rglob("*") if path.is_file()]
    assert left == []


def test_the_report_has_a_table_for_each_direction() -> None:
    rows = [Row("LocalStore", "/x"), Row("UcxStore", "ucx://x", "zero-copy")]
    results = [Result(row, load, COUNTS) for row in rows for load in workloads(1000)]
    results[-1] = Result(rows[1], workloads(1000)[-1], None, "it broke")
    text = report(results)
    assert re.findall("^(write|read): ", text, re.MULTILINE) == ["write", "read"]
    *_, figures, culprits, error = text.split("\n\n")
    assert re.split("  +", figures.splitlines()[-1]) == [
        *("UcxStore", "zero-copy", "1.00/2.00", "1.00/2.00", "1.00/2.00", "failed"),
    ]
    assert re.split("  +", culprits.splitlines()[-1]) == [
        *("UcxStore", "zero-copy", "raw, one: 1.00 read"),
    ]
    assert error == "UcxStore zero-copy read-zstd-grid: it broke"


@pytest.mark.parametrize("width", [70, 80])
def test_the_report_fits_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        Row("UcxStore, shared memory", "ucx://x", "zero-copy"),
        Row("ucx://a-server.cluster.example:7400/and/a/prefix", "", "zero-copy"),
    ]
    named = "a_function_with_a_name_that_is_rather_long_for_a_table (a.py:1)"
    counts = replace(COUNTS, culprits=(Culprit(4_000_000, 1, "total", named, "x"),), fixed=1 << 24)
    results = [Result(row, load, counts) for row in rows for load in workloads(1000)]
    results.append(Result(rows[1], workloads(1000)[0], None, "it broke " * 20))
    text = report(results)
    assert max(map(len, text.splitlines())) <= width
    assert all(row.name[:8] in text for row in rows)  # the rest may go on in the next line
    longest = max(len(progress_of(result)) for result in results if result.row is rows[0])
    assert len("[32/32, 100 s] ") + longest <= 80


def test_fixed_memory_is_told_once_for_each_store() -> None:
    rows = [Row("LocalStore", "/x"), Row("UcxStore, local", "ucx://x", "zero-copy")]
    counted = {rows[0].name: COUNTS, rows[1].name: replace(COUNTS, fixed=16 << 20)}
    results = [Result(row, load, counted[row.name]) for row in rows for load in workloads(1000)]
    told = "Fixed memory: UcxStore, local 16.8 MB. A process maps it once"
    assert " ".join(report(results).split()).count(told) == 1
    assert render_page(results).count(told) == 1
    assert "Fixed memory" not in report(results[:8]) + render_page(results[:8])


def results_of(count: int) -> list[Result]:
    rows = [Row("LocalStore <b>", "/x"), Row("UcxStore", "ucx://x", "zero-copy")]
    return [Result(row, load, COUNTS) for row in rows for load in workloads(1000)][:count]


def test_the_page_opens_with_a_chart_and_has_every_figure() -> None:
    page = render_page(results_of(16), note="small & odd")
    [svg] = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert page.index("<svg") < page.index("<details")
    assert ET.fromstring(svg).get("class") == "bars"
    assert page.count("<tr>") == 16 + 2  # and two headers
    assert "LocalStore &lt;b&gt; (default)" in svg
    assert "small &amp; odd" in page
    assert "has not ended" not in page
    assert "prefers-color-scheme: dark" in page.partition("</head>")[0]


def test_a_page_of_a_run_that_goes_on() -> None:
    page = render_page(results_of(1), left=15)
    assert "The run has not ended: 15 transfers are missing." in page
    page = render_page(results_of(1), left=1)
    assert "The run has not ended: 1 transfer is missing." in page
    assert "<svg" not in page
    assert page.count("<tr>") == 1 + 2


def test_the_page_is_written_after_every_transfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "copies.html"
    missing = []

    def run_slowly(*arguments: object) -> Iterator[Result]:
        for number, result in enumerate(results_of(8)):
            if number:
                missing.append(re.findall(r"has not ended: (\d+)", file.read_text()))
            yield result

    monkeypatch.setattr(quick, "run", run_slowly)
    assert main(["--page", str(file), str(tmp_path)]) == 0
    assert missing == [[str(left)] for left in range(7, 0, -1)]
    assert "has not ended" not in file.read_text()
    out, err = capsys.readouterr()
    first, *lines = err.splitlines()
    assert first == "8 transfers of 16 MB: about 9 s on two idle cores"
    assert [line.partition(",")[0] for line in lines] == [f"[{number}/8" for number in range(1, 9)]
    assert "16 MB is a small array" in " ".join(out.split())


@pytest.mark.parametrize("more", [[], ["--quick"]])  # which was required once
def test_a_large_array_needs_no_note(
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(quick, "run", lambda *arguments: iter(results_of(8)))
    assert main(["--size", "100", *more, str(tmp_path)]) == 0
    assert "small array" not in capsys.readouterr().out


def test_without_memray_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ucxstore.cli.copies.find_spec", lambda name: None)
    assert main([]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        'ucxstore copies: memray is missing: pip install "ucxstore[copies]"\n',
    )


def test_a_location_that_does_not_work(tmp_path: Path, transfers: int) -> None:
    (tmp_path / "file").touch()
    done = run("copies", "--size", 0.1, tmp_path / "file")
    assert done.returncode == 1
    assert "Not a directory" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        f"ucxstore copies: {transfers} of {transfers} transfers failed"
    )


BAD_SIZES = ["-5", "nan", "inf"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "--size: 0"),
        *(([f"--size={size}"], f"--size: {size} MB is not") for size in BAD_SIZES),
        (["--size", "0.00001"], "--size: 1e-05 MB is too small"),
        (["--ucx", "TLS"], "NAME=VALUE"),
        (["--timeout", "nan"], "timeout: nan"),
        (["--secret-file", "/nope"], "--secret-file: No such file or directory: /nope"),
        (["ucx://h"], "'ucx://h': 'h' names no port"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ucxstore copies: ")
    assert message in line
