"""Client processes that get or set values at the same time: ``... network.client TASK``.

They are forked from this process, which has imported what they need and has neither connected nor
loaded UCX. It says when all have connected and have compared a value. Then it is given lines with
two moments of the monotonic clock, and answers with what all have done between them.
"""

import gc
import importlib
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import psutil

from benchmarks.network.content import keys, values
from benchmarks.peers import RedisClient

type Act = Callable[[str], object]

# So that no forked process imports them for itself.
_MODULES = {
    "ucxstore": ("ucxstore.base.native", "ucxstore.stores.store"),
    "Flight": ("pyarrow.flight",),
    "redis-py": ("redis",),
}

# All start at once, and the others take the processors.
_PATIENT = {"connect_timeout": 120, "timeout": 120}


class Actor(NamedTuple):
    """What a client can do with the server, and the streams that it has to it."""

    get: Act
    set: Act
    streams: Callable[[], int] = lambda: 1


def main(task: Mapping[str, Any]) -> None:
    if task["op"] == "fill":
        _fill(task)
        _say({"ready": True})
        return
    _import(task["peer"])
    # Some of numpy's threads, which do nothing.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded")
    clients = [_Client(task, number) for number in range(task["clients"])]
    streams = [client.hear() for client in clients]
    _say({"ready": True, "streams": streams[0]})
    for line in sys.stdin:
        for client in clients:
            client.say(line)
        _say(_joined([client.hear() for client in clients]))


def _joined(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what all have done together."""
    seconds = sorted(second for answer in answers for second in answer["seconds"])
    return {
        "done": len(seconds),
        # The sum of the clients' own rates, since they end at different moments.
        "rate": sum(len(answer["seconds"]) / answer["took"] for answer in answers),
        "p50": _percentile(seconds, 50),
        "p99": _percentile(seconds, 99),
        "cpu": sum(answer["cpu"] for answer in answers),
    }


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


class _Client:
    """A forked process, with a pipe to it and one from it."""

    def __init__(self, task: Mapping[str, Any], number: int) -> None:
        given, self._lines = os.pipe()
        self._answers, answers = os.pipe()
        if os.fork() == 0:
            try:
                os.close(self._lines)
                _serve_lines(task, number, os.fdopen(given), os.fdopen(answers, "w"))
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(0)
        os.close(given)
        os.close(answers)
        self._file = os.fdopen(self._answers)

    def say(self, line: str) -> None:
        os.write(self._lines, line.encode())

    def hear(self) -> Any:
        line = self._file.readline()
        if not line:
            raise EOFError("a client has ended")
        return json.loads(line)


def _serve_lines(task: Mapping[str, Any], number: int, lines: Any, answers: Any) -> None:
    out = bytearray(task["bytes"])
    actor = _open(task, out)
    known = keys(task["bytes"])
    random.seed(number)
    key = random.choice([*known])
    actor.get(key)
    if out != bytes([known[key]]) * len(out):
        raise AssertionError(f"{key}: the data came back wrong")
    order = random.choices([*known], k=4096)
    act = actor.get
    if task["op"] == "set":
        act = actor.set
        order = [f"set/{number}"]
        act(order[0])
    gc.disable()
    print(json.dumps(actor.streams()), file=answers, flush=True)
    for line in lines:
        print(json.dumps(_act_until(act, order, *json.loads(line))), file=answers, flush=True)


def _act_until(act: Act, order: list[str], begin: float, end: float) -> dict[str, Any]:
    seconds: list[float] = []
    time.sleep(max(begin - time.monotonic(), 0.0))
    before = time.process_time()
    begun = now = time.monotonic()
    while now < end:
        act(order[len(seconds) % len(order)])
        last, now = now, time.monotonic()
        seconds.append(round(now - last, 7))
    return {"seconds": seconds, "took": now - begun, "cpu": time.process_time() - before}


# ---- the peers ----


def _import(peer: str) -> None:
    for module in _MODULES.get(peer, ()):
        importlib.import_module(module)


def _fill(task: Mapping[str, Any]) -> None:
    """Give a server its values."""
    if task["peer"] in {"Redis", "redis-py"}:
        with closing(RedisClient(task["address"], bytearray(1))) as redis:
            for key, value in values(task["sizes"]).items():
                redis.set(key, value)
        return
    from ucxstore import UcxStore
    from ucxstore.base.zarr_compat import cpu

    with UcxStore(task["address"], select_pipeline=False, **task["options"]) as store:
        for key, value in values(task["sizes"]).items():
            store.set_sync(key, cpu.Buffer.from_bytes(value))


def _open(task: Mapping[str, Any], out: bytearray) -> Actor:
    actors = {
        "ucxstore": _ucxstore,
        "Redis": _redis,
        "redis-py": _redis_py,
        "Flight": _flight,
    }
    return actors[task["peer"]](task, out)


def _ucxstore(task: Mapping[str, Any], out: bytearray) -> Actor:
    from ucxstore import UcxStore
    from ucxstore.base.zarr_compat import cpu

    store = UcxStore(task["address"], select_pipeline=False, **task["options"], **_PATIENT)
    value = cpu.Buffer.from_bytes(bytes(out))
    return Actor(
        lambda key: store.get_into_sync(key, out),
        lambda key: store.set_sync(key, value),
        lambda: _streams_to(task["address"]),
    )


def _redis(task: Mapping[str, Any], out: bytearray) -> Actor:
    redis = RedisClient(task["address"], out)
    return Actor(redis.get_into, lambda key: redis.set(key, out))


def _redis_py(task: Mapping[str, Any], out: bytearray) -> Actor:
    import redis

    host, _, port = task["address"].rpartition(":")
    client = redis.Redis(host, int(port))
    value = bytes(out)
    checked = False

    def get(key: str) -> None:
        nonlocal checked
        found = client.get(key)
        if not checked:  # later values stay in the bytes that redis-py has made
            checked = True
            out[:] = found

    return Actor(get, lambda key: client.set(key, value))


def _flight(task: Mapping[str, Any], out: bytearray) -> Actor:
    import pyarrow
    from pyarrow import flight

    client = flight.connect(f"grpc://{task['address']}")
    table = pyarrow.table({"value": pyarrow.array([bytes(out)], pyarrow.large_binary())})
    checked = False

    def get(key: str) -> None:
        nonlocal checked
        found = client.do_get(flight.Ticket(key.encode())).read_all()
        if not checked:  # later values stay where Arrow has put them
            checked = True
            out[:] = found.column(0)[0].as_buffer()

    def put(key: str) -> None:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path(key), table.schema)
        with writer:
            writer.write_table(table)

    return Actor(get, put)


def _streams_to(address: str) -> int:
    """Count the connections of this process to a port."""
    port = int(address.rpartition(":")[2])
    mine = psutil.Process().net_connections(kind="tcp")
    return sum(bool(one.raddr) and one.raddr.port == port for one in mine)


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
