"""The places of the cases, and the options to carry out others."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.adversity.deaths.places import Places, places
from tests.durability.recording import preload
from tests.hosts.network import Host, hosts_on_a_switch, why_not

TRIP = Path(__file__).with_name("trip.c")


def pytest_addoption(parser: pytest.Parser) -> None:
    deaths = parser.getgroup("tests/adversity/deaths")
    deaths.addoption("--case", action="append", help="a case, as printed")
    deaths.addoption("--deaths-seed", type=int, help="what the cases are drawn from")
    deaths.addoption("--deaths-lane", action="append", help="a lane of the cases; repeatable")


@pytest.fixture(scope="session")
def has_hosts() -> bool:
    return why_not() is None


@pytest.fixture(scope="session")
def two_hosts() -> Iterator[Callable[[], Sequence[Host]]]:
    """Make two hosts, at the first call."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(hosts_on_a_switch(2)))


@pytest.fixture(scope="session")
def all_places(
    tmp_path_factory: pytest.TempPathFactory, two_hosts: Callable[[], Sequence[Host]]
) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("deaths")
    with places(folder, preload(TRIP, folder), two_hosts) as made:
        yield made
