"""Two checkouts, compared by what their benchmarks have written."""

from typing import Any

from benchmarks.against import ratios


def row(times: dict[str, list[float]], lines: list[tuple[str, float, str, str | None]]) -> Any:
    return {
        "times": {name: {"seconds": seconds} for name, seconds in times.items()},
        "lines": [
            {"what": what, "against": "", "median": value, "unit": unit, "target": target}
            for what, value, unit, target in lines
        ],
    }


def test_times_are_compared_by_their_medians() -> None:
    before = row({"read": [2, 4, 100], "gone": [1]}, [("read", 7, "us", None)])
    after = row({"read": [1, 2, 3], "new": [1]}, [("read", 1, "us", None)])
    assert list(ratios(before, after)) == [("read", 2.0)]


def test_a_figure_is_better_as_its_target_or_its_unit_says() -> None:
    before = row({}, [("a", 10, "us", None), ("b", 10, "GB/s", None), ("c", 10, "GB/s", "< 20")])
    after = row({}, [("a", 5, "us", None), ("b", 5, "GB/s", None), ("c", 5, "GB/s", "< 20")])
    assert [ratio for _, ratio in ratios(before, after)] == [2.0, 0.5, 2.0]


def test_ratios_of_a_row_are_left_to_its_times() -> None:
    before = row({"read": [1]}, [("read", 1, "x", None), ("held", 0, "B", None)])
    after = row({"read": [1]}, [("read", 9, "x", None), ("held", 0, "B", None)])
    assert list(ratios(before, after)) == [("read", 1.0)]
