"""Install the wheel where there is no compiler, for several Pythons, and run the demo.

Each Python gets a new environment. The commands in it see neither this process's environment nor a
folder of programs but their own, so that nothing can be compiled, and no source tree is found. It
fails if this machine lacks one of the Pythons, but for --allow-missing.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WANTED = ((3, 12), (3, 13))  # and the newest there is
MEGABYTES = "10"  # of the demo's large array

# Printed by a Python that could be used: its version, and where it is.
_PROBE = "import sys, ensurepip; print(*sys.version_info[:2], sys.executable)"

# What is imported is what was installed, and it has found the UCX that came along.
_INSTALLED = """
import pathlib, sys, ucxstore, ucxstore._core, ucxstore.base.ucx_library
folder = pathlib.Path(sys.prefix)
assert folder in pathlib.Path(ucxstore._core.__file__).parents, ucxstore._core.__file__
ucx = ucxstore.base.ucx_library.load()
assert ucx.origin == "wheel" and folder in ucx.path.parents, ucx
print("ucxstore", ucxstore.__version__, "UCX", ucx.version)
"""

# Threads that wait for the GIL as the interpreter exits: it ends them by unwinding their stacks, in
# which a C++ library that is linked statically has a say.
_ENDS = """
import threading
import ucxstore
from zarr.core.buffer import default_buffer_prototype
server = ucxstore.Server.spawn("memory://", network="ucx")
store = ucxstore.UcxStore(server.address, local="ucx")
store.set_sync("small", default_buffer_prototype().buffer.from_bytes(b"small"))
def read():
    try:
        while True:
            store.get_sync("small")
    except ucxstore.UcxStoreError:
        pass  # the server has ended
for _ in range(50):
    threading.Thread(target=read, daemon=True).start()
while store.stats()["bytes_read"] < 5_000:
    pass
"""
_TIMES_TO_END = 3


def main(argv: Sequence[str] | None = None) -> None:
    """Check the wheel of this machine's architecture in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="name the Pythons that this machine lacks, and check the wheel with the others",
    )
    arguments = parser.parse_args(argv)
    found = sorted(arguments.dist.resolve().glob(f"ucxstore-*_{platform.machine()}.whl"))
    if len(found) != 1:
        raise SystemExit(f"{arguments.dist} has {len(found)} wheels for this machine: make wheels")
    pythons = find_pythons()
    wanted = sorted({*WANTED, max(pythons, default=WANTED[-1])})
    missing = [f"{major}.{minor}" for major, minor in wanted if (major, minor) not in pythons]
    if missing:
        problem = f"not checked, since this machine has no Python {', '.join(missing)}"
        if not arguments.allow_missing:
            raise SystemExit(f"{problem}: install it, or give --allow-missing (ALLOW_MISSING=1)")
        print(problem)
    if pythons:
        print("the newest Python of this machine is {}.{}".format(*max(pythons)))
    here = [pythons[version] for version in wanted if version in pythons]
    if not here:
        raise SystemExit("no Python to check the wheel with: install 3.12 or later")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(lambda python: check(found[0], python), here):
            print(outcome)


def find_pythons() -> dict[tuple[int, int], Path]:
    """Return the Pythons of PATH and of pyenv that the wheel is for, by their versions."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        folders += sorted(Path(root, "versions").glob("*/bin"), reverse=True) if root else []
    candidates = [Path(sys.executable).resolve()]
    for folder in folders:
        if folder.is_dir():
            names = (file for file in folder.iterdir() if re.fullmatch(r"python3\.\d+", file.name))
            candidates += sorted(names)
    pythons: dict[tuple[int, int], Path] = {}
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", _PROBE], capture_output=True, text=True)
        if done.returncode == 0:  # a shim of pyenv's may be there and fail
            major, minor, path = done.stdout.strip().split(" ", 2)
            if (int(major), int(minor)) >= WANTED[0]:
                pythons.setdefault((int(major), int(minor)), Path(path))
    return pythons


def check(wheel: Path, python: Path) -> str:
    """Install the wheel for a Python and run the demo; return what it says."""
    with tempfile.TemporaryDirectory(prefix="ucxstore-wheel-") as folder:
        environment = Path(folder, "environment")
        run(python, "-m", "venv", environment, cwd=folder)
        inside = environment / "bin/python"
        # The index and the certificates of this machine's configuration, and nothing else of it.
        pip = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_"))}
        proxies = {name: os.environ[name] for name in os.environ if name.lower().endswith("_proxy")}
        run(
            *(inside, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"),
            *("--only-binary", ":all:", "--constraint", ROOT / "constraints.txt", "--no-compile"),
            f"ucxstore[demo] @ {wheel.as_uri()}",
            cwd=folder,
            environment=pip | proxies | {"HOME": str(Path.home())},
        )
        said = run(inside, "-I", "-c", _INSTALLED, cwd=folder)
        for _ in range(_TIMES_TO_END):
            run(inside, "-I", "-c", _ENDS, cwd=folder)
        demo = run(environment / "bin/ucxstore", "demo", "--size", MEGABYTES, cwd=folder)
        version = run(inside, "-V", cwd=folder)
    return f"{version.strip()}: {said.strip()}; {demo.strip().splitlines()[-1]}"


def run(*command: object, cwd: str, environment: dict[str, str] | None = None) -> str:
    """Run a command without this process's environment; return its output, or end with it."""
    first = Path(str(command[0]))
    bare = {"PATH": str(first.parent), "HOME": cwd, "TMPDIR": cwd, "LANG": "C.UTF-8"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=bare | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(map(str, command))} returned {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
