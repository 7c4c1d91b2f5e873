"""Waiting for what happens in another thread or process, without a fixed sleep."""

import time
from collections.abc import Callable


def eventually(
    condition: Callable[[], object], seconds: float = 60.0, pause: float = 0.005
) -> None:
    """Wait until `condition` holds, looking every `pause` seconds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s"
        time.sleep(pause)
