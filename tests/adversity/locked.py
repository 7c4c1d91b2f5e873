"""A tree with folders that a process without root's rights may not open."""

import os
from pathlib import Path

# A user without processes or files here.
NOBODY = 65534

# One is the first of all, one the last, one is deeper, and one has a name after its brother's keys.
LOCKED = ["a/b/locked", "lost+found", "~"]
SIZES = {"a/b/c/0": 5, "a/b/zarr.json": 6, "b": 7, "lost": 8, "zz/c/1": 9}


def locked_tree(root: Path) -> Path:
    """Make the tree, of zeros, and return its root."""
    for key, size in SIZES.items():
        write(root / key, size)
    for folder in LOCKED:
        write(root / folder / "key", 1000)
        lock(root / folder)
    return root


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def lock(folder: Path) -> None:
    """Make it a folder of another user's, or where we may not do that, of nobody's."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o700)
    else:
        folder.chmod(0)
