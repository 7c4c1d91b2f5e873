"""The channel to the servers of a store that has several."""

from typing import Any

from ucxstore.client.channel import Channel
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request
from ucxstore.cluster.gather import Gathered
from ucxstore.cluster.membership import Membership
from ucxstore.cluster.scatter import Scatter
from ucxstore.errors import UcxStoreError
from ucxstore.options import ClientOptions


class Cluster(Channel):
    """A channel to several servers.

    Keys are placed by rendezvous hashing. Servers that share what they serve stand in for one
    another. Where each has values of its own, all of them keep what says what arrays and groups
    are, and any of them is asked for it.

    Parameters
    ----------
    membership : Membership
        The servers.
    options : ClientOptions
    """

    def __init__(self, membership: Membership, options: ClientOptions) -> None:
        super().__init__(options)
        self._membership = membership

    @property
    def opened(self) -> bool:
        return self._membership.is_ready()

    def open_sync(self, timeout: float | None = None) -> None:
        if not self._membership.is_ready():
            self._membership.connect(timeout or self.connect_timeout)

    def begin(self, request: Request[Any], queue: Queue | None) -> Operation:
        scatter = Scatter(self._membership, request)
        return Gathered(scatter.shares(), scatter.finish, self.timeout, queue)

    def ask_each_sync(
        self, request: Request[None], timeout: float | None = None
    ) -> list[UcxStoreError | None]:
        failures: list[UcxStoreError | None] = []
        asked: list[Operation | UcxStoreError] = []
        for member in self._membership.members:
            try:
                asked.append(request.start(member.connection(), timeout or self.timeout, None))
            except UcxStoreError as error:
                asked.append(error)
        for operation in asked:
            try:
                if isinstance(operation, UcxStoreError):
                    raise operation
                operation.wait()
            except UcxStoreError as error:
                failures.append(error)
            else:
                failures.append(None)
        return failures

    @property
    def keeps_copies(self) -> bool:
        return not self._membership.shared

    @property
    def lanes(self) -> list[str]:
        members = self._membership.members
        return list(dict.fromkeys(lane for member in members for lane in member.lanes))

    def accept_restarted(self) -> None:
        self._membership.accept_restarted()
