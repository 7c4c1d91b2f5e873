"""`Clients`: threads that read and write the same keys, for the checks of `tests.register`."""

import math
import random
import threading
import time

from tests.eventually import nothing_happens
from tests.register import Op, is_linearizable
from tests.values import read, write
from ucxstore import UcxStore
from ucxstore.base.errors import UcxStoreError

KEYS = ("p/a", "p/b", "q")


class Clients:
    """Threads that read and write a few keys through a store each, and note what they did."""

    def __init__(self, stores: list[UcxStore], seed: int) -> None:
        self.history: dict[str, list[Op]] = {key: [] for key in KEYS}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(store, random.Random(seed + at), at))
            for at, store in enumerate(stores)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, store: UcxStore, chance: random.Random, client: int) -> None:
        for count in range(400):
            if self._stop.is_set():
                return
            key = chance.choice(KEYS)
            what = chance.choice(["read"] * 6 + ["write"] * 2 + ["delete"])
            value = f"{client}/{count}".encode() if what == "write" else None
            begin = time.monotonic()
            try:
                if what == "read":
                    value = read(store, key)
                elif value is not None:
                    write(store, key, value)
                else:
                    store.delete_sync(key)
            except (UcxStoreError, OSError):
                if what != "read":
                    self.history[key].append(Op(begin, math.inf, True, value))
                continue
            self.history[key].append(Op(begin, time.monotonic(), what != "read", value))
            nothing_happens(chance.random() * 0.02)

    def check(self, seed: int) -> None:
        """See that each key has an order of the operations that explains all reads."""
        for key, history in self.history.items():
            assert sum(not op.writes for op in history) > 20
            assert is_linearizable(history), f"{key}, seed {seed}"
