"""Pages that are generated load nothing from other hosts: without the network they are the same."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import memray
import pytest

from profiles.report.page import render_page as render_profile
from tests.profiles.report_cases import make_case
from ucxstore.copies import Counts
from ucxstore.copies.page import render_page as render_copies
from ucxstore.copies.quick import Result, Row, workloads
from ucxstore.dask.dashboard import page as render_dashboard
from ucxstore.dask.figures import DeploymentStats

ROOT = Path(__file__).parents[2]
FLAMEGRAPHS = sorted((ROOT / "flamegraphs").glob("*.html"))

# What a browser loads by itself. A link that somebody may follow is none of it.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|embed)\b[^>]*?\bsrc=[\"']?([^\"'\s>]+)"
    r"|<link\b[^>]*?\bhref=[\"']?([^\"'\s>]+)"
    r"|@import\s+[\"']?([^\"';\s]+)"
    r"|\burl\([\"']?([^\"')]+)"
)


def loaded(page: str) -> Iterator[str]:
    for names in _LOADED.findall(page):
        yield from filter(None, names)


def is_elsewhere(name: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//", name) is not None


@pytest.mark.parametrize("file", FLAMEGRAPHS, ids=lambda file: file.stem)
def test_a_committed_flamegraph_is_whole(file: Path) -> None:
    names = list(loaded(file.read_text()))
    assert any("d3" in name for name in names)
    assert [name for name in names if is_elsewhere(name)] == []
    assert [name for name in names if not (file.parent / name).is_file()] == []


def test_nothing_lies_beside_the_flamegraphs_that_none_loads() -> None:
    used = {name for file in FLAMEGRAPHS for name in loaded(file.read_text())}
    assert used == {f"vendor/{file.name}" for file in (ROOT / "flamegraphs/vendor").iterdir()}


def test_the_command_draws_one_that_is_whole(tmp_path: Path) -> None:
    capture, page = tmp_path / "x.bin", tmp_path / "drawn/x.html"
    with memray.Tracker(capture):
        bytearray(1_000_000)
    command = [sys.executable, ROOT / "scripts/flamegraph", capture, page]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=240)
    names = list(loaded(page.read_text()))
    assert names
    assert all((page.parent / name).is_file() for name in names)
    assert str(tmp_path) not in page.read_text()
    shutil.rmtree(page.parent)


def test_the_other_pages_load_nothing() -> None:
    counts = Counts(0, 1.0, 2.0, 0.0, 0.0)
    results = [Result(Row("a", "/a"), one, counts) for one in workloads(1000)]
    for page in (
        render_copies(results),
        render_profile([make_case()], machine={}),
        render_dashboard({"a": DeploymentStats.of({})}),
    ):
        assert list(loaded(page)) == []


@pytest.mark.parametrize(
    ("html", "names"),
    [
        ('<script src="https://a.example/x.js"></script>', ["https://a.example/x.js"]),
        ('<link rel="stylesheet" href=//a.example/x.css>', ["//a.example/x.css"]),
        ("<style>@import 'https://a.example/x.css';</style>", ["https://a.example/x.css"]),
        ("<i style='background:url(http://a.example/x.png)'>", ["http://a.example/x.png"]),
        ('<a href="https://a.example">a link</a>', []),
    ],
)
def test_what_counts_as_loaded(html: str, names: list[str]) -> None:
    assert list(loaded(html)) == names
    assert all(map(is_elsewhere, names))
