"""Many clients that connect at the same moment.

``python -P benchmarks/children/connects.py TASK``. The clients are forked from this process, which
has imported what they need, and has neither connected nor loaded UCX. It says when all are there.
For a line that it is given it lets them begin, and answers with a list: the seconds until each has
read a value, or its error.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

from ucxstore import UcxStore


def main(task: Mapping[str, Any]) -> None:
    # Some of numpy's threads, which do nothing.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded")
    begin, begin_theirs = os.pipe()
    answers = [_fork(task, begin, begin_theirs) for _ in range(task["clients"])]
    os.close(begin)
    _say("ready")
    sys.stdin.readline()
    start = time.monotonic()
    os.close(begin_theirs)  # all read the end of the pipe
    found = []
    for pid, pipe in answers:
        with os.fdopen(pipe) as file:
            text = file.read()
        os.waitpid(pid, 0)
        outcome = json.loads(text) if text else "it has died"
        found.append(outcome if isinstance(outcome, str) else outcome - start)
    _say(found)


def _fork(task: Mapping[str, Any], begin: int, begin_theirs: int) -> tuple[int, int]:
    """Return the id of a client, and the pipe for its answer: the moment when it had the value."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    try:
        os.close(begin_theirs)
        os.read(begin, 1)
        os.write(writing, json.dumps(_connect(task)).encode())
    finally:
        os._exit(0)


def _connect(task: Mapping[str, Any]) -> float | str:
    try:
        store = UcxStore(task["address"], select_pipeline=False, **task["client"])
        if store.get_sync(task["key"]) is None:
            return f"{task['key']} is missing"
        return time.monotonic()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
