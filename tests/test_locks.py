"""Every lock is one that a forked child can use: base/mutex.hpp and process.py have all of them.

tests/adversity/test_fork_at_any_time.py and tests/native/fork_test.cpp fork, and use them.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ucxstore.base.native import core

ROOT = Path(__file__).parents[1]

# What is not made anew in a child, and where it may be.
BARE = re.compile(
    r"std::(\w*mutex|condition_variable\w*|once_flag|call_once|\w+_semaphore|latch|barrier)\b"
    r"|\bpthread_(mutex|cond|rwlock|spin|once|barrier|atfork)\w*|\bsem_init\b"
)
OWNERS = {
    "base/mutex.hpp": {
        "std::mutex",
        "std::timed_mutex",
        "std::condition_variable",
        "pthread_rwlock_*",
    },
    "base/fork.cpp": {"pthread_atfork"},
    # In memory that processes share: the kernel marks it when the thread that has it ends.
    "shared/life.cpp": {"pthread_mutex_*"},
    "shared/life.hpp": {"pthread_mutex_*"},
}

# A static inside of a function that is not made before main(): its first use takes a lock.
# A static member of a class, which is only declared there, has a name that ends with "_".
LOCAL_STATIC = re.compile(
    r"^[ \t]+static (?!constexpr|constinit|inline|thread_local)[^()\n]*?(= |\{\}|\w(?<!_);)", re.M
)

# Of the standard library's, in Python, those that no forked child uses: they belong to a server, or
# to a call that another thread makes.
UNUSED_IN_CHILDREN = {
    "cli/doctor/pair/measuring.py": {"Event"},
    "dask/deployment.py": {"Event"},
    "dask/host_server.py": {"Event"},
    "server/accepting/acceptor.py": {"Event"},
    "server/source_thread/carrier.py": {"Event"},
    "server/sources/checking.py": {"Event"},
    "server/source_thread/peer_driver.py": {"Event"},
}
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}


def bare_locks(native: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in sorted(native.rglob("*.?pp")):
        names = {match.group() for match in BARE.finditer(_code(file))}
        names = {re.sub(r"^(pthread_(?:mutex|rwlock))\w*", r"\1_*", one) for one in names}
        if names:
            found[file.relative_to(native).as_posix()] = names
    return found


def local_statics(native: Path) -> list[str]:
    return [
        f"{file.relative_to(native)}: {match.group().strip()}"
        for file in sorted(native.rglob("*.?pp"))
        for match in LOCAL_STATIC.finditer(_code(file))
    ]


def python_locks(package: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="threading" | "_thread"), attr=name):
                    names = {name} & (LOCKS | {"allocate_lock"})
                case ast.ImportFrom(module="threading" | "_thread" | "multiprocessing"):
                    names = {alias.name for alias in node.names}
                case _:
                    continue
            if names:
                found.setdefault(file.relative_to(package).as_posix(), set()).update(names)
    return found


def _code(file: Path) -> str:
    return re.sub(r"//[^\n]*", "", file.read_text())


def test_the_cores_locks_are_made_anew_in_a_child() -> None:
    assert bare_locks(ROOT / "native") == OWNERS


def test_the_core_has_no_static_that_is_made_at_its_first_use() -> None:
    assert local_statics(ROOT / "native") == []


def test_the_compiler_made_none_either() -> None:
    """Whatever its source looks like, it has a guard. Those of threads take no lock."""
    module = core.__file__
    assert module is not None
    done = subprocess.run(
        ["readelf", "--symbols", "--wide", "--demangle", module],
        capture_output=True,
        text=True,
        check=True,
    )
    guards = [line for line in done.stdout.splitlines() if "guard variable for ucxstore::" in line]
    assert [line for line in guards if " TLS " not in line] == []


def test_python_locks_are_made_anew_in_a_child() -> None:
    assert python_locks(ROOT / "ucxstore") == {"base/process.py": {"Lock"}, **UNUSED_IN_CHILDREN}


@pytest.mark.parametrize(
    "text",
    [
        "std::mutex mutex_;",
        "std::recursive_mutex mutex_;",
        "std::call_once(flag, [] {});",
        "static int n = pthread_atfork(a, b, c);",
        "std::condition_variable_any changed_;",
    ],
)
def test_a_planted_lock_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "new.cpp").write_text(f"{text}\n")
    assert list(bare_locks(tmp_path)) == ["new.cpp"]


@pytest.mark.parametrize(
    "text",
    [
        "    static const std::string none;",
        "    static auto* const one = new Thing;",
        "    static std::map<int, int> map{};",
        "    static const int kept = [] { return 1; }();",
    ],
)
def test_a_planted_static_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "new.cpp").write_text(f"void f() {{\n{text}\n}}\n")
    assert len(local_statics(tmp_path)) == 1


def test_a_planted_python_lock_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("import threading\nx = threading.RLock()\n")
    assert python_locks(tmp_path) == {"new.py": {"RLock"}}


UNLOCKED = """
#include "base/mutex.hpp"
class Counted {
  public:
    int read() { %s return count_; }

  private:
    ucxstore::base::Mutex mutex_;
    int count_ GUARDED_BY(mutex_) = 0;
};
int read(Counted& counted) { return counted.read(); }
"""


@pytest.mark.parametrize(
    ("taken", "finding"),
    [
        ("", "reading variable 'count_' requires holding mutex 'mutex_'"),
        ("const ucxstore::base::Lock lock(mutex_);", ""),
        ("ucxstore::base::UniqueLock lock(mutex_); lock.unlock();", "reading variable 'count_'"),
    ],
)
def test_the_analysis_sees_a_lock_that_is_not_held(
    taken: str, finding: str, tmp_path: Path
) -> None:
    (tmp_path / "counted.cpp").write_text(UNLOCKED % taken)
    tidy = str(Path(sys.executable).with_name("clang-tidy"))
    command = [tidy, "--quiet", str(tmp_path / "counted.cpp")]
    command += [f"--config-file={ROOT / '.clang-tidy'}", "--", "-std=c++20", f"-I{ROOT}/native"]
    done = subprocess.run([*command, "-Wthread-safety"], capture_output=True, text=True)
    assert (done.returncode != 0) == bool(finding), done.stdout + done.stderr
    assert finding in done.stdout
