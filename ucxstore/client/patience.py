"""`Patience`: the pauses between tries to connect to a server that is not there yet."""

import random
import time
from collections.abc import Callable

from ucxstore.base import logs
from ucxstore.base.errors import ConnectError, ServerLostError

# Seconds. Pauses grow from the first to the longest: a server that starts is soon reached, and many
# clients that wait for one cost it little. Each is drawn from half to one and a half of that, so
# that clients that began together do not try together.
_FIRST = 0.1
_LONGEST = 1.0
_GROWTH = 1.6

# Seconds for the last try, at the end of the time.
_LAST_TRY = 0.2

# It is said after so many tries that somebody waits: what is there in a moment is not worth a word.
_SILENT_TRIES = 2


def _tell_nobody(text: str) -> None:
    """Tell nobody: what waits is no command."""


# Told, once for each wait, that a try is followed by others. Commands print it.
tell: Callable[[str], object] = _tell_nobody


class Patience:
    """How long to try to connect, and when to try again.

    Parameters
    ----------
    seconds : float
        From now on, for all tries and the pauses between them.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self._pause = _FIRST
        self._tries = 0

    def left(self) -> float:
        """Return the seconds left, always above 0."""
        return max(self.deadline - time.monotonic(), 1e-3)

    def wait(self, error: ConnectError | ServerLostError, until: float) -> bool:
        """Wait for the moment of the next try.

        Parameters
        ----------
        error : ConnectError or ServerLostError
            What has come of the last one.
        until : float
            When to give up, by `time.monotonic`.

        Returns
        -------
        bool
            Whether there is time for another try; if not, at once.
        """
        left = until - time.monotonic()
        if left <= _LAST_TRY:
            return False
        pause = min(self._pause * random.uniform(0.5, 1.5), left - _LAST_TRY)
        self._pause = min(self._pause * _GROWTH, _LONGEST)
        self._tries += 1
        if self._tries == _SILENT_TRIES:
            text = f"{error}; trying again for up to {left:.0f} s"
            logs.client.warning("%s", text, extra={"event": "waiting"})
            tell(text)
        time.sleep(pause)
        return True
