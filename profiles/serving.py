"""The server process of a case: ``python -m profiles.serving LOCATION OPTIONS``.

It prints its address. Then it reads commands from standard input, one a line: ``track FILE``, then
``stop``. It ends when the input ends.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ucxstore import Server
from ucxstore.copies.tracking import tracked


def main(location: str, options: dict[str, Any]) -> None:
    """Serve a location with these options."""
    with Server(location, **options) as server:
        _say({"address": server.address})
        for line in sys.stdin:
            command, _, capture = line.strip().partition(" ")
            if command != "track":
                raise ValueError(f"not a command: {line!r}")
            with tracked(Path(capture)) as resident:
                _say({})
                if sys.stdin.readline().strip() != "stop":
                    return
            _say({"resident": resident.peak - resident.before})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
