"""Nothing aborts: whatever dies, and wherever, a call ends well or with an exception of ours."""

import re
from collections.abc import Callable

import pytest

from tests.adversity.deaths.carrying_out import carry_out
from tests.adversity.deaths.cases import ABORTS, OF_SILENCE, OVER_TCP, Case, Lane, draw
from tests.adversity.deaths.places import Places
from tests.adversity.deaths.plan import Means, means_of
from tests.adversity.deaths.stall import Stall

SEED = 29
FEW, ALL = 60, 1000

# Seconds without any run of this process, after which being late is nobody's fault.
STOOD_STILL = 3.0
SILENT = [case for case in draw(SEED, ALL) if case.lane in OVER_TCP and case.hurt in OF_SILENCE]
OF_UCX = draw(SEED, 24, why=ABORTS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    given, seed, lanes = (
        metafunc.config.getoption(f"--{name}", default=None)
        for name in ("case", "deaths-seed", "deaths-lane")
    )
    if given:
        metafunc.parametrize("case", [Case.parse(one) for one in given], ids=str)
        return
    cases = draw(seed or SEED, ALL, lanes=lanes or tuple(Lane))
    # Those of a lane share processes, and so are together.
    few, others = sorted(cases[:FEW], key=str), sorted(cases[FEW:], key=str)
    full = [pytest.param(case, marks=pytest.mark.full) for case in others]
    metafunc.parametrize("case", [*few, *full], ids=str)


def test_deaths(
    case: Case, all_places: Places, has_hosts: bool, record_property: Callable[[str, object], None]
) -> None:
    means = means_of(case, has_hosts=has_hosts)
    if not has_hosts and means is Means.CABLE:
        pytest.skip("no hosts can be made here, and no relay has the connections of UCX")
    try:
        met = _carry_out(case, all_places, has_hosts)
    except AssertionError as error:
        again = f"pytest tests/adversity/deaths --case {case}"
        raise AssertionError(f"{error}\nThis case again: {again}") from error
    record_property("counted", f"{case.lane} at {case.stage}, {'met' if met else 'missed'}")


def _carry_out(case: Case, all_places: Places, has_hosts: bool) -> bool:
    """Carry out a case; once more if it failed while the machine stood still."""
    with Stall() as stall:
        try:
            return carry_out(case, all_places, has_hosts=has_hosts)
        except AssertionError:
            if stall.longest < STOOD_STILL:
                raise
    return carry_out(case, all_places, has_hosts=has_hosts)


@pytest.mark.full
@pytest.mark.parametrize("silent", SILENT[:10], ids=str)
def test_a_relay_is_silent_where_no_hosts_are_made(silent: Case, all_places: Places) -> None:
    carry_out(silent, all_places, has_hosts=False)


@pytest.mark.full
@pytest.mark.parametrize("bad", OF_UCX, ids=str)
def test_ucx_may_abort_but_does_not_lie(
    bad: Case, all_places: Places, has_hosts: bool, record_property: Callable[[str, object], None]
) -> None:
    """What is not run above ends well, or a process ends, or UCX prints where it met bad bytes."""
    problem = ""
    try:
        carry_out(bad, all_places, has_hosts=has_hosts)
    except AssertionError as error:
        problem = str(error)
    finally:
        all_places.forget(bad.lane)  # with what UCX has printed
    assert not problem or re.search(r"ended with -(6|11): |==== backtrace", problem), problem
    record_property("counted", f"{bad.hurt} of UCX's own bytes at {bad.stage}: {_told(problem)}")


def _told(problem: str) -> str:
    ended = re.search(r"the \w+ ended with -\d+", problem)
    return ended[0] if ended else "UCX printed a backtrace" if problem else "all lived"
