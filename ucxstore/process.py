"""What this process does in a forked child and at its exit, in one place and in a defined order.

A forked child has one thread, and copies of what its parent's other threads had in hand: locks
that nobody will release, sockets that its parent's peers wait for, UCX objects that it must not
touch. Each module says here how it starts anew, and what it ends when the interpreter exits.
"""

import atexit
import enum
import inspect
import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

type _Reset = Callable[[], None]


class Exit(enum.IntEnum):
    """What ends when the interpreter exits, in this order."""

    SCRATCH = 0  # while there are connections to tell servers with
    CONNECTIONS = 1
    SERVERS = 2  # which this process's own connections may have used until then
    LOGS = 3  # of how all of these have ended


_resets: dict[object, Callable[[], _Reset | None]] = {}  # in the order in which they came
_ends: dict[Exit, dict[Callable[[], None], None]] = {each: {} for each in Exit}


def in_child(reset: Callable[[], None]) -> None:
    """Call `reset` in each forked child, before anything else runs there.

    Parameters
    ----------
    reset : callable
        A function, or a method: that is called for as long as its object lives, and keeps it no
        longer. Must not block, nor raise. The first one that was given is the first to be called.
    """
    place = object()
    if inspect.ismethod(reset):
        # Not a WeakMethod: one that dies while the interpreter exits prints an error. And with
        # nothing global in the callback, which may be gone by then.
        forget = _resets.pop
        owner = weakref.ref(reset.__self__, lambda _: forget(place, None))
        function = reset.__func__

        def bound() -> _Reset | None:
            alive = owner()
            return None if alive is None else partial(function, alive)

        _resets[place] = bound
    else:
        _resets[place] = lambda: reset


def at_exit(what: Exit, end: Callable[[], None]) -> None:
    """Call `end`, a function, when the interpreter exits; in a forked child, too."""
    _ends[what][end] = None


class Finalizer:
    """Ends what an object has: when called, when the object is forgotten, or at exit.

    In a forked child it does nothing, since all of it is the parent's.

    Parameters
    ----------
    owner : object
    what : Exit
        Says when its turn is at exit.
    end : callable
        Called with the seconds that it may take; more than once, perhaps. Must not refer to
        `owner`.
    unattended : float
        Seconds for an object that was forgotten, or is still there at exit.
    """

    def __init__(
        self, owner: object, what: Exit, end: Callable[[float], None], unattended: float
    ) -> None:
        self._pid = os.getpid()
        self._end = end
        self._unattended = unattended
        self._ends = _ends[what]
        self._ends[self._forgotten] = None
        self._finalize = weakref.finalize(owner, self._forgotten)
        self._finalize.atexit = False

    @property
    def is_mine(self) -> bool:
        """Whether this process is the one that has made the object, and no child of it."""
        return os.getpid() == self._pid

    def __call__(self, seconds: float) -> None:
        """End it now."""
        self.detach()
        if self.is_mine:
            self._end(seconds)

    def detach(self) -> None:
        """Let it go on, whatever becomes of the object and of this process."""
        self._finalize.detach()
        self._ends.pop(self._forgotten, None)

    def _forgotten(self) -> None:
        self(self._unattended)


def _after_fork_in_child() -> None:
    for refer in list(_resets.values()):
        reset = refer()
        if reset is not None:
            reset()


def _before_exit() -> None:
    with ExitStack() as in_turn:  # which goes on where one of them raises
        for what in reversed(Exit):
            for end in list(_ends[what]):  # of those, the last one is the first to be called
                in_turn.callback(end)


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_before_exit)
