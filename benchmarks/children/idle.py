"""A client that is connected, has read something, and does nothing until its input ends."""

import json
import sys

from ucxstore import UcxStore


def main() -> None:
    task = json.loads(sys.stdin.readline())
    with UcxStore(task["address"], select_pipeline=False, **task["client"]) as store:
        if store.get_sync(task["key"]) is None:
            raise AssertionError(f"{task['key']} is missing")
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
