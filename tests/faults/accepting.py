"""Accept losses: ``python -m tests.faults.accepting ADDRESS``, one for each line of its input.

A process that is there all the time, as starting one may take longer than what it is to do.
"""

import sys

from ucxstore import UcxStore, UcxStoreError

_TRIES = 10


def main() -> None:
    """Answer each line with one."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(_accept(sys.argv[1]), flush=True)


def _accept(address: str) -> str:
    problem = ""
    for _ in range(_TRIES):
        try:
            with UcxStore(address, timeout=10, connect_timeout=10) as store:
                store.accept_restarted_sync()
        except UcxStoreError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            return "accepted"
    return f"refused {problem}"


if __name__ == "__main__":
    main()
