"""Building from source, and what wheels are built with. `make check-wheel` builds and tries one."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = ROOT / "packaging/backend"
WHEELS = ROOT / "packaging/wheels"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

ONE_LINE = re.compile(
    r"ucxstore is built from source, which needs a C\+\+20 compiler, and [^\n]+\n"
)


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose PATH has no compiler."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "PYTHONPATH": str(BACKEND)}


def call(hook: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"import ucxstore_build; ucxstore_build.{hook}"
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "hook",
    [
        "get_requires_for_build_wheel()",
        "get_requires_for_build_editable()",
        "build_wheel('.')",
        "build_editable('.')",
    ],
)
def test_without_a_compiler_a_build_says_so_in_one_line(
    hook: str, bare: dict[str, str], tmp_path: Path
) -> None:
    done = call(hook, bare, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert ONE_LINE.fullmatch(done.stderr)


def test_pip_shows_the_line(bare: dict[str, str], tmp_path: Path) -> None:
    """It is all that pip has of the build's output."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", ROOT],
        env={name: text for name, text in bare.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "[1 lines of output]" in done.stdout + done.stderr
    assert ONE_LINE.search(done.stdout + done.stderr)


def test_an_older_python_reads_the_backend_and_is_refused_in_one_line(
    bare: dict[str, str], tmp_path: Path
) -> None:
    """pip calls it before it looks at requires-python, unless an index has told that."""
    ast.parse((BACKEND / "ucxstore_build.py").read_text(), feature_version=(3, 10))
    code = """
import sys, ucxstore_build
sys.version_info = (3, 11, 9)
ucxstore_build.get_requires_for_build_wheel()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "ucxstore needs Python 3.12 or later, and this is Python 3.11\n"


def test_a_compiler_that_is_named_and_missing_is_told(bare: dict[str, str], tmp_path: Path) -> None:
    done = call("build_wheel('.')", bare | {"CXX": "/no/such/c++"}, tmp_path)
    assert "CXX=/no/such/c++ is not there" in done.stderr


def test_a_compiler_that_is_too_old_is_told(bare: dict[str, str], tmp_path: Path) -> None:
    old = tmp_path / "bin/c++"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = call("build_wheel('.')", bare, tmp_path)
    assert "c++ can't compile C++20" in done.stderr
    assert ONE_LINE.fullmatch(done.stderr)


def test_with_a_compiler_nothing_is_in_the_way(tmp_path: Path) -> None:
    assert shutil.which("c++"), "the tests need a compiler"
    environment = os.environ | {"PYTHONPATH": str(BACKEND)}
    done = call("get_requires_for_build_wheel()", environment, ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_source_distribution_has_what_a_build_needs(tmp_path: Path) -> None:
    code = "import sys, ucxstore_build as b; print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        env=os.environ | {"PYTHONPATH": str(BACKEND)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {file.relative_to(ROOT).as_posix() for file in (ROOT / "native").rglob("*.[ch]pp")}
    python = {file.relative_to(ROOT).as_posix() for file in (ROOT / "ucxstore").rglob("*.py")}
    needed = {"CMakeLists.txt", "cmake/FindUCX.cmake", "packaging/backend/ucxstore_build.py"}
    assert native | python | needed | {"PKG-INFO", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.startswith((".ci", "build/", "dist/", "benchmarks"))]


def test_ucx_comes_along() -> None:
    """A plain ``pip install ucxstore`` works."""
    [ucx] = [one for one in PROJECT["project"]["dependencies"] if one.startswith("libucx")]
    assert ucx.startswith("libucx-cu12>=1.18,!=1.22.0;")


def test_the_unwinders_names_are_those_that_are_linked() -> None:
    linked = set(re.findall(r"_Unwind_\w+", (WHEELS / "unwind.map").read_text()))
    assert linked == set(re.findall(r"NAME\((\w+)\)", (WHEELS / "unwind.c").read_text())) - {"name"}


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["objcopy", "mips-linux-gnu-objcopy", "llvm-objcopy"], "mips-linux-gnu-objcopy"),
        (["objcopy", "llvm-objcopy"], "llvm-objcopy"),
        (["objcopy"], "no objcopy for mips: install binutils-mips-linux-gnu or llvm"),
    ],
)
def test_symbols_of_another_architecture_are_taken_out(
    there: list[str], found: str, tmp_path: Path
) -> None:
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "import build; print(build.objcopy('mips').name)"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(WHEELS)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout + done.stderr).strip() == found


def test_what_has_changed_since_the_last_wheel_is_compiled_anew(tmp_path: Path) -> None:
    """Files of an archive are all of one time, which tells a build nothing."""
    code = "import build, pathlib, sys; build.unpack(*map(pathlib.Path, sys.argv[1:]))"
    times = []
    for text in ("first", "second"):
        tree = tmp_path / "ucxstore-1"
        tree.mkdir()
        (tree / "same").write_text("same")
        (tree / "other").write_text(text)
        with tarfile.open(tmp_path / "ucxstore-1.tar.gz", "w:gz") as archive:
            archive.add(tree, "ucxstore-1", filter=lambda one: one.replace(mtime=1, deep=False))
        shutil.rmtree(tree)
        (tmp_path / "work").mkdir(exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", code, archive.name, tmp_path / "work"],  # type: ignore[list-item]
            env=os.environ | {"PYTHONPATH": str(WHEELS)},
            check=True,
        )
        source = tmp_path / "work/source"
        times.append([(source / name).stat().st_mtime_ns for name in ("same", "other")])
    assert (source / "other").read_text() == "second"
    assert times[0][0] == times[1][0]
    assert times[0][1] < times[1][1]
