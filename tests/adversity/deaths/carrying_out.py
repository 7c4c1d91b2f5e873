"""Carry out a case, and see that nothing aborts, nothing lies, and nothing is left behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.adversity.deaths.cases import (
    BEFORE_REQUESTS,
    Case,
    Direction,
    Hurt,
    Side,
    Stage,
    may_leak,
)
from tests.adversity.deaths.places import Place, Places
from tests.adversity.deaths.plan import (
    Means,
    closes_server,
    is_checked,
    is_killed,
    means_of,
    offset_of,
    trip_of,
)
from tests.adversity.deaths.processes import Aftermath, Fuse, Job, Outcome
from tests.adversity.deaths.relay import Relay
from tests.adversity.deaths.requests import versions_after
from tests.adversity.nursery import Child
from tests.eventually import eventually
from tests.stopping import stands

# Seconds: the time-out of connecting and of requests, and how long after both an exception may
# come, for UCX must let go of memory, and the machine may be busy.
TIMEOUT = 1.0
LATE = 4.0

_TRIES = 5  # to get ready: the time-out is short for a busy machine


def carry_out(case: Case, places: Places, *, has_hosts: bool) -> bool:
    """Carry out a case; return whether it was at its stage that the hurt came.

    Where bytes are counted it always is, and else it depends on the time: the request may have
    ended before.

    Raises
    ------
    AssertionError
        If anything is wrong. The processes of its place have ended then.
    """
    means = means_of(case, has_hosts=has_hosts)
    place = places.of(case.lane, case.storage, far=means is Means.CABLE)
    try:
        return _Run(case, place, means).carry_out()
    except BaseException as error:
        ended = place.ended()
        place.forget()
        if ended:
            raise AssertionError(f"{ended}; {error}") from error
        raise


@dataclass
class _Run:
    """One case at its place."""

    case: Case
    place: Place
    means: Means
    outcome: Outcome | None = None
    met: bool = True  # whether the hurt came before the end
    dead: set[Side] = field(default_factory=set)

    def carry_out(self) -> bool:
        self.place.ready(self.case.kind, self.case.size)
        with self._box() as box:
            self._prepare(self.place.address if box is None else box.address)
            if box is not None:
                box.arm(self.case, offset_of(self.case))
            self._act()
            if box is not None:  # the end of a connection may still be on its way
                eventually(lambda: box.hurts, 2.0, 0.002, "nothing was hurt")
        self._judge()
        self._look_at_client()
        self._look_at_server()
        if may_leak(self.case.combination):
            self.place.renew()
        return self.met

    # ---- before ----

    @contextmanager
    def _box(self) -> Iterator[Relay | None]:
        if self.means is not Means.RELAY:
            yield None
            return
        host, _, port = self.place.address.removeprefix("ucx://").rpartition(":")
        with Relay((host, int(port))) as relay:
            yield relay

    def _prepare(self, address: str) -> None:
        case = self.case
        job = Job(
            case.lane,
            address,
            case.kind,
            case.size,
            checked=is_checked(case),
            opened=case.stage not in BEFORE_REQUESTS,
            closes=case.stage is Stage.CLOSE and not closes_server(case),
            timeout=TIMEOUT,
        )
        said: list[str] = []
        while len(said) < _TRIES:
            said.append(self._client.ask(job))
            if said[-1] == "ready":
                return
        raise AssertionError(f"the client does not get ready: {said}")

    # ---- the hurt ----

    @property
    def _client(self) -> Child:
        return self.place.of(Side.CLIENT)

    @property
    def _server(self) -> Child:
        return self.place.of(Side.SERVER)

    @property
    def _victim(self) -> Child:
        return self.place.of(self.case.side)

    def _act(self) -> None:
        """Let the request begin, and the hurt come; return once both are over."""
        case = self.case
        if self.means is Means.CABLE and case.stage is Stage.CLOSE:
            with self._unplugged():
                self._go()
                self._hear_outcome()
        elif self.means is Means.CABLE:
            self._go()
            self._until_it_stands()
            with self._unplugged():
                self._victim.go_on()
                self._hear_outcome()
        else:
            before = self._server_trips()
            self._go()
            if case.hurt is Hurt.KILL:
                self._see_it_killed()
            elif case.hurt is Hurt.STOP:
                self._see_it_stopped()
            else:
                self._hear_outcome()
                if self.means is Means.TRIP:
                    assert self.outcome is not None
                    hurts = self.outcome.hurts + self._server_trips() - before
                    assert hurts, "nothing was hurt"
        if closes_server(case) and Side.SERVER not in self.dead:
            assert self._server.hear(20.0) == "closed"
            self._is_over(Side.SERVER, 0)

    def _server_trips(self) -> int:
        if self.means is not Means.TRIP or self.case.side is Side.CLIENT:
            return 0
        return 0 if self.case.hurt in (Hurt.KILL, Hurt.STOP) else self.place.at_server().tripped

    def _go(self) -> None:
        case = self.case
        trip = fuse = None
        if self.means is Means.FUSE:
            number = signal.SIGKILL if case.hurt is Hurt.KILL else signal.SIGSTOP
            fuse = Fuse(self._victim.pid, number, case.at)
        elif self.means is Means.TRIP or (
            self.means is Means.CABLE and case.stage is not Stage.CLOSE
        ):
            trip = trip_of(case, stops=self.means is Means.CABLE)
            if case.side is Side.SERVER:
                assert self._server.ask(trip) == "armed"
                trip = None
        self._client.channel.send((trip, fuse))
        if closes_server(case):
            self._server.channel.send("close")

    def _hear_outcome(self) -> None:
        if self.outcome is None:
            self.outcome = self._client.hear(30.0)

    def _until_it_stands(self) -> None:
        """Wait until the hurt side has stopped; a fuse may take longer than the request."""

        def is_missed() -> bool:
            return self.means is not Means.FUSE and self._client.channel.poll()

        eventually(lambda: stands(self._victim.pid) or is_missed(), 20.0, 0.002)
        if not stands(self._victim.pid):
            self._hear_outcome()
            raise AssertionError(f"nothing was hurt: {self.outcome}")

    def _see_it_stopped(self) -> None:
        if self.case.side is Side.SERVER:
            self._hear_outcome()  # while it stands
            self._until_it_stands()
            self._note_in_time(Side.SERVER)
            self._server.go_on()
            return
        self._until_it_stands()
        self._note_in_time(Side.CLIENT)
        if not closes_server(self.case):  # others are served meanwhile
            versions = versions_after(self.case.kind, acknowledged=False)
            self.place.see(self.case.kind, self.case.size, "check", versions)
        self._client.go_on()
        self._hear_outcome()

    def _see_it_killed(self) -> None:
        if self.case.side is Side.SERVER:
            self._hear_outcome()
        else:
            self._hear_to_the_end()
        self._note_in_time(self.case.side)
        self._is_over(self.case.side, -signal.SIGKILL)

    def _note_in_time(self, side: Side) -> None:
        """Note, of a hurt after a time, whether it came before the end of what it was to hurt."""
        if self.means is not Means.FUSE:
            return
        if closes_server(self.case):
            self.met = not self._has_closed()
        elif side is Side.SERVER:
            assert self.outcome is not None
            self.met = self.outcome.hurts > 0
        else:
            self.met = self.outcome is None and not self._client.channel.poll()

    def _has_closed(self) -> bool:
        channel = self._server.channel
        if not is_killed(self.case, Side.SERVER):
            return channel.poll()  # what it says is heard later
        with suppress(EOFError, ConnectionResetError):
            return channel.poll(20.0) and channel.recv() == "closed"
        return False

    def _hear_to_the_end(self) -> None:
        """Hear the client until it is killed."""
        try:
            while self._client.channel.poll(20.0):
                self.outcome = self._client.channel.recv()
                assert self.means is Means.FUSE, f"nothing was hurt: {self.outcome}"
        except (EOFError, ConnectionResetError):
            return
        raise AssertionError("the client was not killed")

    def _is_over(self, side: Side, status: int) -> None:
        child = self.place.of(side)
        if status == 0:
            child.close()
        assert child.wait() == status, child.output
        self.dead.add(side)

    @contextmanager
    def _unplugged(self) -> Iterator[None]:
        """Hurt the network between the hosts."""
        case = self.case
        server, client = self.place.hosts
        hurt = server if case.side is Side.SERVER else client
        if case.hurt is Hurt.LINK_DOWN:
            hurt.unplug()
            try:
                yield
            finally:
                hurt.plug()
                hurt.await_link("eth0")
            return
        sender, receiver = (
            (client, server) if case.direction is Direction.TO_SERVER else (server, client)
        )
        lost = [(sender, receiver)]
        if hurt is sender:  # nothing gets back to it, either
            lost.append((receiver, sender))
        for one, other in lost:
            one.cut(other.ip)
        try:
            yield
        finally:
            for one, other in lost:
                one.mend(other.ip)

    # ---- after ----

    def _judge(self) -> None:
        outcome = self.outcome
        if outcome is None:
            return
        assert outcome.right is not False, f"a wrong answer: {outcome}"
        assert outcome.is_ours, f"not an exception of ours: {outcome.error}"
        assert outcome.gaps_untouched, "it wrote beside the memory that it was given"
        assert outcome.seconds <= 2 * TIMEOUT + LATE, f"too late: {outcome}"

    def _look_at_client(self) -> None:
        if Side.CLIENT in self.dead:
            self.place.lost(Side.CLIENT)
            return
        found = self._client.ask("look")
        assert isinstance(found, Aftermath)
        assert found.memory_untouched, "the caller's memory was written to after the end"
        if not may_leak(self.case.combination):
            assert not found.left_behind, f"the client: {found.left_behind}"

    def _look_at_server(self) -> None:
        """See that the server has let go of all, and has right values, also after it was killed."""
        case, place = self.case, self.place
        if Side.SERVER in self.dead:
            place.lost(Side.SERVER)
            if not place.made:
                return
            place.ready(case.kind, case.size)
        else:
            assert self._server.ask("disarm") == "disarmed"
            place.see_rest(may_leak=may_leak(case.combination))
        closes = case.stage is Stage.CLOSE and not closes_server(case)
        acknowledged = closes or (self.outcome is not None and bool(self.outcome.right))
        versions = versions_after(case.kind, acknowledged=acknowledged)
        place.see(case.kind, case.size, "check and restore", versions)
        place.see_rest(may_leak=may_leak(case.combination))
