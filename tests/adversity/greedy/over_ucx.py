"""What greedy clients do over UCX, as far as requests of the core's own client can do it.

A client that reads nothing stops its process: nobody makes progress on its endpoint then, while the
kernel still answers for it.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.adversity.greedy.kinds import BIG, BIG_BYTES, FEW, FOLDER, Kind, Target
from tests.eventually import nothing_happens
from ucxstore.base.address import Address
from ucxstore.base.native import core
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting

UCX: Mapping[str, str] = {"TLS": "tcp"}

_TIMEOUT = 20.0
_BYTES = 1  # the kind of a range: from, to

type Ask = Callable[[core.Connection], core.Operation]


@contextmanager
def _connected(target: Target) -> Iterator[core.Connection]:
    [place] = Address.parse(target.address).servers
    client = core.Client(dict(UCX), False)
    secret = Secret(target.secret) if target.secret else None
    try:
        with Greeting(place, secret, _TIMEOUT) as greeting:
            port = client.open(greeting.fileno())
            fd, address = greeting.attach(port.address)
            token = greeting.welcome.token
        connection = port.attach(fd, token, address, str(place), _TIMEOUT)
        yield connection
        connection.close()
    finally:
        client.close(_TIMEOUT)


def _stream(target: Target, ask: Ask, ahead: int) -> None:
    """Keep so many requests under way."""
    with _connected(target) as connection:
        under_way: list[core.Operation] = []
        while target.goes_on():
            while len(under_way) < ahead:
                under_way.append(ask(connection))
            under_way.pop(0).wait()


def _stand_still(target: Target, ask: Ask, count: int) -> None:
    """Ask often, and stand still until somebody lets this process go on."""
    with _connected(target) as connection:
        connection.ping(_TIMEOUT).wait()
        under_way = [ask(connection) for _ in range(count)]
        nothing_happens(0.2)
        os.kill(os.getpid(), signal.SIGSTOP)
        del under_way


def many_ranges(target: Target) -> None:
    """Ask for a large value many times in one get."""
    ranges = [(_BYTES, 0, BIG_BYTES)] * 40
    _stream(target, lambda at: at.get([BIG], [ranges], _TIMEOUT), 1)


def listings_unread(target: Target) -> None:
    """Ask for listings, and stand still."""
    _stand_still(target, lambda at: at.list_page(FOLDER, False, "", _TIMEOUT), 12_000)


def pings_unread(target: Target) -> None:
    """Ping, and stand still."""
    _stand_still(target, lambda at: at.ping(_TIMEOUT), 100_000)


def stats_unread(target: Target) -> None:
    """Ask for the server's counters, and stand still."""
    _stand_still(target, lambda at: at.stats(_TIMEOUT), 20_000)


def statistics(target: Target) -> None:
    """Ask for the sizes of 64 values, all the time."""
    _stream(target, lambda at: at.stat(FEW, _TIMEOUT), 256)


def single_bytes(target: Target) -> None:
    """Get some thousand ranges of a byte each, three such gets at a time."""
    ranges = [(_BYTES, number * 4001, number * 4001 + 1) for number in range(4096)]
    _stream(target, lambda at: at.get([BIG], [ranges], _TIMEOUT), 3)


def many_listings(target: Target) -> None:
    """Have 3,000 listings under way."""
    _stream(target, lambda at: at.list_page(FOLDER, False, "", _TIMEOUT), 3000)


def many_measures(target: Target) -> None:
    """Have 3,000 measures of a folder under way."""
    _stream(target, lambda at: at.measure(FOLDER, False, _TIMEOUT), 3000)


KINDS: dict[str, Kind] = {
    "many ranges": Kind(many_ranges),
    "listings unread": Kind(listings_unread),
    "pings unread": Kind(pings_unread),
    "stats unread": Kind(stats_unread, "all"),
    "statistics": Kind(statistics),
    "single bytes": Kind(single_bytes),
    "3,000 listings": Kind(many_listings),
    "3,000 measures": Kind(many_measures),
}
