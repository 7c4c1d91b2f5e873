"""`ChunkClients`: threads that read and write the same chunks through zarr, for `tests.register`.

A chunk that is written is noise with a number added to each item. So each read tells which write it
has seen, and whether it has seen one alone. The noise makes chunks large after compression, too.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.core.sync import sync

from tests.eventually import eventually, nothing_happens
from tests.register import Op, is_linearizable
from ucxstore.base.errors import UcxStoreError

NAME = "a"

# A few chunks, of which a server with a limit of one MiB can keep two.
KEYS = 3
ITEMS = 48 * 1024
LIMIT = "1MiB"

_NOISE = np.random.default_rng(0).integers(1, 1 << 16, ITEMS)
_PATIENCE = 120.0  # seconds, for an operation
_LEAST = 8  # operations on a key
_CHANGES = ("write", "write", "delete")
_MOST = 300  # operations of a client, so that histories can be searched


def make_array(store: Store, *, sharded: bool) -> None:
    """Create an array whose chunks are missing; those of a sharded one are in shards of three."""
    size = {"chunks": (ITEMS // 3,), "shards": (ITEMS,)} if sharded else {"chunks": (ITEMS,)}
    zarr.create_array(
        store,
        name=NAME,
        shape=(KEYS * ITEMS,),
        dtype="i8",
        fill_value=0,
        compressors=ZstdCodec(level=1),
        **size,
    )


def _read(array: zarr.Array, begin: int, end: int) -> npt.NDArray[np.int64]:
    found = array[begin:end]
    assert isinstance(found, np.ndarray)
    return found


class ChunkClients:
    """Threads that read, write and delete chunks through a store each, and note what they did.

    Parameters
    ----------
    stores : sequence of Store
    seed : int
    first : int
        The number of the first client, whose numbers no other clients of the array have.
    share_of_reads : float
        Of their operations.
    """

    def __init__(
        self, stores: Sequence[Store], seed: int, first: int = 1, *, share_of_reads: float = 0.7
    ) -> None:
        self._share = share_of_reads
        self.history: dict[int, list[Op]] = {key: [] for key in range(KEYS)}
        self.failed: list[Exception] = []
        self._wrong: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=(store, random.Random(seed + at), at), name=f"{at}: {store}"
            )
            for at, store in enumerate(stores, first)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)

    def work(self, seconds: float) -> None:
        """Let them go on for so long, or on a busy machine until something was done."""
        before = {at: len(history) for at, history in self.history.items()}
        nothing_happens(seconds)
        eventually(
            lambda: (
                all(len(self.history[at]) - before[at] > _LEAST for at in before)
                or not any(thread.is_alive() for thread in self._threads)
            )
        )

    def add(self, others: "ChunkClients") -> None:
        """Take the history of others, which have ended."""
        for key, history in others.history.items():
            self.history[key] += history
        self.failed += others.failed
        self._wrong += others._wrong

    def check(self, seed: int) -> None:
        """See that each key has an order of the operations that explains all reads."""
        assert not self._wrong, f"{self._wrong[0]}, seed {seed}"
        for key, history in self.history.items():
            assert sum(not op.writes for op in history) >= _LEAST // 2
            assert any(op.writes for op in history)
            assert is_linearizable(history), f"chunk {key}, seed {seed}"

    def _run(self, store: Store, chance: random.Random, client: int) -> None:
        array: Any = None
        for count in range(1, _MOST):
            if self._stop.is_set():
                return
            try:
                array = array or zarr.open_array(store, path=NAME, mode="r+", zarr_format=3)
            except (UcxStoreError, OSError) as error:
                self.failed.append(error)
                continue
            key = chance.randrange(KEYS)
            what = "read" if chance.random() < self._share else chance.choice(_CHANGES)
            number = client << 16 | count if what == "write" else None
            self._note(key, what != "read", number, self._action(array, key, what, number, chance))
            nothing_happens(chance.random() * 0.01)

    def _note(
        self, key: int, writes: bool, number: int | None, act: Callable[[], int | None]
    ) -> None:
        begin = time.monotonic()
        try:
            found = act()
        except (UcxStoreError, OSError) as error:
            self.failed.append(error)
            if writes:
                self.history[key].append(Op(begin, math.inf, True, _as_value(number)))
        except Exception as error:  # a codec's, or an assertion
            self._wrong.append(f"chunk {key} in {threading.current_thread().name}: {error!r}")
        else:
            value = _as_value(number if writes else found)
            self.history[key].append(Op(begin, time.monotonic(), writes, value))

    def _action(
        self, array: zarr.Array, key: int, what: str, number: int | None, chance: random.Random
    ) -> Callable[[], int | None]:
        begin, end = key * ITEMS, (key + 1) * ITEMS
        if what == "read":
            left, right = sorted(chance.sample(range(0, ITEMS + 1, 64), 2))
            some = (left, right) if chance.random() < 0.4 else (0, ITEMS)
            return lambda: number_in(_read(array, begin + some[0], begin + some[1]), some[0])
        if number is None:
            return lambda: sync(array.store.delete(f"{NAME}/c/{key}"))
        values = _NOISE + number
        return lambda: array.__setitem__(slice(begin, end), values)


def number_in(found: npt.NDArray[np.int64], at: int = 0) -> int | None:
    """Return the number of the write that was read; ``None`` where the chunk is missing."""
    if not found.any():
        return None
    numbers = found - _NOISE[at : at + found.size]
    assert (numbers == numbers[0]).all(), f"parts of {sorted(set(numbers.tolist()))[:5]}"
    return int(numbers[0])


def _as_value(number: int | None) -> bytes | None:
    return None if number is None else str(number).encode()
