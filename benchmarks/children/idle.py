"""A client that is connected, has read something, and does nothing until its input ends."""

import json
import sys

from ucxstore import UcxStore


def main() -> None:
    job = json.loads(sys.stdin.readline())
    with UcxStore(job["address"], ucx=job["ucx"], select_pipeline=False) as store:
        if store.get_sync(job["key"]) is None:
            raise AssertionError(f"{job['key']} is missing")
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
