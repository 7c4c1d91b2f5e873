"""Run xarray's, dask's and cubed's own tests of zarr, with our store in place of zarr's.

    python -m tests.neighbours [PROJECT...] [-- ARGUMENT...]

The arguments are pytest's. In the processes of the tests, zarr's `LocalStore` and `MemoryStore` are
`UcxStore`s: `stores.py` says how. What fails is run once more with zarr's own stores. A test that
fails with these, too, shows no difference. The status is 0 if there is none.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tests.neighbours.outcomes import Outcomes, differences, report
from ucxstore.server import Server

# pytest's statuses of a run whose tests have been run: whatever went wrong is in its outcomes.
_RUN = {0, 1}

# Where the tests are, and which of them. Those of cubed nearly all store their intermediates. Left
# out are those marked as slow, of networks and of clouds, and those that measure memory. Those of
# cubed on Dask, too: with the Dask of constraints.txt they end in "Cluster has no workers running",
# whatever the store is.
PROJECTS = {
    "xarray": (
        [
            "xarray/tests/test_backends.py",
            "xarray/tests/test_backends_api.py",
            "xarray/tests/test_backends_datatree.py",
            "xarray/tests/test_distributed.py",
        ],
        ["-k", "zarr", "-m", "not network"],
    ),
    "dask": (["dask/array/tests/test_array_core.py"], ["-k", "zarr"]),
    "cubed": (
        ["cubed/tests"],
        ["-k", "not mem_utilization and not dask", "-m", "not slow and not cloud"],
    ),
}


def main(argv: Sequence[str]) -> int:
    """Run the tests of some projects, or of all; return 1 if there is a difference."""
    names, arguments = list(argv), []
    if "--" in names:
        end = names.index("--")
        names, arguments = names[:end], names[end + 1 :]
    if unknown := set(names) - set(PROJECTS):
        raise SystemExit(f"no such projects: {unknown}; there are {sorted(PROJECTS)}")
    worst = 0
    for name in names or PROJECTS:
        with tempfile.TemporaryDirectory(prefix=f"neighbours-{name}-") as folder:
            worst = max(worst, _run_project(name, Path(folder).resolve(), arguments))
    return worst


def _run_project(name: str, folder: Path, arguments: Sequence[str]) -> int:
    paths, chosen = PROJECTS[name]
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).parents[1]
    served = folder / "served"
    served.mkdir()
    with ExitStack() as stack:
        memory = stack.enter_context(Server("memory://"))
        directory = stack.enter_context(Server(served))
        stores = {
            "NEIGHBOURS_MEMORY": memory.address,
            "NEIGHBOURS_DIRECTORY": directory.address,
            "NEIGHBOURS_FOLDER": str(served),
        }
        print(f"\n==== {name}, with our store", flush=True)
        command = *chosen, *arguments
        ours = _run(site, served, folder / "ours.json", paths, command, stores)
        used = {"memory": memory.stats().sets, "a directory": directory.stats().sets}
    theirs = Outcomes()
    if ours.failed:
        print(f"\n==== {name}: what has failed, with zarr's stores", flush=True)
        again = folder / "again"
        again.mkdir()
        theirs = _run(site, again, folder / "theirs.json", ours.failed, (), {})
    print(report(name, ours, theirs, used), flush=True)
    return int(bool(differences(ours, theirs)) or not any(used.values()))


def _run(
    site: Path,
    folder: Path,
    outcomes: Path,
    tests: Sequence[str],
    options: Sequence[str],
    stores: dict[str, str],
) -> Outcomes:
    """Run tests, which make their files below a folder, and return their outcomes.

    Parameters
    ----------
    site : Path
        What the names of tests begin at: where packages are installed.
    folder : Path
    outcomes : Path
        The file for the outcomes.
    tests, options : sequence of str
        For pytest.
    stores : dict of str
        Where our servers are, for `stores.py`; empty for zarr's own stores.
    """
    for name in "tmp", "here":
        (folder / name).mkdir()
        # A server removes a folder with its last value: this one is not only its own.
        (folder / name / "in-use").touch()
    configuration = folder / "pytest.ini"
    configuration.write_text("[pytest]\nasyncio_mode = strict\n")
    own = Path(__file__).parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", configuration, "--rootdir", site),
            *("-p", "stores", "-p", "no:cacheprovider", "--basetemp", folder / "pytest"),
            *("--timeout", "300", "--quiet", "--no-header", "--disable-warnings"),
            *options,
            *(f"{site}/{test}" for test in tests),
        ],
        cwd=folder / "here",
        env={
            **os.environ,
            **stores,
            "NEIGHBOURS_OUTCOMES": str(outcomes),
            "PYTHONPATH": os.pathsep.join([str(own), str(own.parents[1])]),
            "TMPDIR": str(folder / "tmp"),
        },
        check=False,
    )
    if done.returncode not in _RUN:
        raise SystemExit(f"pytest has ended with status {done.returncode}")
    return Outcomes.read(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
