"""A client process: ``python -m tests.faults.client RECORD TASK``, until its input ends."""

import faulthandler
import json
import os
import sys
import threading
from pathlib import Path

from tests.faults.history import Recorder
from tests.faults.workload import Client, Task


def main() -> None:
    """Run one client."""
    faulthandler.enable()
    client = Client(Task(**json.loads(sys.argv[2])), Recorder(Path(sys.argv[1])))

    def listen() -> None:
        os.read(0, 1)
        client.ending.set()
        # Nothing may take this long once the faults are over.
        faulthandler.dump_traceback_later(60, exit=True)

    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    client.run()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
