"""The chart that opens the page, and that docs/copies.md shows."""

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from profiles.__main__ import main
from profiles.report.cases import Cases
from profiles.report.story import choose, sentence, story
from profiles.result import CaseResult
from tests.profiles.report_cases import make_case, make_counts
from ucxstore.drawing.chart import Bar, Bars, draw

SVG = "{http://www.w3.org/2000/svg}"


def reads(raw: float, zstd: float, **changes: str) -> list[CaseResult]:
    return [
        make_case(direction="read", codec=codec, counts=make_counts(0.0, total), **changes)
        for codec, total in (("raw", raw), ("zstd", zstd))
    ]


def ours(
    raw: float, zstd: float, transport: str = "TCP", storage: str = "memory"
) -> list[CaseResult]:
    store = f"UcxStore, {storage}"
    return reads(raw, zstd, store=store, pipeline="zero-copy", transport=transport)


MANY = [
    *reads(3.05, 3.83, store="FsspecStore, s3fs"),
    *reads(1.0, 1.89),
    *ours(0.0, 0.89),
    *ours(0.0, 0.0, "local"),
    *reads(1.0, 1.89, store="FsspecStore, local"),
    *reads(0.0, 1.0, store="MemoryStore"),
]


def test_the_fewest_copies_come_first() -> None:
    stores = choose(Cases(MANY))
    assert [(one.row.store, one.raw, one.zstd) for one in stores] == [
        ("UcxStore, memory", 0.0, 0.89),
        ("MemoryStore", 0.0, 1.0),
        ("LocalStore", 1.0, 1.89),
        ("FsspecStore, s3fs", 3.05, 3.83),
    ]


def test_our_figures_are_those_over_the_network() -> None:
    [told] = choose(
        Cases([*ours(0.0, 0.0, "local"), *ours(0.2, 0.9), *ours(0, 0, "shared memory")])
    )
    assert (told.label, told.raw) == ("UcxStore, memory, over TCP", 0.2)


def test_there_are_six_stores_in_the_results() -> None:
    assert len(choose(Cases(committed()))) == 6


def test_the_sentence_says_what_is_seen() -> None:
    assert sentence(choose(Cases(MANY))) == (
        "To read a raw array, UcxStore and MemoryStore take no extra memory; the others take from "
        "1.00 arrays (LocalStore) to 3.05 arrays (FsspecStore). To read a zstd array, UcxStore "
        "takes 0.89 arrays; the others take from 1.00 arrays (MemoryStore) to 3.83 arrays "
        "(FsspecStore)."
    )


def test_the_sentence_of_one_store() -> None:
    assert sentence(choose(Cases(reads(1, 2)))) == (
        "To read a raw array, LocalStore takes 1.00 arrays. To read a zstd array, LocalStore takes "
        "2.00 arrays."
    )


def test_the_sentence_does_not_flatter_us() -> None:
    told = sentence(choose(Cases([*ours(2.0, 2.0), *reads(1.0, 1.0)])))
    assert told.startswith(
        "To read a raw array, LocalStore takes 1.00 arrays; UcxStore takes 2.00 arrays."
    )


@pytest.mark.parametrize("image", [True, False])
def test_the_title_is_to_be_seen_and_says_what_the_bars_are(image: bool) -> None:
    svg = ET.fromstring(story(MANY, image=image))
    seen = {text.get("class"): text.text or "" for text in svg.iter(f"{SVG}text")}
    assert seen["title"] == svg.findtext(f"{SVG}title") == "Extra memory of one read, in arrays"
    assert ("note" in seen) == image  # on a page, its words stand below the chart
    if image:
        assert len(seen["note"]) * 6.5 < float(svg.get("width", ""))
    tops = [float(text.get("y", "")) for text in svg.iter(f"{SVG}text")]
    assert tops == sorted(tops)


def test_a_store_that_failed_is_not_in_the_chart() -> None:
    failed = make_case(direction="read", codec="zstd", counts=None, error="broken")
    assert choose(Cases([reads(1, 1)[0], failed])) == []
    assert story([failed]) == ""


def test_bars_are_labelled_and_as_long_as_their_figures() -> None:
    svg = ET.fromstring(story(MANY))
    bars = [bar for bar in svg.iter(f"{SVG}rect") if "bar" in bar.get("class", "").split()]
    widths = [float(bar.get("width", "").rstrip("%")) for bar in bars]
    values = [0.0, 0.89, 0.0, 1.0, 1.0, 1.89, 3.05, 3.83]
    assert widths == pytest.approx([value / 3.83 * 76 for value in values], abs=0.01)
    written = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "value"]
    assert written[:2] == ["0 raw", "0.89 zstd"]
    assert len(written) == len(bars)


def test_an_image_has_a_size_and_both_schemes() -> None:
    svg = ET.fromstring(story(MANY, image=True))
    assert svg.get("viewBox") == f"0 0 {svg.get('width')} {svg.get('height')}"
    style = svg.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style
    for line in re.findall(r"\.bars \.(\w+) \{ (?:fill|stroke):", style):
        assert style.count(f".bars .{line} {{") == 2, line


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_bars_stand_out_from_the_ground(scheme: int) -> None:
    style = (ET.fromstring(story(MANY, image=True)).findtext(f"{SVG}style") or "").split("@media")[
        scheme
    ]
    colours = {
        name: luminance(colour)
        for name, colour in re.findall(r"\.bars \.?(\w+) \{ fill: #(\w{6})", style)
    }
    for name, least in {"text": 4.5, "axis": 4.5, "one": 3, "two": 3}.items():
        low, high = sorted((colours["ground"], colours[name]))
        assert (high + 0.05) / (low + 0.05) >= least, name


def test_rows_do_not_overlap() -> None:
    rows = [Bars(f"row {i}", [Bar(1, "1"), Bar(2, "2")]) for i in range(4)]
    svg = ET.fromstring(draw("t", "d", rows))
    bars = [bar for bar in svg.iter(f"{SVG}rect") if "bar" in bar.get("class", "").split()]
    for one, after in pairwise(bars):
        bottom = float(one.get("y", "")) + float(one.get("height", ""))
        assert bottom < float(after.get("y", ""))
    assert bottom < float(svg.get("height", ""))


@pytest.mark.parametrize("largest", [0.3, 1.9, 3.8, 40])
def test_the_unit_stands_by_one(largest: float) -> None:
    svg = ET.fromstring(draw("t", "d", [Bars("r", [Bar(largest, "")])], unit="array"))
    axis = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "axis"]
    assert ("1 array" in axis) == ("0.5" in axis or "2" in axis or largest < 1)
    assert sum("array" in (name or "") for name in axis) <= 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_is_no_length_has_a_bar_of_none(value: float) -> None:
    svg = ET.fromstring(draw("t", "d", [Bars("<r>", [Bar(value, "?")])]))
    [bar] = [bar for bar in svg.iter(f"{SVG}rect") if "bar" in bar.get("class", "").split()]
    assert bar.get("width") == "0.000%"


def committed() -> list[CaseResult]:
    found = json.loads(Path("profiles/results/copies.json").read_text())
    return [CaseResult.from_json(case) for case in found["cases"]]


def test_the_committed_image_is_of_the_committed_results() -> None:
    assert Path("docs/images/copies.svg").read_text() == story(committed(), image=True)


def test_the_image_is_drawn_from_the_committed_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiles.__main__._IMAGE", tmp_path / "images/copies.svg")
    assert main(["--redraw"]) == 0
    drawn = (tmp_path / "images/copies.svg").read_text()
    assert drawn == Path("docs/images/copies.svg").read_text()
