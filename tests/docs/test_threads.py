"""docs/threads.md has each kind of thread and each lock of the code, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/threads.md"

# What starts a thread of the core, and its name in the same statement.
_NATIVE_THREAD = re.compile(
    r"(?:start_quiet_thread\(|EventThread>\(|PeerThread\(|WorkerPool \w+\{|pool_\(|char\* name = )"
    r'[^;]*?"(ucxstore[^"]*)"( \+)?'
)
_ANY_THREAD = re.compile(r"std::j?thread\(\[|std::async\(|pthread_create\(")
_NATIVE_LOCK = re.compile(
    r"^\s*(?:mutable |static |constinit )*(?:std::array<)?(?:\w+::)*\w*[mM]utex(?:, \d+>)? "
    r"(\w+)(?: [A-Z_]+\([^;]*\))*;",
    re.MULTILINE,
)
_LOCKS = {"lock", "Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}


def rows_of(section: str) -> list[tuple[str, ...]]:
    """Return what the first cells of a section's table have in backticks."""
    _, _, text = PAGE.read_text().partition(f"\n## {section}\n")
    table, _, _ = text.partition("\n## ")
    cells = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    return [tuple(re.findall(r"`([^`]+)`", cell)) for cell in cells]


def native_files() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "native").rglob("*.[ch]pp")):
        yield file.relative_to(ROOT / "native").as_posix(), file.read_text()


def native_threads(text: str) -> Iterator[str]:
    for name, goes_on in _NATIVE_THREAD.findall(text):
        yield f"{name}*" if goes_on else name


def python_calls() -> Iterator[tuple[str, ast.Call]]:
    for file in sorted((ROOT / "ucxstore").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield file.relative_to(ROOT / "ucxstore").as_posix(), node


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def thread_name(node: ast.Call) -> str | None:
    """Return the name of a thread or pool that a call makes; "" if it has none."""
    match called(node), node.args, {word.arg: word.value for word in node.keywords}:
        case "Thread", _, words:
            name = words.get("name")
        case "ThreadPoolExecutor", args, words:
            name = args[1] if len(args) > 1 else words.get("thread_name_prefix")
        case _:
            return None
    match name:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr([ast.Constant(str(text)), *_]):
            return f"{text}*"
    return ""


def native_locks() -> set[tuple[str, str]]:
    files = [(name, text) for name, text in native_files() if name != "base/mutex.hpp"]
    return {(name, lock) for name, text in files for lock in _NATIVE_LOCK.findall(text)}


def python_locks() -> set[tuple[str, str]]:
    found = set()
    for file in sorted((ROOT / "ucxstore").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if called(node.value) in _LOCKS:
                    name = ast.unparse(target).rpartition(".")[2]
                    found.add((file.relative_to(ROOT / "ucxstore").as_posix(), name))
    return found


def test_each_native_thread_has_a_row() -> None:
    names = [name for _, text in native_files() for name in native_threads(text)]
    assert sorted(set(names)) == sorted(name for (name,) in rows_of("Threads of the core"))


def test_names_of_native_threads_are_as_long_as_the_kernel_keeps_them() -> None:
    assert [name for (name,) in rows_of("Threads of the core") if len(name) > 15] == []


def test_one_function_starts_native_threads() -> None:
    where = [name for name, text in native_files() if _ANY_THREAD.search(text)]
    assert where == ["threads/quiet_thread.cpp"]


def test_each_thread_of_the_package_has_a_name_and_a_row() -> None:
    found = [(file, thread_name(node)) for file, node in python_calls()]
    names = [name for _, name in found if name is not None]
    assert sorted(names) == sorted(name for (name,) in rows_of("Threads of the package"))


def test_no_two_kinds_of_threads_share_a_name() -> None:
    rows = [*rows_of("Threads of the core"), *rows_of("Threads of the package")]
    assert len(rows) == len(set(rows))


def test_each_native_lock_has_a_row() -> None:
    assert sorted(native_locks()) == sorted(rows_of("Locks of the core"))


def test_each_lock_of_the_package_has_a_row() -> None:
    assert sorted(python_locks()) == sorted(rows_of("Locks of the package"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('start_quiet_thread("ucxstore-a", [this] { run(); })', ["ucxstore-a"]),
        ('std::make_shared<EventThread>(driver_, "ucxstore-b" + number)', ["ucxstore-b*"]),
        ('WorkerPool pool_{1, 0,\n    "ucxstore-c"};', ["ucxstore-c"]),
        ('memfd_create("ucxstore-d", 0)', []),
    ],
)
def test_native_threads_are_found(text: str, names: list[str]) -> None:
    assert list(native_threads(text)) == names


@pytest.mark.parametrize(
    ("text", "locks"),
    [
        ("    mutable Mutex mutex_;\n", ["mutex_"]),
        ("Mutex a_ ACQUIRED_BEFORE(b_);\n", ["a_"]),
        ("    mutable std::array<TimedMutex, 256> here_;\n", ["here_"]),
        ("    std::mutex other;\n", ["other"]),
        ("    std::unique_lock<Mutex> lock_;\n", []),
    ],
)
def test_native_locks_are_found(text: str, locks: list[str]) -> None:
    assert _NATIVE_LOCK.findall(text) == locks


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('threading.Thread(target=f, name="ucxstore-a")', "ucxstore-a"),
        ('threading.Thread(target=f, name=f"ucxstore-{b}")', "ucxstore-*"),
        ("threading.Thread(target=f)", ""),
        ('ThreadPoolExecutor(2, "ucxstore-c")', "ucxstore-c"),
        ("ThreadPoolExecutor(2)", ""),
        ("print()", None),
    ],
)
def test_names_of_threads_are_found(text: str, name: str | None) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert thread_name(call) == name
