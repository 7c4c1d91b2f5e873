"""The packages are those of docs/architecture.md, import only downward, and stay small."""

import shutil
from pathlib import Path

import pytest

from tests import house

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ucxstore"
TESTS = ROOT / "tests"


def test_packages_import_downward() -> None:
    assert house.upward_imports(PACKAGE) == []


def test_every_module_has_a_layer() -> None:
    assert house.unplaced(PACKAGE) == []


def test_no_folders_import_one_another() -> None:
    assert house.circles(PACKAGE) == []


def test_no_folder_is_crowded() -> None:
    assert house.crowded(ROOT) == []


def test_one_module_imports_zarrs_private_parts() -> None:
    assert house.private_zarr_imports(PACKAGE) == []


def test_geometry_is_pure() -> None:
    assert house.impure_imports(PACKAGE) == []


def test_native_folders_include_downward() -> None:
    assert house.upward_includes(ROOT / "native") == []


def test_native_namespaces_are_the_folders() -> None:
    assert house.wrong_namespaces(ROOT / "native") == []


def test_the_layout_described_is_the_layout_there() -> None:
    assert house.undescribed(ROOT) == []


def test_the_imports_described_are_the_imports_there() -> None:
    assert house.undescribed_imports(ROOT) == []


def test_no_file_is_long() -> None:
    assert house.long_files(ROOT) == []


def test_no_function_is_large() -> None:
    assert house.large_functions(PACKAGE) == []


def test_no_two_classes_share_a_name() -> None:
    assert house.repeated_classes(ROOT) == []


def test_the_code_has_the_words_of_the_glossary() -> None:
    assert house.unused_words(ROOT) == []


def test_private_names_stay_in_their_module() -> None:
    assert house.private_uses_of_ours(PACKAGE) == []


def test_tests_use_fewer_and_fewer_private_names() -> None:
    """Lower the number with them: what tests need of a module is better a function of it."""
    assert len(house.private_uses_of_tests(TESTS)) <= 60


def test_no_helper_of_tests_is_there_twice() -> None:
    """Move it to a module of helpers, a conftest.py, or tests/fixtures.py."""
    assert house.copied_helpers(TESTS) == []


def test_tests_sleep_by_one_module() -> None:
    assert house.sleeps(TESTS) == []


# ---- that the rules see what breaks them ----


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what the rules look at, to plant mistakes in."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("ucxstore", "native"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / "docs").mkdir()
    page = shutil.copy(ROOT / "docs/architecture.md", tmp_path / "docs")
    shutil.copy(ROOT / "docs/glossary.md", tmp_path / "docs")
    for name in house.described_packages(Path(page)):  # the others, of which the names are enough
        if name.endswith("/"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
    return tmp_path


def plant(file: Path, text: str) -> int:
    """Add lines to a file; return the number of the first."""
    before = file.read_text()
    file.write_text(f"{before}{text}\n")
    return before.count("\n") + 1


@pytest.mark.parametrize(
    ("file", "text", "below", "found"),
    [
        (
            "client/__init__.py",
            "import ucxstore.cluster.placement",
            0,
            "ucxstore.cluster.placement",
        ),
        ("client/__init__.py", "from ..cli import main", 0, "ucxstore.cli"),
        ("protocol/frames.py", "from ucxstore import Server", 0, "ucxstore"),
        (
            "base/errors.py",
            "def f():\n    from ucxstore.stores import store",
            1,
            "ucxstore.stores.store",
        ),
        (
            "base/secret.py",
            "if TYPE_CHECKING:\n    from ucxstore.server import Server",
            1,
            "ucxstore.server",
        ),
        ("server/__init__.py", "from ucxstore import pipeline", 0, "ucxstore.pipeline"),
        (
            "server/sources/__init__.py",
            "from ...stores.store import UcxStore",
            0,
            "ucxstore.stores.store",
        ),
        ("dask/__init__.py", "from ucxstore.cli import main", 0, "ucxstore.cli"),
    ],
)
def test_an_upward_import_is_found(
    file: str, text: str, below: int, found: str, copy: Path
) -> None:
    before = house.upward_imports(copy / "ucxstore")
    line = plant(copy / "ucxstore" / file, text) + below
    after = house.upward_imports(copy / "ucxstore")
    assert [one for one in after if one not in before] == [f"{file}:{line}: imports {found}"]


@pytest.mark.parametrize(
    "text",
    [
        "import zarr.core.sync",
        "from zarr.core import sync",
        "from zarr import core",
        "from zarr.core.buffer import Buffer",
        "from zarr.codecs._v2 import V2Codec",
        "from zarr.codecs import _v2",
    ],
)
def test_an_import_of_zarrs_private_parts_is_found(text: str, copy: Path) -> None:
    line = plant(copy / "ucxstore/pipeline/read_plan.py", text)
    [found] = house.private_zarr_imports(copy / "ucxstore")
    assert found.startswith(f"pipeline/read_plan.py:{line}: imports zarr.")


@pytest.mark.parametrize(
    "text", ["import zarr", "import socket", "from ucxstore.base import errors"]
)
def test_what_is_not_pure_is_found(text: str, copy: Path) -> None:
    line = plant(copy / "ucxstore/pipeline/geometry/runs.py", text)
    [found] = house.impure_imports(copy / "ucxstore")
    assert found.startswith(f"pipeline/geometry/runs.py:{line}: imports ")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("store._chunk_access", "_chunk_access"),
        ("def f(store): return store.with_read_only()._counters.add", "_counters"),
        ("getattr(store, '_channel')", "_channel"),
        ("monkeypatch.setattr(scheduler, '_pool', None)", "_pool"),
        ("from ucxstore.cli import _COMMANDS", "_COMMANDS"),
    ],
)
def test_a_private_name_of_another_module_is_found(text: str, name: str, copy: Path) -> None:
    line = plant(copy / "ucxstore/cluster/placement.py", text)
    assert house.private_uses_of_ours(copy / "ucxstore") == [
        f"cluster/placement.py:{line}: {name} is private to another module"
    ]


def test_private_names_of_its_own_are_a_modules_own(copy: Path) -> None:
    text = "class Own:\n    _one = 1\n\n    def two(self, other): return other._one, self._two"
    plant(copy / "ucxstore/cluster/placement.py", text)
    assert house.private_uses_of_ours(copy / "ucxstore") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\ntime.sleep(1)", "2: time.sleep"),
        ("def f(loop): loop.call_soon(time.sleep, 1)", "1: time.sleep"),
        ("async def f():\n    await asyncio.sleep(0)", "2: asyncio.sleep"),
        ("from time import monotonic, sleep", "1: from time import monotonic, sleep"),
    ],
)
def test_a_test_that_sleeps_is_found(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "eventually.py").write_text("import time\ntime.sleep(0)\n")
    (tmp_path / "test_a.py").write_text(f"{text}\n")
    assert house.sleeps(tmp_path) == [f"test_a.py:{found}"]


@pytest.mark.parametrize(
    ("text", "other", "found"),
    [
        ("def a(x): return x", 'def b(x):\n    """Do."""\n    return x', "b.py:b"),
        ("class A:\n    def f(self): g(); h()", "def a():\n    def f(self): g(); h()", "b.py:f"),
        ("@fixture\ndef a(): yield 1", "@fixture\ndef b(): yield 1", "b.py:b"),
        ("@fixture\ndef a(): yield 1", "@fixture(scope='module')\ndef a(): yield 1", ""),
        ("def a(x): return x", "async def a(x): return x", ""),
        ("def a(x): return x", "def a(y): return y", ""),
        ("class A:\n    def f(self): return self", "class B:\n    def f(self): return self", ""),
        ("", "def a(): pass\ndef b(): pass", ""),
    ],
)
def test_a_copied_helper_is_found(text: str, other: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.py").write_text(other)
    copied = [line.partition(" and ")[2] for line in house.copied_helpers(tmp_path)]
    assert copied == ([found] if found else [])


def test_a_module_without_a_layer_is_found(copy: Path) -> None:
    (copy / "ucxstore/helpers.py").touch()
    shutil.rmtree(copy / "ucxstore/obspec")
    assert house.unplaced(copy / "ucxstore") == [
        "helpers is in no layer",
        "obspec is in a layer, and is not there",
    ]


def test_folders_that_import_one_another_are_found(copy: Path) -> None:
    plant(
        copy / "ucxstore/server/peers/presence.py", "import ucxstore.server.source_thread.carrier"
    )
    assert house.circles(copy / "ucxstore") == ["server: peers -> source_thread -> peers"]


@pytest.mark.parametrize(
    ("folder", "endings"), [("ucxstore/cluster", ["py"]), ("native/cache", ["cpp", "hpp"])]
)
def test_a_crowded_folder_is_found(folder: str, endings: list[str], copy: Path) -> None:
    there = {file.stem for file in (copy / folder).iterdir()} - {"__init__", "__pycache__"}
    for number in range(house.MOST_MODULES):
        for ending in endings:
            (copy / folder / f"more{number}.{ending}").touch()
    count = len(there) + house.MOST_MODULES
    assert house.crowded(copy) == [f"{folder}: {count} modules"]


@pytest.mark.parametrize("file", ["ucxstore/base/keys.py", "native/memory/region.hpp"])
def test_a_long_file_is_found(file: str, copy: Path) -> None:
    count = plant(copy / file, "\n" * house.MOST_LINES) + house.MOST_LINES
    assert house.long_files(copy) == [f"{file}: {count} lines"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f():\n" + "    pass\n" * 70, "f: 71 lines"),
        ("async def f():\n" + "    pass\n" * 70, "f: 71 lines"),
        ("def f(a, b, /, c, d, *, e, f, g, h): pass", "f: 8 parameters"),
        ("class C:\n    def f(self, a, b, c, d, e, f, g, h): pass", "f: 8 parameters"),
    ],
)
def test_a_large_function_is_found(text: str, found: str, copy: Path) -> None:
    plant(copy / "ucxstore/base/keys.py", text)
    assert house.large_functions(copy / "ucxstore") == [f"base/keys.py:{found}"]


def test_a_docstring_makes_no_function_large(copy: Path) -> None:
    text = 'def f(a, b, c, d, e, f, g):\n    """Do.\n' + "\n" * 70 + '    """\n' + "    pass\n" * 60
    plant(copy / "ucxstore/base/keys.py", text)
    assert house.large_functions(copy / "ucxstore") == []


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("ucxstore/base/keys.py", "class Server:\n    pass", "Server: 2 classes in Python"),
        ("native/memory/copier.hpp", "struct Region {\n};", "Region: 2 classes in C++"),
        ("native/memory/copier.hpp", "enum class Region : int {\n};", "Region: 2 classes in C++"),
        ("native/memory/copier.hpp", "class Region;", ""),
    ],
)
def test_two_classes_of_one_name_are_found(file: str, text: str, found: str, copy: Path) -> None:
    plant(copy / file, text)
    assert house.repeated_classes(copy) == ([found] if found else [])


def test_a_word_that_the_code_lacks_is_found(copy: Path) -> None:
    plant(copy / "docs/glossary.md", "| value, flummox | nothing |\n| idle flummox | nothing |")
    assert house.unused_words(copy) == ["flummox", "idle flummox"]


@pytest.mark.parametrize(
    ("file", "included"),
    [
        ("memory/region.hpp", "server/server.hpp"),
        ("sessions/session.hpp", "ucx/peer.hpp"),
    ],
)
def test_an_upward_include_is_found(file: str, included: str, copy: Path) -> None:
    line = plant(copy / "native" / file, f'#include "{included}"')
    assert house.upward_includes(copy / "native") == [
        f'{file}:{line}: {Path(file).parent} includes "{included}"'
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("namespace ucxstore {\nint f();\n}", ["ucxstore"]),
        ("namespace ucxstore::base {\nint f();\n}", ["ucxstore::base"]),
        ("using namespace base;", ["using namespace base;"]),
        ("namespace ucxstore::base {\nclass Fd;\n}", []),
        ("namespace ucxstore::memory::pages {\n}", []),
    ],
)
def test_a_namespace_of_another_folder_is_found(text: str, found: list[str], copy: Path) -> None:
    plant(copy / "native/memory/region.hpp", text)
    expected = [f"memory/region.hpp: {one}" for one in found]
    assert house.wrong_namespaces(copy / "native") == expected


def test_a_native_file_without_a_namespace_is_found(copy: Path) -> None:
    (copy / "native/memory/new.hpp").write_text("#pragma once\n\nint f();\n")
    assert house.wrong_namespaces(copy / "native") == ["memory/new.hpp: no ucxstore::memory"]


def test_a_package_that_is_not_described_is_found(copy: Path) -> None:
    (copy / "ucxstore/attic").mkdir()
    (copy / "ucxstore/attic/__init__.py").touch()
    shutil.rmtree(copy / "native/bindings")
    assert house.undescribed(copy) == [
        "ucxstore/attic/ is not described",
        "native/bindings/ is not there",
    ]


def test_an_import_that_is_not_described_is_found(copy: Path) -> None:
    line = plant(copy / "ucxstore/pipeline/merge.py", "import ucxstore.protocol.frames")
    assert house.undescribed_imports(copy) == [
        f"ucxstore/pipeline/merge.py:{line}: imports ucxstore.protocol.frames"
    ]
