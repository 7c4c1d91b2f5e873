"""Register what to do in a forked child and at exit, in a defined order.

A forked child has one thread, and copies of what its parent's other threads used: locks that nobody
will release, sockets that belong to its parent's connections, UCX objects that it must not touch.
Each module makes its locks here, and registers how it resets itself in a child, and what it ends
when the interpreter exits.
"""

import atexit
import enum
import inspect
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

type _Reset = Callable[[], None]


class Exit(enum.IntEnum):
    """The steps at the interpreter's exit, in this order."""

    SCRATCH = 0  # needs connections to the servers
    CONNECTIONS = 1
    SERVERS = 2  # connections of this process may use them until then
    LOGS = 3  # last, to log how the others have ended


_resets: dict[object, Callable[[], _Reset | None]] = {}  # in the order in which they came
_ends: dict[Exit, dict[Callable[[], None], None]] = {each: {} for each in Exit}


_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a new lock, which nobody holds in a forked child.

    What it guards may be half changed there: if the child cannot use it like that, whoever owns it
    registers with `in_child` how it is reset.
    """
    made = threading.Lock()
    _locks.add(made)
    return made


def in_child(reset: Callable[[], None]) -> None:
    """Call `reset` in each forked child, before anything else runs there.

    Parameters
    ----------
    reset : callable
        A function, or a method, which does not keep its object alive. It must not block, nor raise.
        They are called in the order in which they were registered.
    """
    place = object()
    if inspect.ismethod(reset):
        # Not a WeakMethod: one that dies while the interpreter exits prints an error. For the same
        # reason the callback uses no global: it may be gone by then.
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
    """End what an object owns: when called, when the object is collected, or at exit.

    In a forked child it does nothing, since what it ends is the parent's.

    Parameters
    ----------
    owner : object
    what : Exit
        The step at exit in which it is called.
    end : callable
        Called with the seconds that it may take, perhaps more than once. It must not refer to
        `owner`.
    unattended : float
        The seconds for `end` if the object is collected, or still there at exit.
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
        """Whether this process has made the object, and is not a forked child."""
        return os.getpid() == self._pid

    def __call__(self, seconds: float) -> None:
        """End it now."""
        self.detach()
        if self.is_mine:
            self._end(seconds)

    def detach(self) -> None:
        """Never call `end` by itself: neither when the object is collected nor at exit."""
        self._finalize.detach()
        self._ends.pop(self._forgotten, None)

    def _forgotten(self) -> None:
        self(self._unattended)


# A module is imported in milliseconds. What takes longer must not keep a fork waiting for ever.
_FORK_WAITS = 1.0


def _before_fork() -> None:
    """Wait until no other thread imports a module of ours: a child could never import it."""
    deadline = time.monotonic() + _FORK_WAITS
    while is_importing() and time.monotonic() < deadline:
        time.sleep(1e-3)


def is_importing() -> bool:
    """Tell whether another thread imports a module of ours, whose lock it has."""
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    ours = [refer() for name, refer in list(locks.items()) if name.split(".")[0] == "ucxstore"]
    owners = {getattr(each, "owner", None) for each in ours}
    return not owners <= {None, threading.get_ident()}


def _after_fork_in_child() -> None:
    for each in list(_locks):
        each._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    for refer in list(_resets.values()):
        reset = refer()
        if reset is not None:
            reset()


def _before_exit() -> None:
    with ExitStack() as in_turn:  # goes on where one of them raises
        for what in reversed(Exit):
            for end in list(_ends[what]):  # the last one is called first
                in_turn.callback(end)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
atexit.register(_before_exit)
