"""Nothing aborts: whatever dies, and wherever, a call ends well or with an exception of ours."""

import re

import pytest

from tests.adversity.deaths.carrying_out import carry_out
from tests.adversity.deaths.cases import ABORTS, OF_SILENCE, Case, Lane, draw
from tests.adversity.deaths.places import Places
from tests.adversity.deaths.plan import Means, means_of

SEED = 29
FEW, ALL = 60, 1000
_CASES = draw(SEED, ALL)
SILENT = [case for case in _CASES if case.lane is Lane.TCP and case.hurt in OF_SILENCE][:40]
OF_UCX = draw(SEED, 24, why=ABORTS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--case", default=None)
    if given:
        metafunc.parametrize("case", [Case.parse(one) for one in given], ids=str)
        return
    # Those of a lane share processes, and so are together.
    few, others = sorted(_CASES[:FEW], key=str), sorted(_CASES[FEW:], key=str)
    full = [pytest.param(case, marks=pytest.mark.full) for case in others]
    metafunc.parametrize("case", [*few, *full], ids=str)


def test_deaths(case: Case, all_places: Places, has_hosts: bool) -> None:
    if not has_hosts and means_of(case, has_hosts=False) is Means.CABLE:
        pytest.skip("no hosts can be made here, and no relay has the connections of UCX")
    try:
        carry_out(case, all_places, has_hosts=has_hosts)
    except AssertionError as error:
        again = f"pytest tests/adversity/deaths --case {case}"
        raise AssertionError(f"{error}\nThis case again: {again}") from error


@pytest.mark.full
@pytest.mark.parametrize("silent", SILENT, ids=str)
def test_a_relay_is_silent_where_no_hosts_are_made(silent: Case, all_places: Places) -> None:
    carry_out(silent, all_places, has_hosts=False)


@pytest.mark.full
@pytest.mark.parametrize("bad", OF_UCX, ids=str)
def test_ucx_may_abort_but_does_not_lie(bad: Case, all_places: Places, has_hosts: bool) -> None:
    """What is not run above ends well, or a process ends, or UCX prints where it met bad bytes."""
    problem = ""
    try:
        carry_out(bad, all_places, has_hosts=has_hosts)
    except AssertionError as error:
        problem = str(error)
    finally:
        all_places.forget(bad.lane)  # with what UCX has printed
    assert not problem or re.search(r"ended with -(6|11): |==== backtrace", problem), problem
