"""What an import of the package costs: which modules it brings, by their names, not by seconds."""

import ast
import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

import ucxstore
from ucxstore import UcxStore, cli
from ucxstore.server import Server

# What only processes need that connect or serve, and what takes long to import.
HEAVY = ("ucxstore._core", "ucxstore.base.native", "ucxstore.client", "ucxstore.server", "asyncio")


def modules_after(code: str, *, given: str = "") -> list[str]:
    """Return the modules that code brings into a new process, beside those that are given."""
    script = (
        f"import json, sys\n{given}\nbefore = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(names: list[str]) -> list[str]:
    """Return what is the package's; how it is installed may bring modules, too."""
    return [name for name in names if name.partition(".")[0] == "ucxstore"]


def test_zarr_gets_the_pipeline_by_one_small_module() -> None:
    """As zarr does, once it looks for pipelines: it loads every entry point."""
    code = """
from importlib.metadata import EntryPoint
EntryPoint("ucxstore", "ucxstore.pipeline:ZeroCopyCodecPipeline", "zarr.codec_pipeline").load()
"""
    given = "import zarr, zarr.registry, importlib.metadata"
    assert modules_after(code, given=given) == ["ucxstore", "ucxstore.pipeline"]


def test_zarrs_own_arrays_bring_no_more() -> None:
    """A process that looks for pipelines, and then uses arrays in a store of zarr's."""
    code = """
from importlib.metadata import EntryPoint
from zarr.registry import _pipeline_registry
name = "ucxstore.pipeline:ZeroCopyCodecPipeline"
_pipeline_registry.lazy_load_list.append(EntryPoint("ucxstore", name, "zarr.codec_pipeline"))
array = zarr.create_array({}, shape=10, chunks=5, dtype="i4")
array[:] = 7
assert (array[:] == 7).all()
"""
    found = modules_after(code, given="import zarr, zarr.registry, importlib.metadata")
    assert [name for name in found if name.startswith("ucxstore")] == [
        "ucxstore",
        "ucxstore.pipeline",
    ]


def test_the_package_alone_is_one_module() -> None:
    assert ours(modules_after("import ucxstore")) == ["ucxstore"]


def test_a_name_brings_what_it_needs_alone() -> None:
    found = modules_after("from ucxstore import AddressError")
    assert "ucxstore.base.errors" in found
    assert not {*HEAVY, "numpy", "zarr"} & set(found)
    assert "ucxstore.server.server" not in modules_after("from ucxstore import UcxStore")


@pytest.mark.parametrize("name", [name for name in ucxstore.__all__ if name != "__version__"])
def test_each_name_is_there_and_pickles_by_a_name_that_is(name: str) -> None:
    value = getattr(ucxstore, name)
    assert value.__name__ == name
    assert pickle.loads(pickle.dumps(value)) is value


def test_names_are_listed_before_they_are_used() -> None:
    code = "import ucxstore; assert set(ucxstore.__all__) <= set(dir(ucxstore))"
    assert ours(modules_after(code)) == ["ucxstore"]


def test_the_names_are_those_that_type_checkers_see() -> None:
    everything = modules_after("from ucxstore import *; assert UcxStore and Server and ShardError")
    assert "ucxstore.server.server" in everything
    source = ast.parse(Path(ucxstore.__file__).read_text())
    (block,) = (
        node
        for node in source.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            seen.update({name.asname or name.name: node.module for name in node.names})
        else:
            assert isinstance(node, ast.AnnAssign)
            seen[ast.unparse(node.target)] = "ucxstore"
    assert sorted(seen) == sorted(ucxstore.__all__)
    for name, module in seen.items():
        assert module is not None
        assert getattr(importlib.import_module(module), name) is getattr(ucxstore, name)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'ucxstore' has no attribute 'Ucx'"):
        _ = ucxstore.Ucx  # type: ignore[attr-defined]


def test_the_pipeline_is_known_by_the_name_that_zarr_is_configured_with() -> None:
    from zarr.registry import fully_qualified_name

    from ucxstore.pipeline.selection import PIPELINE

    assert fully_qualified_name(ucxstore.ZeroCopyCodecPipeline) == PIPELINE


def test_a_reader_starts_without_what_shows_counters(memory_server: Server) -> None:
    with UcxStore(memory_server.address) as store:
        zarr.create_array(store, name="shown", data=np.arange(8), overwrite=True)
    code = f"""
import zarr
from ucxstore import UcxStore
store = UcxStore({memory_server.address!r}, read_only=True)
assert zarr.open_array(store, path="shown", mode="r")[:].sum() == 28
print()
"""
    found = modules_after(code)
    assert "ucxstore.base.counters" in found
    assert not {"ucxstore.base.stats", "html"} & set(found)


def test_a_server_of_memory_or_files_starts_without_numpy(tmp_path: Path) -> None:
    code = f"""
from ucxstore.server import Server
for storage in ("memory://", {str(tmp_path)!r}):
    Server(storage).close()
"""
    assert not {"numpy", "zarr", "ucxstore.server.source_thread.carrier"} & set(modules_after(code))


# ---- the command line ----

SLOW = {"asyncio", "numpy", "ucxstore._core", "ucxstore.server.server", "zarr"}
COMMANDS = [name for name, _ in cli.parsers()]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["--nonsense"], ["nonsense"]]
    + [[*name.split(), "--nonsense"] for name in COMMANDS],
    ids=" ".join,
)
def test_help_and_errors_import_nothing_slow(arguments: list[str]) -> None:
    code = f"""
from ucxstore.cli import main
try:
    main({arguments})
except SystemExit:
    pass
"""
    assert not SLOW & set(modules_after(code))


def test_small_commands_do_without_zarr(memory_server: Server) -> None:
    address = f"{memory_server.address}/small"
    with UcxStore(address) as store:
        store.set_sync("a", cpu.Buffer.from_bytes(b"value"))
        store.set_sync("b/c", cpu.Buffer.from_bytes(b"value"))
    code = f"""
from ucxstore.cli import main
address = {address!r}
commands = [["ls"], ["ls", "-lR"], ["du"], ["ping", "-c1"]]
assert [main([*command, address]) for command in commands] == [0] * 4
assert main(["cat", address + "/a"]) == 0
assert main(["rm", address + "/a"]) == 0
assert main(["rm", "-r", address + "/b"]) == 0
assert main(["stats", {memory_server.address!r}]) == 0
print()
"""
    found = modules_after(code)
    assert "ucxstore.stores.values" in found
    assert not {"zarr", "ucxstore.stores.store", "ucxstore.pipeline"} & set(found)
