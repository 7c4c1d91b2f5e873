"""Loggers of ucxstore, and the thread that logs the native core's events.

The tree is ``ucxstore``, with ``ucxstore.client``, ``ucxstore.cluster`` and ``ucxstore.server``
below. It is silent unless the program configures logging. The core's threads never call Python:
they queue events, if there is a handler, and a Python thread logs them. Events that do not fit in
the queue are dropped, and their number is logged.

Whether there is a handler is looked up when a store connects and when a server starts. After a
later change of the configuration, call `refresh`.
"""

import json
import logging
import math
import os
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal

from ucxstore.base import process
from ucxstore.base.keys import shorten_space
from ucxstore.base.showing import printable

if TYPE_CHECKING:
    from types import ModuleType

type Format = Literal["text", "json"]

root = logging.getLogger("ucxstore")
client = root.getChild("client")
cluster = root.getChild("cluster")
server = root.getChild("server")

# The default, in seconds. A large batch over a slow network takes seconds, too.
_SLOW_REQUEST = 5.0
_SLOW_REQUEST_VARIABLE = "UCXSTORE_SLOW_REQUEST"

# Above any level: nothing is logged.
_OFF = 1_000_000

_EXIT_SECONDS = 1.0

# How often to look whether there is something to say of lines that were held back.
_TELL_SECONDS = 5.0

# The fields that a record may have besides its message. Lines of JSON have them, too.
FIELDS = ("event", "peer", "key", "count", "bytes", "seconds", "detail")

_MESSAGES = {
    ("client", "connected"): "connected to %(peer)s by %(detail)s",
    ("client", "closed"): "closed the connection to %(peer)s",
    ("client", "lost"): "lost %(peer)s with %(count)d requests in flight: %(detail)s",
    ("client", "slow_request"): (
        "a slow request to %(peer)s: %(seconds).3g s for %(count)d keys and %(bytes)d bytes, from "
        "'%(key)s' on"
    ),
    ("server", "connected"): "%(peer)s has connected by %(detail)s",
    ("server", "closed"): "%(peer)s has closed its connection",
    ("server", "lost"): "lost %(peer)s: %(detail)s",
    ("server", "refused"): "refused a message of %(peer)s: %(detail)s",
    ("server", "evicted"): "%(detail)s has evicted %(count)d values of %(bytes)d bytes",
    ("server", "kicked"): "ended the session of %(peer)s, as an operator has asked",
    ("server", "request"): (
        "%(peer)s: %(detail)s '%(key)s', keys: %(count)d, bytes: %(bytes)d, %(seconds).3g s"
    ),
}

# The core's events that a peer can cause without end, in the plural.
_REFUSALS = {"refused": "refused messages", "lost": "lost sessions"}

root.addHandler(logging.NullHandler())


def slow_request() -> float:
    """Return after how many seconds a request is reported as slow; 0 for never.

    It is 5, or what ``UCXSTORE_SLOW_REQUEST`` says in the environment.
    """
    text = os.environ.get(_SLOW_REQUEST_VARIABLE)
    if not text:
        return _SLOW_REQUEST
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    root.warning("%s: %r is not a number of seconds", _SLOW_REQUEST_VARIABLE, text)
    return _SLOW_REQUEST


def level_of(logger: logging.Logger) -> int:
    """Return the lowest level that a handler takes from a logger; huge if there is no handler."""
    handlers = [
        handler.level
        for handler in _handlers(logger)
        if not isinstance(handler, logging.NullHandler)
    ]
    return max(logger.getEffectiveLevel(), min(handlers)) if handlers else _OFF


def refresh() -> None:
    """Look up which loggers have handlers; the core queues events for these alone."""
    _listener.refresh()


def configure(level: int, form: Format = "text", stream: IO[str] | None = None) -> None:
    """Log everything to a stream. Programs call this, libraries do not.

    Parameters
    ----------
    level : int
        The lowest level that ``ucxstore`` logs. Of other libraries, warnings are logged.
    form : {"text", "json"}
        Lines to read, or a JSON object a line.
    stream : file, optional
        Standard error, if it is not given.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(
        JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    root.setLevel(level)


class RateLimit:
    """Let events through, but not too many: who writes a log must not fill a disk.

    Parameters
    ----------
    burst : int
        Events that may come at once.
    seconds : float
        For so long each of them counts.
    """

    def __init__(self, burst: int = 20, seconds: float = 60.0) -> None:
        self._burst = burst
        self._pace = burst / seconds
        self._left = float(burst)
        self._looked = -math.inf
        self._held_back = 0
        self._lock = process.lock()

    def admit(self) -> int | None:
        """Return how many were held back since the last one; ``None`` to hold this one back."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._burst, self._left + (now - self._looked) * self._pace)
            self._looked = now
            if self._left < 1:
                self._held_back += 1
                return None
            self._left -= 1
            held_back, self._held_back = self._held_back, 0
            return held_back


class Refusals:
    """Log what peers can cause without end: some of each kind, and then how many more there were.

    Parameters
    ----------
    burst : int
        Lines of a kind in `seconds`.
    of_origin : int
        Those of them that are about one origin.
    seconds : float
        How long they count. After that, one line more says how many were held back.
    clock : callable
    """

    _MOST_ORIGINS = 10_000  # that are told apart

    def __init__(
        self,
        burst: int = 10,
        of_origin: int = 3,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._of_origin = of_origin
        self._seconds = seconds
        self._clock = clock
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._lock = process.lock()

    def log(
        self,
        level: int,
        kind: str,
        origin: str,
        message: str,
        *arguments: object,
        extra: Mapping[str, object] | None = None,
        exc_info: bool = False,
    ) -> None:
        """Log a line, or count it.

        Parameters
        ----------
        level : int
        kind : str
            What it is about, in the plural.
        origin : str
            From where the peer comes.
        message : str
        *arguments : object
            Of the message.
        extra : mapping, optional
            Fields of the record.
        exc_info : bool
            Whether to add the exception that is handled now.
        """
        if server.isEnabledFor(level) and self.admits(level, kind, origin):
            server.log(level, message, *arguments, extra=extra, exc_info=exc_info)

    def admits(self, level: int, kind: str, origin: str) -> bool:
        """Tell whether to log a line; if not, count it. Its arguments are those of `log`."""
        self.tell()
        with self._lock:
            one = self._kinds.setdefault((kind, level), _Kind(self._clock()))
            of_origin = one.admitted[origin]
            if one.admitted.total() < self._burst and of_origin < self._of_origin:
                one.admitted[origin] += 1
                return True
            one.held_back += 1
            if len(one.origins) < self._MOST_ORIGINS:
                one.origins.add(origin)
            return False

    def tell(self, *, at_once: bool = False) -> None:
        """Say how many lines were held back, of kinds whose time is over, or of all."""
        now = self._clock()
        with self._lock:
            over = {
                key: one
                for key, one in self._kinds.items()
                if at_once or now - one.begun >= self._seconds
            }
            for key in over:
                del self._kinds[key]
        for (kind, level), one in over.items():
            if one.held_back:
                count = len(one.origins)
                server.log(
                    level,
                    "%s: and %d more in the last %.0f s, from %d %s",
                    kind,
                    one.held_back,
                    now - one.begun,
                    count,
                    "address" if count == 1 else "addresses",
                    extra={"event": "held_back", "count": one.held_back, "detail": kind},
                )


@dataclass(slots=True)
class _Kind:
    begun: float
    admitted: Counter[str] = field(default_factory=Counter)  # by origin
    held_back: int = 0
    origins: set[str] = field(default_factory=set)  # of these


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger and message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds, fraction = divmod(record.created, 1)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(fraction * 1e6):06d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Listener:
    """Log what the core queues, in a thread that starts once there is a handler."""

    def __init__(self) -> None:
        self._lock = process.lock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def refresh(self) -> None:
        from ucxstore.base.native import core  # not before it is needed

        levels = level_of(client), level_of(server)
        wanted = min(levels) < _OFF
        with self._lock:
            if self._stopping or (not wanted and self._thread is None):
                return
            core.log_slow_request(slow_request())
            core.log_listen(*levels)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(core,), name="ucxstore-log", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Log what is queued, and end the thread."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is None:
            return
        from ucxstore.base.native import core

        core.log_listen(_OFF, _OFF)
        core.log_wake()
        thread.join(_EXIT_SECONDS)  # a handler that hangs does not keep the process

    def _run(self, core: "ModuleType") -> None:
        poll = select.poll()
        poll.register(core.log_fileno(), select.POLLIN)
        while not self._stopping:
            poll.poll(_TELL_SECONDS * 1000)
            _log_all(*core.log_take())
            refusals.tell()
        _log_all(*core.log_take())
        refusals.tell(at_once=True)


def _log_all(events: list[dict[str, Any]], dropped: int) -> None:
    for event in events:
        _log(event)
    if dropped:
        root.warning("%d events dropped", dropped, extra={"event": "dropped", "count": dropped})


def _log(event: Mapping[str, Any]) -> None:
    logger = root.getChild(event["area"])
    if not logger.isEnabledFor(event["level"]):
        return
    event = {**event, "key": shorten_space(event["key"])}  # who knows a name can use the space
    fields = {"event": event["kind"]}
    fields |= {name: event[name] for name in FIELDS if event.get(name)}
    texts = {name: printable(value) for name, value in event.items() if isinstance(value, str)}
    message = _MESSAGES[event["area"], event["kind"]] % {**event, **texts}
    record = logger.makeRecord(
        logger.name, event["level"], "native core", 0, message, (), None, extra=fields
    )
    record.created = event["time"]  # it may have been queued for a while
    record.msecs = event["time"] % 1 * 1000
    if (
        event["area"] != "server"
        or event["kind"] not in _REFUSALS
        or refusals.admits(
            event["level"], _REFUSALS[event["kind"]], event["peer"].rpartition(":")[0]
        )
    ):
        logger.handle(record)


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    at: logging.Logger | None = logger
    while at is not None:
        yield from at.handlers
        at = at.parent if at.propagate else None


refusals = Refusals()
_listener = _Listener()


def _start_anew_in_child() -> None:
    """Forget the parent's thread. The core forgets the parent's queue by itself."""
    global _listener, refusals
    _listener, refusals = _Listener(), Refusals()


def _stop_at_exit() -> None:
    _listener.stop()


process.in_child(_start_anew_in_child)
process.at_exit(process.Exit.LOGS, _stop_at_exit)
