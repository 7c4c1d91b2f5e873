import pytest

from profiles.report.best import best
from tests.profiles.report_cases import ARRAY, make_case
from ucxstore.copies.figures import pair

COMPRESSED = {"codec": "zstd", "stored_nbytes": int(0.89 * ARRAY)}
GRID = {"layout": "grid", "chunk_nbytes": ARRAY // 100}
SHARD = {"layout": "shard", "chunk_nbytes": ARRAY // 100}


@pytest.mark.parametrize("direction", ["write", "read"])
@pytest.mark.parametrize("layout", [{}, GRID, SHARD])
def test_raw_data_needs_nothing(direction: str, layout: dict) -> None:
    ideal = best(make_case(direction=direction, **layout))
    assert (ideal.peak, ideal.total) == (0, 0)
    assert "straight" in ideal.reason


@pytest.mark.parametrize(
    ("direction", "what"), [("write", "encoder's output"), ("read", "compressed bytes")]
)
def test_a_compressed_chunk_is_there_once(direction: str, what: str) -> None:
    ideal = best(make_case(direction=direction, **COMPRESSED))
    assert (ideal.peak, ideal.total) == (0.89, 0.89)
    assert ideal.reason == f"the {what}"


@pytest.mark.parametrize("direction", ["write", "read"])
def test_of_many_chunks_only_what_is_in_flight_is_alive(direction: str) -> None:
    ideal = best(make_case(direction=direction, **COMPRESSED, **GRID))
    assert ideal.peak == pytest.approx(0.0089)
    assert ideal.total == 0.89
    assert "in flight" in ideal.reason


def test_a_shard_is_written_whole_and_read_in_parts() -> None:
    assert best(make_case(direction="write", **COMPRESSED, **SHARD)).peak == 0.89
    assert best(make_case(direction="read", **COMPRESSED, **SHARD)).peak == pytest.approx(0.0089)


def test_what_a_client_sees_needs_no_buffer() -> None:
    ours = {"store": "UcxStore, memory", "transport": "local", **COMPRESSED}
    ideal = best(make_case(direction="read", **ours))
    assert (ideal.peak, ideal.total) == (0, 0)
    ideal = best(make_case(direction="write", **ours))
    assert (ideal.peak, ideal.total) == (0.89, 0.89)


@pytest.mark.parametrize("direction", ["write", "read"])
@pytest.mark.parametrize("codec", [{}, COMPRESSED])
def test_a_server_needs_nothing_beyond_what_it_stores(direction: str, codec: dict) -> None:
    ideal = best(make_case(side="server", direction=direction, **codec))
    assert (ideal.peak, ideal.total) == (0, 0)


@pytest.mark.parametrize(
    ("direction", "case", "figures"),
    [
        ("write", {}, "1.00 / 1.00"),
        ("write", COMPRESSED, "0.89 / 0.89"),
        ("write", {**COMPRESSED, **GRID}, "0.89 / 0.89"),  # it keeps them all
        ("read", {}, "0 / 0"),
        ("read", COMPRESSED, "0 / 0"),
    ],
)
def test_a_store_in_this_process_keeps_what_is_written(
    direction: str, case: dict, figures: str
) -> None:
    ideal = best(make_case(store="MemoryStore", direction=direction, **case))
    assert pair(ideal.peak, ideal.total) == figures


def test_a_case_that_failed_early_has_a_best_too() -> None:
    case = make_case(codec="zstd", nbytes=0, chunk_nbytes=0, stored_nbytes=0, counts=None)
    assert (best(case).peak, best(case).total) == (0, 0)
