"""How many descriptors a process has, and may have."""

import subprocess
import sys

# In a process of its own: threads of others open and close some at any time.
CODE = """
import os
from ucxstore.server.accepting.shortage import open_files
before, limit = open_files()
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
assert open_files() == (before + len(opened), limit), open_files()
for descriptor in opened:
    os.close(descriptor)
assert open_files() == (before, limit), open_files()
"""


def test_each_one_counts() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)
