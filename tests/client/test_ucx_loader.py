"""Each case runs in a process of its own: a process loads UCX once and never unloads it."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

LOAD = """
import json
from ucxstore.base import ucx_library
library = ucx_library.load()
assert ucx_library.load() is library
print(json.dumps([library.origin, library.version, str(library.path)]))
"""


@pytest.fixture
def wheel_lib() -> Path:
    spec = find_spec("libucx")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "lib")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    dropped = ("UCXSTORE_UCX", "LD_LIBRARY_PATH", "UCX_MEM_MMAP_HOOK_MODE", "UCX_RCACHE_ENABLE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def loaded(code: str = LOAD, **environment: str) -> list[str]:
    process = run(code, **environment)
    assert process.returncode == 0, process.stderr
    library: list[str] = json.loads(process.stdout)
    return library


def refusal(code: str = LOAD, **environment: str) -> str:
    process = run(code, **environment)
    assert process.returncode == 1
    last = process.stderr.splitlines()[-1]
    assert last.startswith("ucxstore.UcxUnavailableError: ")
    return last


@pytest.fixture
def no_system(tmp_path: Path) -> str:
    """A folder that hides any libucp of the system behind one that can't be loaded."""
    (tmp_path / "libucp.so.0").touch()
    return str(tmp_path)


def fake_ucx(folder: Path, major: int, minor: int) -> str:
    """Compile a libucp that reports this version and can do nothing else."""
    compiler = shutil.which("cc")
    assert compiler is not None
    source = folder / "fake.c"
    source.write_text(
        "void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {"
        f" *major = {major}; *minor = {minor}; *release = 0; }}"
    )
    flags = ["-shared", "-fPIC", "-Wl,-soname,libucp.so.0"]
    subprocess.run([compiler, *flags, "-o", folder / "libucp.so.0", source], check=True)
    return str(folder)


@pytest.mark.parametrize("environment", [{}, {"UCXSTORE_UCX": "wheel"}])
def test_wheel(environment: dict[str, str], wheel_lib: Path) -> None:
    origin, version, path = loaded(**environment)
    assert origin == "wheel"
    assert tuple(map(int, version.split("."))) >= (1, 18, 0)
    assert Path(path).parent == wheel_lib


def test_core_uses_the_library_that_was_loaded() -> None:
    code = LOAD + "from ucxstore import _core; assert _core.ucx_version() == library.version"
    assert loaded(code)[0] == "wheel"


UCX_IS_MAPPED = """
def ucx_is_mapped():
    with open("/proc/self/maps") as maps:
        return any(name in line for line in maps for name in ("libucp", "libucs", "libuct"))
"""


@pytest.mark.parametrize("environment", [{}, {"LD_BIND_NOW": "1"}])
def test_core_loads_ucx_only_for_a_client_or_server(environment: dict[str, str]) -> None:
    code = f"""{UCX_IS_MAPPED}
from ucxstore import Server, UcxStore
from ucxstore.base.native import core
core.MemoryStorage(), core.Completions(), core.allocate(1000), UcxStore("ucx://localhost:1")
assert not ucx_is_mapped()
core.Client({{}}, False)
assert ucx_is_mapped()
"""
    process = run(code, **environment)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    "use",
    [
        "core.ucx_version()",
        "core.Client({}, False)",
        "core.Server(core.MemoryStorage(), 1, ({}, False, False, False), False)",
        "Server('memory://', local=False, network='ucx')",
        "Server('memory://', local=True, ucx={'TLS': 'tcp'})",
        "UcxStore(server.address, local='ucx').get_sync('key')",
    ],
)
def test_what_needs_ucx_says_that_there_is_none(use: str, no_system: str) -> None:
    code = f"""
from ucxstore import Server, UcxStore
from ucxstore.base.native import core
with Server("memory://", local=True, network="ucx") as server:
    for _ in range(2):
        try:
            {use}
        except ImportError as error:
            failure = error
raise failure
"""
    message = refusal(code, UCXSTORE_UCX="system", LD_LIBRARY_PATH=no_system)
    assert "UCX can't be loaded (UCXSTORE_UCX=system): " in message


@pytest.mark.parametrize("environment", [{}, {"LD_BIND_NOW": "1"}])
def test_a_server_and_a_client_of_one_host_need_none(environment: dict[str, str]) -> None:
    code = f"""{UCX_IS_MAPPED}
from ucxstore import Server, UcxStore
from zarr.core.buffer import cpu
with (
    Server("memory://", local=True, network="ucx") as server,
    UcxStore(server.address, local="auto") as store,
):
    store.set_sync("c/0", cpu.Buffer.from_bytes(b"value"))
    assert store.get_sync("c/0").to_bytes() == b"value"
    assert not ucx_is_mapped()
    with UcxStore(server.address, local="ucx") as other:
        assert other.get_sync("c/0").to_bytes() == b"value"
    assert ucx_is_mapped()
"""
    process = run(code, **environment)
    assert process.returncode == 0, process.stderr


def test_a_server_without_ucx_says_so_to_those_who_need_it(no_system: str) -> None:
    code = """
from ucxstore import ConnectError, Server, UcxStore
from ucxstore.client.connect import Greeting
from ucxstore.base.address import HostPort
with Server("memory://", local=True, network="ucx") as server:
    address = HostPort.parse(server.address.removeprefix("ucx://"))
    with Greeting(address, None, 20) as greeting:
        try:
            greeting.attach(b"an address")
        except ConnectError as error:
            print(error)
    with UcxStore(server.address, local="auto") as store:
        assert store.get_sync("c/0") is None
"""
    process = run(code, UCXSTORE_UCX="system", LD_LIBRARY_PATH=no_system)
    assert process.returncode == 0, process.stderr
    assert "the server could not start UCX for this client: UCX can't be loaded" in process.stdout


def test_a_library_without_a_function_that_is_called(tmp_path: Path) -> None:
    code = "from ucxstore.base.native import core\ncore.Client({}, False)"
    message = refusal(code, UCXSTORE_UCX="system", LD_LIBRARY_PATH=fake_ucx(tmp_path, 1, 18))
    assert message.endswith("UCX has no ucp_am_data_release()")


MMAP = """
import ctypes, json, os
from ucxstore.base import ucx_library

def beginning():
    function = ctypes.CDLL(None).mmap
    return ctypes.string_at(ctypes.cast(function, ctypes.c_void_p), 16)

before, environment = beginning(), dict(os.environ)
ucx_library._DEVICES = DEVICES
library = ucx_library.load()
assert os.environ == environment
is_hooked = beginning() != before
assert is_hooked == library.has_hooks or "none" in environment.values()
print(json.dumps(is_hooked))
"""


@pytest.mark.parametrize(
    ("devices", "environment", "expected"),
    [
        ((), {}, False),
        (("nonexistent/*",), {}, False),
        (("nonexistent", "pro*/self"), {}, True),
        ((), {"UCX_MEM_MMAP_HOOK_MODE": "bistro"}, True),
        (("proc",), {"UCX_MEM_MMAP_HOOK_MODE": "none"}, False),
        ((), {"UCX_RCACHE_ENABLE": "y"}, True),
    ],
)
def test_hooks_on_mmap_are_for_devices(
    devices: tuple[str, ...], environment: dict[str, str], expected: bool
) -> None:
    process = run(MMAP.replace("DEVICES = DEVICES", f"DEVICES = {devices}"), **environment)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) is expected


def test_a_cache_that_wants_hooks_which_are_left_out() -> None:
    code = "from ucxstore import Server; Server('memory://', ucx={'RCACHE_ENABLE': 'y'})"
    process = run(f"from ucxstore.base import ucx_library; ucx_library._DEVICES = ()\n{code}")
    assert "ValueError: UCX option RCACHE_ENABLE=y: UCX was loaded without" in process.stderr


def test_system_is_found_by_the_dynamic_linker(tmp_path: Path, wheel_lib: Path) -> None:
    copy = shutil.copytree(wheel_lib, tmp_path / "lib")
    origin, _, path = loaded(UCXSTORE_UCX="system", LD_LIBRARY_PATH=str(copy))
    assert origin == "system"
    assert Path(path).parent == copy


def test_a_library_loaded_before_is_used_and_reported(tmp_path: Path, wheel_lib: Path) -> None:
    copy = shutil.copytree(wheel_lib, tmp_path / "lib")
    code = f"import ctypes; ctypes.CDLL({str(copy / 'libucp.so.0')!r})\n{LOAD}"
    assert loaded(code)[0] == "system"

    process = run(code, UCXSTORE_UCX="wheel")
    assert process.returncode == 1
    assert "RuntimeWarning: UCXSTORE_UCX=wheel, but" in process.stderr


NO_WHEEL = f"import sys; sys.modules['libucx'] = None\n{LOAD}"


def test_system_is_forced_but_absent(no_system: str) -> None:
    message = refusal(UCXSTORE_UCX="system", LD_LIBRARY_PATH=no_system)
    assert "UCX can't be loaded (UCXSTORE_UCX=system): " in message
    assert "pip install libucx-cu12" in message


def test_wheel_is_forced_but_absent() -> None:
    message = refusal(NO_WHEEL, UCXSTORE_UCX="wheel")
    assert "UCXSTORE_UCX=wheel, but no libucx is installed" in message
    assert "pip install libucx-cu12" in message


def test_none_at_all(no_system: str) -> None:
    message = refusal(NO_WHEEL, LD_LIBRARY_PATH=no_system)
    assert "UCX can't be loaded: " in message
    assert "pip install libucx-cu12" in message


def test_system_without_a_wheel(tmp_path: Path, wheel_lib: Path) -> None:
    copy = shutil.copytree(wheel_lib, tmp_path / "lib")
    assert loaded(NO_WHEEL, LD_LIBRARY_PATH=str(copy))[0] == "system"


def test_too_old(tmp_path: Path) -> None:
    message = refusal(UCXSTORE_UCX="system", LD_LIBRARY_PATH=fake_ucx(tmp_path, 1, 13))
    assert f"{tmp_path}/libucp.so.0 is UCX 1.13.0, which is too old" in message
    assert "pip install libucx-cu12" in message


@pytest.mark.parametrize("value", ["conda", "Wheel"])
def test_unknown_choice(value: str) -> None:
    assert refusal(UCXSTORE_UCX=value).endswith(
        f'UCXSTORE_UCX is {value!r}; it takes "wheel" or "system".'
    )


START = """
import os
from ucxstore.base.native import core
core.Client({}, False).open()
assert "UCX_LOG_FILE" not in os.environ
print("a result")
"""


def test_ucx_does_not_write_among_results() -> None:
    process = run(START, UCX_LOG_LEVEL="info")
    assert process.stdout == "a result\n"
    assert "UCX" in process.stderr


def test_ucx_writes_where_the_user_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = run(START.replace("not in", "in"), UCX_LOG_LEVEL="info", UCX_LOG_FILE=str(log))
    assert (process.stdout, process.stderr) == ("a result\n", "")
    assert "UCX" in log.read_text()
