"""scikit-build-core as the build backend, which says in one line what is missing to build.

Without this, CMake and pip print pages of output of which one line says so. Older Pythons must be
able to read this module: pip asks it before it looks at requires-python.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from scikit_build_core import build as _backend
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_OLDEST = (3, 12)
_CANDIDATES = ("c++", "g++", "clang++")  # what CMake tries
_NEED = "ucxstore is built from source, which needs a C++20 compiler"
_ANSWER = (
    "install one (Debian: apt install g++; Fedora: dnf install gcc-c++; conda: cxx-compiler), name "
    "it in CXX, or install a wheel: pip install --only-binary ucxstore ucxstore"
)


def _find_problem() -> str | None:
    """Return what is wrong with Python, or with the compiler of CMake; ``None`` for nothing."""
    if sys.version_info < _OLDEST:
        here = ".".join(map(str, sys.version_info[:2]))
        return f"ucxstore needs Python 3.12 or later, and this is Python {here}"
    chosen = f"{os.environ.get('CMAKE_ARGS', '')} {os.environ.get('CMAKE_TOOLCHAIN_FILE', '')}"
    if re.search(r"CMAKE_CXX_COMPILER|TOOLCHAIN|\S\.cmake", chosen):
        return None  # CMake knows better
    if named := os.environ.get("CXX"):
        command = shlex.split(named)
    else:
        command = [found for found in _CANDIDATES if shutil.which(found)][:1]
    if not command or not shutil.which(command[0]):
        return (
            f"{_NEED}, and {f'CXX={named} is not there' if named else 'there is none'}: {_ANSWER}"
        )
    done = subprocess.run(
        [*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
        input="#include <source_location>\n",
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return f"{_NEED}, and {command[0]} can't compile C++20: {_ANSWER}"
    return None


def _checked(hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if problem := _find_problem():
            raise SystemExit(problem)
        return hook(*arguments, **named)

    return call


# Asked first, so that nothing is downloaded in vain.
get_requires_for_build_wheel = _checked(_backend.get_requires_for_build_wheel)
get_requires_for_build_editable = _checked(_backend.get_requires_for_build_editable)
build_wheel = _checked(_backend.build_wheel)
build_editable = _checked(_backend.build_editable)
