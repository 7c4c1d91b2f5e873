"""What a client process asks for, drawn at random, under faults that it knows nothing of."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype

from tests.eventually import nothing_happens
from tests.faults.chunks import Chunks, encode
from tests.faults.history import ADD, DELETE, GET, SET, Recorder
from tests.faults.values import LARGEST, MISSING, TORN, make, number_of, read_part, read_whole
from ucxstore import ServerRestartedError, UcxStore, UcxStoreError

# Seconds after which nobody uses a hot key any more, and others take its place. So the history of
# each is short enough to be searched, and keys are read that were not there before.
_PHASE = 15.0

_HOT, _COLD = 4, 40
_PARTS = (
    OffsetByteRequest(8),
    SuffixByteRequest(64),
    RangeByteRequest(16, 96),
    RangeByteRequest(0, 8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one client does.

    Attributes
    ----------
    process : int
        Its number, which no other has.
    address : str
    writes : bool
        Whether most of its operations write.
    own : int
        The number of the keys that it alone writes to, where it writes.
    timeout : float
        Seconds, for requests and for connecting.
    pause : float
        Seconds between two operations, in the mean.
    decoded : bool
        Whether values are encoded chunks, which servers decode.
    """

    process: int
    address: str
    writes: bool
    own: int
    timeout: float
    pause: float
    decoded: bool = False


class Client:
    """A client and its record.

    Parameters
    ----------
    task : Task
    recorder : Recorder
    """

    def __init__(self, task: Task, recorder: Recorder) -> None:
        self._task = task
        self._recorder = recorder
        self._random = random.Random(task.process)
        self._sequence = 0
        self._out = np.empty(LARGEST, "u1")
        self._chunks: Chunks | None = None
        self._store = self._open()
        self.ending = threading.Event()

    def run(self) -> None:
        """Carry out operations until `ending` is set."""
        while not self.ending.is_set():
            self._one()
            nothing_happens(self._random.expovariate(1 / self._task.pause))
        self._store.close()

    def _open(self) -> UcxStore:
        seconds = self._task.timeout
        store = UcxStore(self._task.address, timeout=seconds, connect_timeout=seconds)
        self._chunks = Chunks(store) if self._task.decoded else None
        return store

    def _one(self) -> None:
        kind = self._kind()
        key = self._key(alone=kind != GET)
        number = 0
        if kind in (SET, ADD):
            self._sequence += 1
            number = number_of(self._task.process, self._sequence)
        act = self._action(kind, key, number)
        self._recorder.begin(kind, key, number)
        try:
            found = act()
        except UcxStoreError as error:
            self._recorder.end(error=type(error).__name__, text=str(error))
            if isinstance(error, ServerRestartedError):
                # Until somebody has accepted the loss, this one raises, too.
                self._store.close()
                self._store = self._open()
            nothing_happens(self._random.uniform(0.02, 0.2))
        else:
            self._recorder.end(found)

    def _kind(self) -> str:
        if not self._task.writes:
            return GET
        return self._random.choices((SET, ADD, DELETE, GET), (68, 12, 8, 12))[0]

    def _key(self, *, alone: bool) -> str:
        phase = int(time.monotonic() / _PHASE)
        where = self._random.random()
        if where < 0.55:
            name = f"hot/{phase}/{self._random.randrange(_HOT)}"
        elif where < 0.75:
            name = f"cold/{self._random.randrange(_COLD)}"
        else:
            writer = self._task.own if alone else self._random.randrange(8)
            name = f"own/{writer}/{phase // 4}/{self._random.randrange(3)}"
        return name if self._chunks is None else self._chunks.key_of(name)

    def _action(self, kind: str, key: str, number: int) -> Callable[[], int]:
        store, chunks = self._store, self._chunks
        if kind == DELETE:
            return lambda: store.delete_sync(key) or 0
        if chunks is not None and kind == GET:
            return lambda: chunks.read(key, self._random)
        if kind == GET:
            read = self._random.choices(
                (self._get, self._get_into, self._get_part, self._get_parts, self._view),
                (40, 20, 15, 15, 10),
            )[0]
            return lambda: read(key)
        value = cpu.Buffer.from_array_like(make(number) if chunks is None else encode(number))
        if kind == ADD:
            return lambda: int(store.add_sync(key, value))
        return lambda: store.set_sync(key, value) or 0

    # ---- reads: each returns a number, `MISSING` or `TORN` ----

    def _get(self, key: str) -> int:
        value = self._store.get_sync(key)
        return MISSING if value is None else read_whole(_bytes(value))

    def _get_into(self, key: str) -> int:
        size = self._store.get_into_sync(key, self._out)
        return MISSING if size is None else read_whole(self._out[:size])

    def _get_part(self, key: str) -> int:
        part = self._random.choice(_PARTS)
        value = self._store.get_sync(key, byte_range=part)
        return MISSING if value is None else read_part(_bytes(value))

    def _get_parts(self, key: str) -> int:
        """Read parts of one value, which must be of one value."""
        prototype = default_buffer_prototype()
        values = None
        with suppress(FileNotFoundError):  # in a group, as zarr wants it
            values = self._store.get_ranges_sync(key, _PARTS, prototype=prototype)
        if values is None:
            return MISSING
        found = {MISSING if part is None else read_part(_bytes(part)) for _, part in values}
        return found.pop() if len(found) == 1 else TORN

    def _view(self, key: str) -> int:
        view = self._store.view_sync(key)
        if view is None:
            return MISSING
        with view:
            return read_whole(np.asarray(view))


def _bytes(value: cpu.Buffer) -> npt.NDArray[np.uint8]:
    return value.as_numpy_array().view("u1")
