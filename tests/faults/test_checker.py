"""The checker finds what we planted, and takes what is right; so do the values and the records."""

from pathlib import Path

import numpy as np
import pytest

from tests.faults import checker
from tests.faults.history import ADD, DELETE, GET, LOSE, SET, UNKNOWN, Operation, Recorder
from tests.faults.history import operations_of as read_back
from tests.faults.values import SIZES, TORN, make, number_of, read_part, read_whole, size_of

type Told = tuple[str, int, int, int, int]

# kind, written, found, begin, end
RIGHT: dict[str, list[Told]] = {
    "a read of what was acknowledged": [(SET, 1, 0, 0, 1), (GET, 0, 1, 2, 3)],
    "a read of what is being written": [(SET, 1, 0, 0, 9), (GET, 0, 1, 2, 3)],
    "a read before what is being written": [(SET, 1, 0, 0, 9), (GET, 0, 0, 2, 3)],
    "a write that failed and was done": [(SET, 1, 0, 0, UNKNOWN), (GET, 0, 1, 2, 3)],
    "a write that failed and was done late": [
        (SET, 1, 0, 0, UNKNOWN),
        (SET, 2, 0, 1, 2),
        (GET, 0, 2, 3, 4),
        (GET, 0, 1, 5, 6),
    ],
    "a write that failed and was not done": [
        (SET, 1, 0, 0, 1),
        (SET, 2, 0, 2, UNKNOWN),
        (GET, 0, 1, 5, 6),
    ],
    "a delete that failed": [
        (SET, 1, 0, 0, 1),
        (DELETE, 0, 0, 2, UNKNOWN),
        (GET, 0, 1, 5, 6),
        (GET, 0, 0, 7, 8),
    ],
    "an add, and one that is refused": [
        (ADD, 1, 1, 0, 1),
        (ADD, 2, 0, 2, 3),
        (GET, 0, 1, 5, 6),
    ],
    "an add that failed, as the next one shows": [
        (ADD, 1, 0, 0, UNKNOWN),
        (ADD, 2, 0, 2, 3),
        (GET, 0, 1, 5, 6),
    ],
    "an add that is refused by what nobody has read": [
        (SET, 1, 0, 0, UNKNOWN),
        (ADD, 2, 0, 2, 3),
        (DELETE, 0, 0, 4, 5),
        (ADD, 3, 1, 6, 7),
    ],
    "a loss that was accepted": [(SET, 1, 0, 0, 1), (LOSE, 0, 0, 2, 3), (GET, 0, 0, 4, 5)],
}
WRONG: dict[str, list[Told]] = {
    "a stale read": [(SET, 1, 0, 0, 1), (SET, 2, 0, 2, 3), (GET, 0, 1, 4, 5)],
    "a lost update": [(SET, 1, 0, 0, 1), (GET, 0, 0, 2, 3)],
    "a fill value in place of a loss": [
        (SET, 1, 0, 0, 1),
        (GET, 0, 0, 2, 3),
        (LOSE, 0, 0, 4, 5),
    ],
    "a torn value": [(SET, 1, 0, 0, 1), (GET, 0, TORN, 2, 3)],
    "a value that nobody wrote": [(GET, 0, 7, 2, 3)],
    "a value before it was written": [(GET, 0, 1, 0, 1), (SET, 1, 0, 2, UNKNOWN)],
    "a value that comes back": [
        (SET, 1, 0, 0, 1),
        (DELETE, 0, 0, 2, 3),
        (GET, 0, 0, 4, 5),
        (GET, 0, 1, 6, 7),
    ],
    "a write that lands twice": [
        (SET, 1, 0, 0, 9),
        (GET, 0, 1, 1, 2),
        (SET, 2, 0, 3, 4),
        (GET, 0, 2, 5, 6),
        (GET, 0, 1, 7, 8),
    ],
    "a write that failed and was seen to go": [
        (SET, 1, 0, 0, UNKNOWN),
        (GET, 0, 1, 1, 2),
        (SET, 2, 0, 3, 4),
        (GET, 0, 1, 5, 6),
    ],
    "two that read in another order": [
        (SET, 1, 0, 0, 9),
        (SET, 2, 0, 0, 9),
        (GET, 0, 1, 1, 2),
        (GET, 0, 2, 3, 4),
        (GET, 0, 1, 5, 6),
    ],
    "two adds that have both written": [(ADD, 1, 1, 0, 1), (ADD, 2, 1, 2, 3)],
}


@pytest.fixture(scope="module")
def program() -> Path:
    problem = checker.why_not()
    if problem is not None:
        pytest.skip(problem)
    return checker.build()


def history_of(told: list[Told], key: str) -> list[Operation]:
    return [
        Operation(process, kind, key, number, found, begin, end, "", 0.0)
        for process, (kind, number, found, begin, end) in enumerate(told)
    ]


def test_what_is_right(program: Path, tmp_path: Path) -> None:
    history = [one for key, told in RIGHT.items() for one in history_of(told, key)]
    for shared in (False, True):
        found = checker.check(history, tmp_path, shared=shared, program=program)
        assert (found.violations, found.unknown, found.keys) == ([], 0, len(RIGHT))


def test_what_is_wrong(program: Path, tmp_path: Path) -> None:
    history = [one for key, told in WRONG.items() for one in history_of(told, key)]
    for shared in (False, True):
        found = checker.check(history, tmp_path, shared=shared, program=program)
        assert {line.split("\t")[0] for line in found.violations} == WRONG.keys()


def test_an_add_that_was_sent_twice(program: Path, tmp_path: Path) -> None:
    """The second server may say that somebody was there before; a single one may not."""
    told = history_of([(ADD, 1, 0, 0, 1), (GET, 0, 1, 2, 3)], "a")
    assert checker.check(told, tmp_path, shared=True, program=program).violations == []
    assert len(checker.check(told, tmp_path, shared=False, program=program).violations) == 1


def test_one_violation_among_many_operations(program: Path, tmp_path: Path) -> None:
    told: list[Told] = []
    for number in range(1, 2001):
        begin = number * 10
        told += [(SET, number, 0, begin, begin + 12), (GET, 0, number, begin + 13, begin + 14)]
    right = history_of(told, "a")
    assert checker.check(right, tmp_path, shared=False, program=program).violations == []
    told[2001] = (GET, 0, 998, *told[2001][3:])
    wrong = history_of(told, "a")
    (line,) = checker.check(wrong, tmp_path, shared=False, program=program).violations
    assert "get 0.998" in line.rpartition("after which")[2]


def test_many_failures_take_no_time(program: Path, tmp_path: Path) -> None:
    """The orders of what may have happened at any time are not all tried."""
    told: list[Told] = [(SET, 1, 0, 0, 1)]
    for number in range(2, 200):
        told.append((SET, number, 0, number * 10, UNKNOWN))
        told.append((ADD, 1000 + number, 0, number * 10 + 1, number * 10 + 2))
        told.append((GET, 0, 1, number * 10 + 3, number * 10 + 4))
    found = checker.check(history_of(told, "a"), tmp_path, shared=True, program=program)
    assert (found.violations, found.unknown) == ([], 0)


def test_what_was_never_sent_has_no_effect(program: Path, tmp_path: Path) -> None:
    told = history_of([(SET, 1, 0, 0, UNKNOWN), (GET, 0, 1, 2, 3)], "a")
    told[0].error = "ConnectError"
    # Of servers that stand in for one another, the one before may have been sent it.
    assert checker.check(told, tmp_path, shared=True, program=program).violations == []
    assert len(checker.check(told, tmp_path, shared=False, program=program).violations) == 1


def test_a_wrong_line_is_no_verdict(program: Path, tmp_path: Path) -> None:
    odd = Operation(0, "odd", "a", 0, 0, 0, 1, "", 0.0)
    with pytest.raises(RuntimeError, match="no operation is named"):
        checker.check([odd], tmp_path, shared=False, program=program)


def test_values_show_who_wrote_them_and_whether_they_are_whole() -> None:
    numbers = [number_of(5, sequence) for sequence in range(1, 500)]
    assert {size_of(number) for number in numbers} == set(SIZES)
    for number in numbers[:100]:
        value = make(number)
        assert read_whole(value) == read_part(value[8:40]) == number
        assert read_whole(value[:-8]) == TORN
        torn = value.copy()
        torn[-8:] = make(number + 1)[:8]
        assert read_whole(torn) == read_part(torn[-16:]) == TORN
    assert read_part(np.zeros(16, "u1")) == TORN


def test_a_record_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = Recorder(path)
    recorder.begin(SET, "a", 1)
    recorder.end()
    recorder.begin(GET, "a")
    recorder.end(1)
    recorder.begin(DELETE, "a")
    recorder.end(error="ServerLostError", text="the server is gone")
    recorder.begin(SET, "a", 2)
    recorder.close()
    with path.open("a") as file:
        file.write('[12345, 0, "')
    first, second, third, fourth = read_back(path, 7)
    assert (first.kind, first.number, first.error) == (SET, 1, "")
    assert first.call < first.end < second.call
    assert second.found == 1
    assert (third.end, third.error) == (UNKNOWN, "ServerLostError")
    assert (fourth.number, fourth.end, fourth.error) == (2, UNKNOWN, "unfinished")
