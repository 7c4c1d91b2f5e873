import re

from profiles.report.cases import Cases, Column
from profiles.report.tables import Links, headline, markdown_tables, terminal_tables
from profiles.result import CaseResult
from tests.profiles.report_cases import ARRAY, make_case, make_counts, make_culprit
from ucxstore.drawing.tables import markdown_table

ZSTD = {"codec": "zstd", "stored_nbytes": int(0.89 * ARRAY)}
HOSTILE = "<script>alert(1)</script>"


def markdown_headline(cases: list[CaseResult], *options: Links, codec: str = "zstd") -> str:
    return markdown_table(headline(cases, *options, codec=codec))


def cells(table: str, start: str) -> list[str]:
    """The cells of the Markdown row that starts with some text."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_rows_keep_their_order_and_servers_stand_beside_their_clients() -> None:
    ours = {"store": "UcxStore, memory", "pipeline": "zero-copy"}
    found = Cases(
        [
            make_case(**ours, transport="TCP", side="server"),
            make_case(store="LocalStore"),
            make_case(**ours, transport="TCP", side="client"),
        ]
    )
    assert [(row.store, row.over) for row in found.rows] == [
        ("UcxStore, memory", "TCP"),
        ("UcxStore, memory", "TCP, server"),
        ("LocalStore", ""),
    ]


def test_of_two_results_for_a_case_the_last_counts() -> None:
    found = Cases([make_case(counts=None, error="lost"), make_case()])
    (case,) = found.all()
    assert case.counts is not None


def test_workloads_stand_in_the_order_of_the_study() -> None:
    found = Cases(
        make_case(direction=direction, codec=codec, layout=layout)
        for direction, codec, layout in (
            ("read", "raw", "one"),
            ("write", "new", "one"),
            ("write", "raw", "grid"),
            ("write", "raw", "one"),
        )
    )
    assert found.columns == [
        Column("write", "raw", "one"),
        Column("write", "raw", "grid"),
        Column("write", "new", "one"),
        Column("read", "raw", "one"),
    ]


def test_there_is_a_table_for_each_direction_raw_and_compressed() -> None:
    cases = [
        make_case(direction=direction, **codec)
        for direction in ("write", "read")
        for codec in ({}, ZSTD, {**ZSTD, "codec": "gzip"})
    ]
    titles = re.findall(r"^### (.*?):", markdown_tables(cases), re.MULTILINE)
    assert titles == ["write raw", "write compressed", "read raw", "read compressed"]


def test_a_row_has_its_figures_the_best_and_who_is_to_blame() -> None:
    small = {"layout": "grid", "chunk_nbytes": ARRAY // 100}
    copy = make_culprit(1.9, "Store.get (s.py:1)")
    table = markdown_tables(
        [
            make_case(**ZSTD, counts=make_counts(1.03, 1.0)),
            make_case(**ZSTD, **small, counts=make_counts(0.1, 1.9, copy)),
        ]
    )
    assert cells(table, "LocalStore") == [
        "LocalStore",
        "default",
        "zstd",
        "1.03 / 1.00",
        "0.10 / 1.90",
        "0.01 to 0.89 / 0.89",
        "1.90 Store.get",
    ]


def test_a_case_that_is_missing_is_seen_to_be() -> None:
    cases = [make_case(), make_case(layout="grid"), make_case(store="MemoryStore", layout="grid")]
    assert cells(markdown_tables(cases), "MemoryStore")[2:4] == ["-", "0.01 / 0"]
    assert re.search(r"^MemoryStore +default +- +0.01 / 0", terminal_tables(cases), re.MULTILINE)


def test_failures_are_shown_with_their_reason_once() -> None:
    error = {"counts": None, "error": "zarr 2 has\nno shards"}
    cases = [make_case(), make_case(store="zarr 2", layout="shard", **error)]
    cases.append(make_case(store="zarr 2", layout="grid", **error))
    cases.append(make_case(store="zarr 2", layout="rows", counts=None))
    text = terminal_tables(cases)
    assert re.search(r"^zarr 2 .* failed \(1\) +failed \(2\) +failed \(2\)$", text, re.MULTILINE)
    assert text.endswith("\n(1) no reason was given\n(2) zarr 2 has no shards")
    assert "- (1) zarr 2 has no shards" in markdown_headline([make_case(**error)])


def test_counts_of_a_case_that_failed_are_not_shown() -> None:
    assert "0.01" not in terminal_tables([make_case(error="the wrong data came back")])


def test_notes_are_told_of_the_rows_that_they_are_about() -> None:
    text = terminal_tables([make_case(note="by moto's server"), make_case(store="other")])
    assert "LocalStore (1)" in text
    assert "other (" not in text
    assert "(1) by moto's server" in text


def test_figures_link_to_flamegraphs_that_exist() -> None:
    there = make_case(capture="profiles/write-raw-one-Local.bin")
    gone = make_case(direction="read", capture="profiles/read-raw-one-Local.bin")
    for table in (
        markdown_headline([there, gone], Links({"write-raw-one-Local"})),
        markdown_tables([there, gone], Links({"write-raw-one-Local"})),
    ):
        assert "[0.01 / 0](flamegraphs/write-raw-one-Local.html)" in table
        assert table.count("](") == 1
    assert "](" not in markdown_headline([there])
    assert "](../f/a%20b%29.html)" in markdown_headline(
        [make_case(capture="profiles/a b).bin")], Links({"a b)"}, "../f")
    )


def test_a_case_without_a_capture_has_no_link() -> None:
    assert "](" not in markdown_headline([make_case()], Links({"", "something"}))


def test_the_headline_has_one_chunk_of_each_kind_and_the_best_first() -> None:
    cases = [
        make_case(direction=direction, layout=layout, **codec)
        for direction in ("write", "read")
        for layout in ("one", "grid")
        for codec in ({}, ZSTD, {**ZSTD, "codec": "gzip"})
    ]
    cases.append(make_case(store="UcxStore, memory", pipeline="zero-copy", transport="TCP"))
    table = markdown_headline(cases)
    assert table.splitlines()[0] == (
        "| store | pipeline | over | write raw | write zstd | read raw | read zstd |"
    )
    best = ["best achievable", "", "", "0 / 0", "0.89 / 0.89", "0 / 0", "0.89 / 0.89"]
    assert cells(table, "best") == best
    assert cells(table, "LocalStore") == ["LocalStore", "default", "", *["0.01 / 0"] * 4]
    assert cells(table, "**Ucx")[2:] == ["TCP", "0.01 / 0", "-", "-", "-"]
    assert "write gzip" in markdown_headline(cases, codec="gzip")


def test_the_headline_leaves_out_rows_without_any_of_its_workloads() -> None:
    table = markdown_headline([make_case(), make_case(store="other", layout="grid")])
    assert "other" not in table


def test_markdown_is_escaped() -> None:
    case = make_case(store=f"{HOSTILE} [a](b) | *c*", note="<img src=x>")
    for table in (markdown_headline([case]), markdown_tables([case])):
        assert "<" not in table.replace(r"\<", "")
        assert "[a]" not in table
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) <= 3
        assert cells(table, r"\<script")[0].endswith(r"\[a\](b) \| \*c\* (1)")


def test_a_terminal_is_sent_no_control_characters() -> None:
    text = terminal_tables([make_case(store="a\x1b]0;title\x07"), make_case(error="b\x1b[2J")])
    assert not set(text) & {"\x1b", "\x07"}


def test_nothing_found_is_reported_too() -> None:
    assert terminal_tables([]) == markdown_tables([]) == ""
    assert "best achievable" in markdown_headline([])


def test_the_ways_of_chunks_are_named_where_a_store_counts_them() -> None:
    ours = {"store": "UcxStore, memory", "pipeline": "zero-copy", "transport": "local"}
    table = markdown_tables(
        [
            make_case(**ours, layout="one", ways={"mapped": 1}),
            make_case(**ours, layout="grid", ways={"direct": 99, "mapped": 1}),
            make_case(**ours, side="server"),
            make_case(),
        ]
    )
    assert cells(table, "store")[-1] == "ways"
    assert cells(table, "**UcxStore, memory** | zero-copy | local |")[-1] == "MAPPED, DIRECT"
    assert cells(table, "**UcxStore, memory** | zero-copy | local, server")[-1] == ""
    assert cells(table, "LocalStore")[-1] == ""
    assert "ways" not in markdown_tables([make_case()])
