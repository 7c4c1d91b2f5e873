"""Trip wires of the library `trip.c`: a process hurts itself at an exact byte of its sockets."""

import ctypes
from dataclasses import dataclass
from enum import IntEnum, IntFlag


class Event(IntEnum):
    """What is counted."""

    CONNECT = 1  # made or accepted: `after` is 0 before the call, 1 after it
    SEND = 2
    RECEIVE = 3


class Sockets(IntFlag):
    """The sockets whose bytes are counted."""

    CONTROL = 1  # the connection of the handshake
    DATA = 2  # other TCP
    UNIX = 4


class Action(IntEnum):
    """How the process hurts itself."""

    KILL = 0
    STOP = 1
    RESET = 2
    DROP = 3
    REPEAT = 4
    FLIP = 5


@dataclass(frozen=True, slots=True)
class Trip:
    """A wire to trip over.

    Parameters
    ----------
    event : Event
    sockets : Sockets
    after : int
        Bytes that pass before.
    action : Action
    amount : int
        Bytes that are dropped or repeated.
    """

    event: Event
    sockets: Sockets
    after: int
    action: Action
    amount: int = 0

    def arm(self, port: int) -> None:
        """Arm it in this process; `port` is that of the control connection."""
        arm = ctypes.CDLL(None).arm
        arm.argtypes = [ctypes.c_int] * 3 + [ctypes.c_long, ctypes.c_int, ctypes.c_long]
        arm.restype = None
        arm(self.event, self.sockets, port, self.after, self.action, self.amount)


def disarm() -> None:
    """Let nothing more happen in this process."""
    ctypes.CDLL(None).arm(0, 0, 0, 0, 0, 0)


def tripped() -> int:
    """Return how often this process has tripped and lived."""
    return int(ctypes.CDLL(None).tripped())
