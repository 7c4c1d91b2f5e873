"""Processes that connect at the same moment and stay: ``... network.crowd TASK``.

They are forked from this process, as those of `benchmarks.network.client`. It says when all are
there. For a line that it is given, it lets them begin, and answers with a list: the seconds until
each has read a value, or its error. They stay until its input ends.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import RedisClient
from ucxstore import UcxStore


def main(task: Mapping[str, Any]) -> None:
    # Some of numpy's threads, which do nothing.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded")
    begin, begin_theirs = os.pipe()
    stay, stay_theirs = os.pipe()
    answers = []
    for _ in range(task["clients"]):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                os.close(begin_theirs)
                os.close(stay_theirs)
                _visit(task, begin, stay, writing)
            finally:
                os._exit(0)
        os.close(writing)
        answers.append(reading)
    _say("ready")
    sys.stdin.readline()
    start = time.monotonic()
    os.close(begin_theirs)  # all read the end of the pipe
    outcomes = [_read(pipe) for pipe in answers]
    _say([one if isinstance(one, str) else one - start for one in outcomes])
    sys.stdin.read()


def _visit(task: Mapping[str, Any], begin: int, stay: int, answer: int) -> None:
    os.read(begin, 1)
    outcome: float | str
    try:
        held = _connect(task)
        outcome = time.monotonic()
    except Exception as error:
        held = None
        outcome = f"{type(error).__name__}: {error}"
    os.write(answer, json.dumps(outcome).encode())
    os.close(answer)
    os.read(stay, 1)
    del held


def _connect(task: Mapping[str, Any]) -> object:
    """Connect and read a value; return what keeps the connection."""
    out = bytearray(task["bytes"])
    if task["peer"] == "Redis":
        redis = RedisClient(task["address"], out)
        redis.get_into(task["key"])
        return redis
    store = UcxStore(task["address"], select_pipeline=False, **task["options"])
    if store.get_into_sync(task["key"], out) != len(out):
        raise AssertionError(f"{task['key']} is not of {len(out)} bytes")
    return store


def _read(pipe: int) -> float | str:
    with os.fdopen(pipe) as file:
        text = file.read()
    outcome: float | str = json.loads(text) if text else "it has died"
    return outcome


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
