"""One of many clients: get values into memory of its own, for a time that all begin together.

``python -P benchmarks/children/client.py TASK``. It says when it is ready. Then it is given lines
with two moments of the monotonic clock: when to begin, and when to end. To each it answers with how
many gets it has done in that time, with their times in microseconds, and with its processor time.
"""

import gc
import json
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

type Get = Callable[[str], object]


def main(task: Mapping[str, Any]) -> None:
    opened = {"ucxstore": _ucxstore, "Redis": _redis, "LMDB": _lmdb}[task["peer"]]
    out = bytearray(task["nbytes"])
    keys = [*task["bytes"]]
    random.seed(task["number"])
    with opened(task, out) as get:
        for key in random.sample(keys, min(4, len(keys))):
            get(key)
            if set(out) != {task["bytes"][key]}:
                raise AssertionError(f"{key}: the data came back wrong")
        gc.disable()
        _say("ready")
        for line in sys.stdin:
            begin, end = json.loads(line)
            _say(_get_until(get, keys, begin, end))


def _get_until(get: Get, keys: list[str], begin: float, end: float) -> dict[str, Any]:
    order = random.choices(keys, k=4096)
    microseconds: list[float] = []
    time.sleep(max(begin - time.monotonic(), 0.0))
    before = time.process_time()
    now = time.monotonic()
    while now < end:
        get(order[len(microseconds) % len(order)])
        last, now = now, time.monotonic()
        microseconds.append(round((now - last) * 1e6, 1))
    # The last one may have ended long after that.
    done = len(microseconds) - (now > end)
    return {"done": done, "microseconds": microseconds, "cpu": time.process_time() - before}


@contextmanager
def _ucxstore(task: Mapping[str, Any], out: bytearray) -> Iterator[Get]:
    from ucxstore import UcxStore

    # Not within the default 5 s: where all start at once, the others take the processors.
    options = {**task["client"], "connect_timeout": 120, "timeout": 120}
    with UcxStore(task["address"], select_pipeline=False, read_only=True, **options) as store:
        yield lambda key: store.get_into_sync(key, out)
        lanes = store.stats()["lanes"]
    if (lanes == ["local"]) != (task["client"]["local"] == "auto"):
        raise AssertionError(f"it went by {lanes}")


@contextmanager
def _redis(task: Mapping[str, Any], out: bytearray) -> Iterator[Get]:
    head = b"$%d\r\n" % len(out)
    # The value and what is around it; it is received into this memory, and stays there.
    answer = memoryview(bytearray(len(head) + len(out) + 2))
    commands = {
        key: b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key.encode()) for key in task["bytes"]
    }
    checked: list[str] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(task["address"])

        def get(key: str) -> None:
            connection.sendall(commands[key])
            done = 0
            while done < len(answer):
                received = connection.recv_into(answer[done:])
                if received == 0:
                    raise EOFError("Redis has ended the connection")
                done += received
            if len(checked) < 4:  # `main` looks at `out` as often
                checked.append(key)
                out[:] = answer[len(head) : -2]

        yield get


@contextmanager
def _lmdb(task: Mapping[str, Any], out: bytearray) -> Iterator[Get]:
    import lmdb

    place = memoryview(out)
    with lmdb.open(task["address"], readonly=True, **task["client"]) as environment:

        def get(key: str) -> None:
            with environment.begin(buffers=True) as transaction:
                place[:] = transaction.get(key.encode())

        yield get


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
