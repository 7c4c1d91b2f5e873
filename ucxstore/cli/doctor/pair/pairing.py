"""The host of a pair that measures: meet the other host, and go through the trials."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.secret import Secret
from ucxstore.cli.common.status import CommandError
from ucxstore.cli.doctor.pair.listening import VERSION
from ucxstore.cli.doctor.pair.mailbox import Asking
from ucxstore.cli.doctor.pair.sides import Side, machine_sum
from ucxstore.cli.doctor.pair.trials import STEPS, Trial, TrialStep, not_reached
from ucxstore.stores.store import UcxStore

# Seconds for all trials together: with the rest, less than ten minutes.
BUDGET = 510.0

# Seconds of one measurement.
MEASURE_SECONDS = 2.0

# A step may take this long beside the time-out of the store, and the first one of a process also
# that process's start.
STEP_SECONDS = 20.0
START_SECONDS = 20.0

# With less time left, no step begins.
_LEAST_SECONDS = 5.0

# After so many steps that did not end in time, those after them are not reached.
_MOST_HANGS = 2

# Bytes of what a process has printed last, in a report.
_OUTPUT_BYTES = 1500


@dataclass(kw_only=True)
class Pair:
    """The other host, and how to talk to it.

    Parameters
    ----------
    other : HostPort
    secret : Secret
    timeout : float
        Seconds that a request may go without progress.
    store : UcxStore
        Of the other host's server for messages.
    seconds : float
        What a measurement takes, about.
    """

    other: HostPort
    secret: Secret
    timeout: float
    store: UcxStore
    seconds: float

    @property
    def asking(self) -> Asking:
        """Messages to the other host."""
        return Asking(self.store, self.timeout)

    @property
    def silence(self) -> float:
        """The longest time without a message: three steps need none, nor does a new process."""
        return 3 * (self.timeout + STEP_SECONDS) + START_SECONDS

    def is_there(self) -> bool:
        """Tell whether the other host answers."""
        try:
            self.store.ping_sync()
        except UcxStoreError:
            return False
        return True


def meet(other: HostPort, secret: Secret, timeout: float, wait: float) -> Pair:
    """Wait for the other host, and connect to it.

    Raises
    ------
    ConnectError
        If it does not answer, or has another secret.
    """
    address = str(Address((other,)))
    first = UcxStore(address, secret=secret, network="tcp", local="off", connect_timeout=wait)
    first.ping_sync()
    store = UcxStore(
        address,
        secret=secret,
        network="tcp",
        local="off",
        timeout=timeout,
        connect_timeout=timeout,
    )
    store.ping_sync()
    return Pair(other=other, secret=secret, timeout=timeout, store=store, seconds=MEASURE_SECONDS)


def greet(pair: Pair) -> tuple[Side, bool]:
    """Return the facts about the other host, and whether it is this very machine.

    Raises
    ------
    OtherSideError
        If it has another release.
    """
    answer = pair.asking.ask("hello", version=VERSION, machine=machine_sum(), silence=pair.silence)
    return Side.read(answer.inside("side")), answer.flag("same_machine")


def run_trial(
    pair: Pair, trial: Trial, until: float, tell: Callable[[TrialStep], object]
) -> list[TrialStep]:
    """Take all steps of a trial; after one that fails, the later ones in a new process.

    Parameters
    ----------
    pair : Pair
    trial : Trial
    until : float
        When to end, by `time.monotonic`.
    tell : callable
        Called with each outcome at once.
    """
    outcomes: list[TrialStep] = []

    def note(*steps: TrialStep) -> None:
        for step in steps:
            outcomes.append(step)
            tell(step)

    if trial.why_not:
        note(TrialStep(step="connect", state="left out", what=trial.why_not))
        return outcomes
    hangs = 0
    while len(outcomes) < len(STEPS):
        left = STEPS[len(outcomes) :]
        if outcomes and outcomes[0].state == "failed":
            note(*not_reached(left, "there is no connection"))
        elif not pair.is_there():
            note(*not_reached(left, "the other host is gone"))
        elif hangs == _MOST_HANGS:
            note(*not_reached(left, "too many steps did not end"))
        elif until - time.monotonic() < _LEAST_SECONDS:
            note(*not_reached(left, "no time is left"))
        else:
            with _Child(pair, trial, left) as child:
                for step in child.outcomes(until):
                    note(_with_output(pair, step))
                hangs += child.has_hung
    return outcomes


def _with_output(pair: Pair, step: TrialStep) -> TrialStep:
    """Add to a step that has failed the last that the other host's server has printed."""
    if step.state != "failed":
        return step
    try:
        output = pair.asking.ask("output").text("text")[-_OUTPUT_BYTES:].strip()
    except (UcxStoreError, CommandError):  # the other host is gone, too
        return step
    if not output:
        return step
    return replace(step, what=f"{step.what}; the other host's server has printed: {output}")


class _Child:
    """A process that takes the steps of a trial. A context manager; leaving it kills the process.

    Parameters
    ----------
    pair : Pair
    trial : Trial
    steps : sequence of str
    """

    def __init__(self, pair: Pair, trial: Trial, steps: Sequence[str]) -> None:
        self.has_hung = False
        self._pair = pair
        self._steps = steps
        self._link, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # __exit__ closes it
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ucxstore.cli.doctor.pair.child"],
                stdin=theirs.fileno(),
                stdout=self._output,
                stderr=self._output,
                process_group=0,  # Ctrl-C reaches only this process, which then ends the other
            )
        order = {
            "host": pair.other.host,
            "control": pair.store.address,
            "secret": pair.secret.reveal().hex(),
            "timeout": pair.timeout,
            "seconds": pair.seconds,
            "trial": asdict(trial),
            "steps": list(steps),
        }
        self._link.sendall(f"{json.dumps(order)}\n".encode())

    def outcomes(self, until: float) -> Iterator[TrialStep]:
        """Yield the outcomes of the steps up to the first that fails."""
        limit = self._pair.timeout + STEP_SECONDS
        start = START_SECONDS
        received = b""
        for step in self._steps:
            begin = time.monotonic()
            deadline = begin + start + limit
            while b"\n" not in received:
                part = self._receive(min(deadline, until))
                if not part:
                    yield self._without_outcome(step, part, time.monotonic() - begin)
                    return
                received += part
            line, _, received = received.partition(b"\n")
            outcome = TrialStep(**json.loads(line))
            yield outcome
            if outcome.state == "failed":
                return
            start = 0.0

    def _receive(self, deadline: float) -> bytes | None:
        """Return more; nothing at the process's end, ``None`` if nothing comes in time."""
        ready, _, _ = select.select([self._link], [], [], max(deadline - time.monotonic(), 0.0))
        return self._link.recv(1 << 16) if ready else None

    def _without_outcome(self, step: str, part: bytes | None, spent: float) -> TrialStep:
        """Say why a step has no outcome.

        Parameters
        ----------
        step : str
        part : bytes or None
            As `_receive` has returned it.
        spent : float
            Seconds in this step.
        """
        if part is None:
            if spent < (self._pair.timeout + STEP_SECONDS) / 2:  # it may be slow, and has no fault
                why = f"this way had no more time, after {spent:.0f} s of this step"
                return TrialStep(step=step, state="not reached", what=why)
            self.has_hung = True
            why = f"it did not end within {spent:.0f} s"
        else:
            why = self._how_it_ended()
        output = self._tail()
        why = f"{why}; it has printed: {output}" if output else why
        return TrialStep(step=step, state="failed", what=why)

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(STEP_SECONDS)
            return f"the process was ended by {signal.Signals(-status).name}"
        except (ValueError, subprocess.TimeoutExpired):
            return "the process has ended"

    def _tail(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _OUTPUT_BYTES, max(size - _OUTPUT_BYTES, 0))
        return tail.decode(errors="replace").strip()

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._process.kill()
        self._process.wait()
        self._output.close()


def part(pair: Pair) -> None:
    """Tell the other host that all is done; if it is gone, that does not matter any more."""
    with suppress(UcxStoreError, CommandError, OSError):
        pair.asking.ask("done")
