"""The checker of histories: build it, run it, and read what it says."""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.history import Operation, write_history

_SOURCE = Path(__file__).parent / "check"
_PROGRAM = Path("build/faults/check").absolute()


def why_not() -> str | None:
    """Say what is missing to build the checker, if anything is."""
    if shutil.which("go") is None:
        return "the checker of histories is a Go program, and there is no Go here"
    return None


def build() -> Path:
    """Build the checker where it is not up to date; return the program."""
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(_PROGRAM), "."]
    subprocess.run(command, cwd=_SOURCE, check=True, timeout=600)
    return _PROGRAM


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found.

    Attributes
    ----------
    keys : int
        How many have been checked.
    operations : int
    violations : list of str
        Of keys whose history is not linearizable: the key, and the first read that shows it.
    unknown : int
        Keys whose history takes too long to search.
    """

    keys: int
    operations: int
    violations: list[str]
    unknown: int


def check(
    operations: Iterable[Operation], folder: Path, *, shared: bool, program: Path | None = None
) -> Verdict:
    """Check a history.

    Parameters
    ----------
    operations : iterable of Operation
    folder : Path
        Where the history is written, and pictures of violations.
    shared : bool
        Whether servers stand in for one another.
    program : Path, optional
        The checker, if it is built already.

    Raises
    ------
    RuntimeError
        If the checker fails.
    """
    history = folder / "history.tsv"
    write_history(history, operations, shared=shared)
    options = ["-pictures", str(folder), *(["-shared"] if shared else [])]
    done = subprocess.run(
        [str(program or build()), *options, str(history)], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    if done.stderr or not lines or not lines[-1].startswith("checked\t"):
        raise RuntimeError(f"the checker failed ({done.returncode}): {done.stderr}")
    keys, count, _, unknown = (int(field.split()[0]) for field in lines[-1].split("\t")[1:])
    violations = [line.partition("\t")[2] for line in lines if line.startswith("violation\t")]
    return Verdict(keys, count, violations, unknown)
