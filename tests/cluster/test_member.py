import threading
from typing import Any

from ucxstore.base.address import HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.options import ClientOptions
from ucxstore.client.connections import connector_to
from ucxstore.client.identities import Identities
from ucxstore.cluster.member import Member

SERVERS = HostPort("127.0.0.1", 9), HostPort("127.0.0.1", 10)


class Overtaken(Member):
    """A member that a second request retries before the thread of the first one is started."""

    def __init__(self, *arguments: Any) -> None:
        self.threads: list[threading.Thread] = []
        super().__init__(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_retrying" and value is not None:
            self.threads.append(value)
            if len(self.threads) == 1:
                self.retry(0.1, lambda: None)

    def try_to_connect(self, timeout: float) -> None:
        """Connect to nothing."""


def test_two_requests_may_retry_a_server_at_once() -> None:
    connector = connector_to(SERVERS[0], ClientOptions())
    member = Overtaken(SERVERS[0], connector, Identities(SERVERS), Counters())
    member.retry(0.1, lambda: None)
    assert len(member.threads) == 2
    for thread in member.threads:
        thread.join()
