"""What has become of tests that were run with our store, and of those of them with zarr's own."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass
class Outcomes:
    """How many tests have passed or were skipped, and which have failed."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def add(self, test: str, outcome: str, when: str) -> None:
        """Count a report of pytest's: a test has one for each of its parts."""
        if outcome == "failed":
            if test not in self.failed:
                self.failed.append(test)
        elif outcome == "skipped":
            self.skipped += 1
        elif when == "call":
            self.passed += 1

    def write(self, path: Path) -> None:
        """Write them, for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what a process of tests has written."""
        return cls(**json.loads(path.read_text()))


def differences(ours: Outcomes, theirs: Outcomes) -> list[str]:
    """Return the tests that fail with our store, and not with zarr's."""
    return [test for test in ours.failed if test not in theirs.failed]


def report(name: str, ours: Outcomes, theirs: Outcomes, used: Mapping[str, int]) -> str:
    """Return what to print of a project's tests.

    Parameters
    ----------
    name : str
        The project.
    ours, theirs : Outcomes
        With our store; and with zarr's, of what has failed with ours.
    used : mapping
        How many values were written to each kind of server.
    """
    lines = [
        f"\n==== {name}: {ours.passed} passed, {ours.skipped} skipped, {len(ours.failed)} failed; "
        + ", ".join(f"{count} values written to {kind}" for kind, count in used.items())
    ]
    different = differences(ours, theirs)
    alike = [test for test in ours.failed if test not in different]
    lines += [f"fails with zarr's stores, too: {test}" for test in alike]
    lines += [f"DIFFERS from zarr's stores: {test}" for test in different]
    if not any(used.values()):
        lines.append("NOTHING was written to a store of ours")
    return "\n".join(lines)
