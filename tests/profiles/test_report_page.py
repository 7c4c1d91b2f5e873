import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from profiles.report.page import render_page
from profiles.result import CaseResult
from tests.profiles.report_cases import ARRAY, make_case, make_counts, make_culprit

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta"}
CODECS = ("raw", "zstd")
HOSTILE = "<script>alert(\"1\" & '2')</script>\x00\x1b"


class Checker(HTMLParser):
    """Fails on tags that do not match, and collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets += [value or "" for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    inner = [target[1:] for target in checker.targets if target.startswith("#")]
    assert set(inner) <= set(checker.ids)
    return checker


def charts(page: str) -> list[ET.Element]:
    found = re.findall(r"<article[^>]*>\s*(<svg .*?</svg>)", page, re.DOTALL)
    return [ET.fromstring(text) for text in found]


def texts(svg: ET.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def render(*cases: CaseResult, **options: object) -> str:
    return render_page(cases, machine={"cpu": "a fast one", "cores": 2}, **options)


def test_there_is_a_chart_for_each_workload_that_the_index_leads_to() -> None:
    page = render(
        *(
            make_case(direction=direction, codec=codec, layout=layout)
            for direction in ("write", "read")
            for codec in ("raw", "zstd")
            for layout in ("one", "grid")
        )
    )
    assert len(charts(page)) == 8
    links = [target for target in check(page).targets if target != "#index"]
    assert links[0] == "#write-raw-one"
    assert len(links) == 8


def test_a_chart_says_what_it_shows() -> None:
    (svg,) = charts(render(make_case(counts=make_counts(1.03, 2.0))))
    assert svg.get("role") == "img"
    title, desc = svg.find(f"{SVG}title"), svg.find(f"{SVG}desc")
    assert title is not None
    assert desc is not None
    assert svg.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert title.text == "write raw, one chunk: extra memory, in arrays"
    assert {"LocalStore · default", "1.03 peak", "2.00 total"} <= set(texts(svg))


def test_bars_are_as_long_as_their_figures() -> None:
    (svg,) = charts(render(make_case(counts=make_counts(1.0, 4.0))))
    bars = {bar.get("class"): bar for bar in svg.iter(f"{SVG}rect")}
    widths = {name: float(bar.get("width", "").rstrip("%")) for name, bar in bars.items()}
    assert widths["bar two"] == 4 * widths["bar one"]
    assert widths["bar two"] < 80  # the rest is for the figure beside it


def test_charts_of_a_codec_share_their_scale() -> None:
    one = make_case(counts=make_counts(1.0, 1.0))
    grid = make_case(layout="grid", counts=make_counts(1.0, 5.0))
    first, second = charts(render(one, grid))
    widths = [
        next(bar.get("width") for bar in svg.iter(f"{SVG}rect") if bar.get("class") == "bar one")
        for svg in (first, second)
    ]
    assert widths[0] == widths[1]


def test_the_best_is_marked_in_each_bar() -> None:
    case = make_case(codec="zstd", stored_nbytes=ARRAY // 2, counts=make_counts(1.0, 1.0))
    (svg,) = charts(render(case))
    marks = [line.get("x1") for line in svg.iter(f"{SVG}line") if line.get("class") == "mark"]
    assert marks == ["38.000%", "38.000%"]  # half of the plot's 76%


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5])
def test_what_is_no_length_has_a_bar_of_none(value: float) -> None:
    page = render(make_case(counts=make_counts(0.0, value)))
    (svg,) = charts(page)
    bars = [bar for bar in svg.iter(f"{SVG}rect") if bar.get("class") == "bar two"]
    assert [bar.get("width") for bar in bars] == ["0.000%"]


@pytest.mark.parametrize("largest", [0.001, 1.0, 3.8, 27.0, 1e6])
def test_an_axis_has_few_lines(largest: float) -> None:
    (svg,) = charts(render(make_case(counts=make_counts(largest, 0))))
    lines = [line for line in svg.iter(f"{SVG}line") if line.get("class") == "line"]
    assert 2 <= len(lines) <= 6


def test_failures_and_cases_that_were_not_run_are_told() -> None:
    page = render(
        make_case(),
        make_case(store="zarr 2", counts=None, error="has no such thing"),
        make_case(store="other", layout="grid"),
    )
    text = "".join(check(page).text)
    assert "zarr 2 · default: has no such thing" in text
    assert "Not run: other · default." in text
    assert "Not run: LocalStore · default; zarr 2 · default." in text
    assert "failed; the reason is below the chart" in texts(charts(page)[0])


def test_a_workload_that_nobody_could_do_has_no_tables() -> None:
    page = render(make_case(layout="grid", counts=None, error="broken"))
    check(page)
    assert "Figures and culprits" not in page
    assert "broken" in page


def test_every_figure_and_culprit_is_in_the_tables() -> None:
    culprit = make_culprit(1.5, "Store.get (s.py:7)", at="peak", native="malloc_it")
    text = check(render(make_case(counts=make_counts(1.5, 1.25, culprit)))).text
    for expected in ("1.50", "1.25", "250.0", "Store.get (s.py:7)", "malloc_it"):
        assert expected in text


def test_clients_and_servers_are_side_by_side() -> None:
    ours = {"store": "UcxStore, memory", "pipeline": "zero-copy", "transport": "TCP"}
    page = render(make_case(**ours), make_case(), make_case(**ours, side="server"))
    labels = [text for text in texts(charts(page)[0]) if "·" in text]
    assert labels == [
        "UcxStore, memory · TCP",
        "UcxStore, memory · TCP, server",
        "LocalStore · default",
    ]


def test_machine_settings_versions_and_notes_are_told() -> None:
    page = render_page(
        [
            make_case(versions={"zarr": "3.4.2"}, note="by moto's server"),
            make_case(store="other", versions={"zarr": "3.4.2"}),
            make_case(store="old", versions={"zarr": "2.18.7"}),
        ],
        machine={"cpu": "a fast one", "kernel": {"name": "Linux", "release": 6}},
        settings={"s3_server": ["a", "b"]},
    )
    text = "\n".join(check(page).text)
    for expected in (
        "a fast one",
        "name Linux, release 6",
        "s3 server",
        "a, b",
        "3.4.2; 2.18.7 (old)",
        "by moto's server (LocalStore · default)",
    ):
        assert expected in text


def test_what_cannot_be_seen_is_told() -> None:
    page = render(make_case())
    for expected in ("kernel", "sockets", "System V and POSIX shared memory", "resident set"):
        assert expected in page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = render(make_case())
    checker = check(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(checker.tags)
    assert not {"src", "srcset", "xlink:href", "onclick", "style"} & checker.attributes
    assert not re.search(r"url\(|@import", page)
    assert all(target.startswith("#") for target in checker.targets)
    assert "prefers-color-scheme: dark" in page


def test_figures_link_to_flamegraphs_that_exist() -> None:
    case = make_case(capture='profiles/a"b c.bin')
    page = render(case, flamegraphs={'a"b c'}, folder="../flame")
    outside = [target for target in check(page).targets if not target.startswith("#")]
    assert set(outside) == {"../flame/a%22b%20c.html"}
    assert all(target.startswith("#") for target in check(render(case)).targets)


def test_whatever_comes_from_the_results_is_escaped() -> None:
    culprit = make_culprit(1.0, HOSTILE, native=HOSTILE)
    hostile = dict.fromkeys(("store", "pipeline", "transport", "side", "note"), HOSTILE)
    column = {"direction": HOSTILE, "codec": HOSTILE, "layout": HOSTILE}
    page = render_page(
        [
            make_case(**hostile, **column, counts=make_counts(1, 1, culprit), capture=HOSTILE),
            make_case(**hostile, counts=None, error=HOSTILE, versions={HOSTILE: HOSTILE}),
        ],
        machine={HOSTILE: HOSTILE},
        settings={"list": [HOSTILE], "mapping": {HOSTILE: HOSTILE}},
        flamegraphs={HOSTILE},
    )
    checker = check(page)
    assert "script" not in checker.tags
    assert not set(page) & {"\x00", "\x1b"}
    assert len(charts(page)) == 2
    shown = "<script>alert(\"1\" & '2')</script>\N{REPLACEMENT CHARACTER}"
    assert sum(shown in text for text in checker.text) >= 10


def test_the_page_opens_with_one_chart_and_all_else_is_folded() -> None:
    page = render(*(make_case(direction="read", codec=codec) for codec in ("raw", "zstd")))
    body = page[page.index("<body>") :]
    header, main = body.index("<header>"), body.index("<main>")
    assert header < body.index('<p class="sentence">') < body.index('class="bars"') < main
    checker = Unfolded()
    checker.feed(body[main:])
    assert checker.folded > 5
    assert checker.shown == []


class Unfolded(HTMLParser):
    """Collects the text that is neither in ``details`` nor in its title."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = self.folded = 0
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag == "details"
        self.folded += tag == "details" and ("open", None) not in attrs

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "details"

    def handle_data(self, data: str) -> None:
        if not self.depth and data.strip():
            self.shown.append(data)


def test_a_page_of_a_run_that_goes_on_says_so() -> None:
    assert "The run has not ended: 3 cases are missing." in render(make_case(), left=3)
    assert "has not ended" not in render(make_case())


def test_a_page_of_a_small_array_says_what_that_distorts() -> None:
    reads = [make_case(direction="read", codec=codec, nbytes=16_000_000) for codec in CODECS]
    assert "The array is small." in render(*reads)
    assert "The array is small." not in render(*(replace(one, nbytes=ARRAY) for one in reads))


def test_values_stand_below_their_names_on_a_phone() -> None:
    page = render(make_case())
    phone = page.partition("@media (max-width: 40rem)")[2]
    assert "dl.facts { display: block; }" in phone


def test_a_page_of_nothing_is_a_page() -> None:
    assert charts(render()) == []
    check(render())
