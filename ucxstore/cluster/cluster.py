"""`Cluster`: the channel of a store with several servers."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ucxstore.base.errors import UcxStoreError
from ucxstore.base.options import ClientOptions
from ucxstore.client.channel import Channel
from ucxstore.client.identities import Identities
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request
from ucxstore.cluster.gather import Gathered, Share
from ucxstore.cluster.member import Member
from ucxstore.cluster.membership import Membership
from ucxstore.cluster.scatter import Scatter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Allocation

# How often to connect to those that have ended a connection since. A server has one first record.
_MOST_ROUNDS = 3


class Cluster(Channel):
    """A channel to several servers.

    Keys are placed by rendezvous hashing. Servers that share their values stand in for one another.
    Where each has values of its own, all of them keep copies of the metadata, and any of them is
    asked for it.

    Parameters
    ----------
    members : sequence of Member
        In the order of the address.
    identities : Identities
        Which identities the store relies on.
    options : ClientOptions
    """

    def __init__(
        self, members: Sequence[Member], identities: Identities, options: ClientOptions
    ) -> None:
        super().__init__(options)
        self._membership = Membership(members, identities, options.connect_timeout)

    @property
    def opened(self) -> bool:
        return self._membership.is_ready()

    def open_sync(self, timeout: float | None = None) -> None:
        # A server that gets its first record has its clients connect anew, and so may end what was
        # connected just before.
        for _ in range(_MOST_ROUNDS):
            self.check_open()
            if self._membership.is_ready():
                return
            self._membership.connect(timeout or self.connect_timeout)

    def begin(self, request: Request[Any], queue: Queue | None) -> Operation:
        scatter = Scatter(self._membership, request)
        return Gathered(scatter.shares(), scatter.finish, self.timeout, queue, self._rouse)

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        # Of metadata, and of what servers share, another one may have the value, too: ask for it.
        return self._membership.seats.member_of(key).hold(key)

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        return self._membership.seats.member_of(key).map_file(key, waits=waits)

    def allocate(self, key: str, nbytes: int) -> "Allocation | None":
        member = self._membership.seats.member_of(key)
        if member.is_resting:
            self._rouse(member)
        try:
            return member.connection().allocate(key, nbytes)
        except UcxStoreError:
            return None  # another may take the value in its place, or the write tells

    def ask_each_sync(
        self, request: Request[None], timeout: float | None = None
    ) -> list[UcxStoreError | None]:
        seconds = timeout or self.timeout
        rouse = partial(self._rouse, timeout=seconds)
        begun = [
            Gathered(
                [Share(member, request, _nothing_more, _raise)], _nothing, seconds, None, rouse
            )
            for member in self._membership.members
        ]
        return [_failure_of(one) for one in begun]

    def _rouse(self, member: Member, timeout: float = math.inf) -> None:
        self._membership.rouse(member, min(timeout, self.connect_timeout))

    @property
    def keeps_copies(self) -> bool:
        return not self._membership.shared

    @property
    def decodes(self) -> bool:
        known = [member.welcome for member in self._membership.members]
        met = [welcome for welcome in known if welcome is not None]
        return bool(met) and all(welcome.decodes for welcome in met)

    def accept_restarted(self) -> None:
        self._membership.accept_restarted()


def _failure_of(begun: Operation) -> UcxStoreError | None:
    try:
        begun.wait()
    except UcxStoreError as error:
        return error
    return None


def _nothing() -> None:
    """Return the answer of a request that has none."""


def _nothing_more(_: None) -> list[Share]:
    return []


def _raise(error: UcxStoreError) -> list[Share]:
    raise error
