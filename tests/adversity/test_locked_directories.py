"""Directories of this machine with folders that the user of a command may not open."""

from multiprocessing.connection import Connection
from pathlib import Path

from tests.adversity.locked import LOCKED, SIZES, lock, locked_tree
from tests.adversity.nursery import Nursery
from tests.adversity.servers import be_anybody, files_under
from ucxstore.cli import main


def copy_as_anybody(_: Connection, source: str, destination: str) -> None:
    be_anybody()
    main(["cp", source, destination])


def test_cp_from_a_folder_of_this_machine(nursery: Nursery, tmp_path: Path) -> None:
    root = locked_tree(tmp_path / "source")
    copied = tmp_path / "copied"
    child = nursery.start(copy_as_anybody, str(root), str(copied))
    assert child.wait() == 1
    assert f"copied {len(SIZES)} values, " in child.output
    assert child.output.count("you may not open this folder") == len(LOCKED)
    for folder in LOCKED:
        assert f"ucxstore cp: {folder}: you may not open this folder\n" in child.output
    assert files_under(copied) == set(SIZES)
    child = nursery.start(copy_as_anybody, str(root / "lost+found"), str(tmp_path / "nothing"))
    assert child.wait() == 1
    assert child.output.endswith("ucxstore cp: .: you may not open this folder\n")
    # What is there already is looked for in the destination, too.
    lock(copied / "a/b/c")
    (root / "a/b/c/0").unlink()
    child = nursery.start(copy_as_anybody, str(root), str(copied))
    assert child.wait() == 1
    assert f"{len(SIZES) - 1} were there" in child.output
