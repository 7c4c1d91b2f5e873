"""Hosts for all tests of this folder, and scripts that run on them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.adversity.scripts import Script
from tests.hosts.network import Host, hosts_on_a_switch, why_not

type RunOn = Callable[..., Script]

# Seconds until a machine that vanished is noticed, where the test takes its small form; the others
# are those of ucxstore.protocol.sockets.
SMALL_KEEPALIVE = "sockets._KEEPALIVE_IDLE = sockets._KEEPALIVE_INTERVAL = 1\n"

_PROLOGUE = """
import zarr
from ucxstore.protocol import sockets
"""


@pytest.fixture(scope="session")
def hosts() -> Iterator[Sequence[Host]]:
    problem = why_not()
    if problem is not None:
        pytest.skip(problem)
    with hosts_on_a_switch(4) as hosts:
        yield hosts


@pytest.fixture
def run_on(full: bool) -> Iterator[RunOn]:
    """Run a script on a host, with a `store` at an address."""
    with ExitStack() as stack:

        def run(host: Host, address: str, code: str) -> Script:
            prologue = _PROLOGUE + ("" if full else SMALL_KEEPALIVE)
            script = Script(address, {}, prologue + code, inside=host.inside)
            return stack.enter_context(script)

        yield run
