"""What checks a wheel: for which Pythons, and which wheel of a folder."""

import os
import platform
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load(path: str) -> ModuleType:
    """Import a script."""
    loader = SourceFileLoader(Path(path).stem, str(ROOT / path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with this machine's wheel, and a newer one of another's."""
    for age, machine in enumerate(["other", platform.machine()]):
        wheel = tmp_path / f"ucxstore-0.1.0-cp312-abi3-manylinux_2_28_{machine}.whl"
        wheel.touch()
        os.utime(wheel, (1e9 - age, 1e9 - age))
    return tmp_path


def test_a_missing_python_fails_the_check_unless_it_is_allowed(
    dist: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = load("packaging/wheels/check.py")
    monkeypatch.setattr(check, "find_pythons", lambda: {(3, 13): Path(sys.executable)})
    monkeypatch.setattr(check, "check", lambda wheel, python: f"checked {wheel.name}")
    with pytest.raises(SystemExit, match=r"^not checked, since this machine has no Python 3\.12: "):
        check.main(["--dist", str(dist)])
    check.main(["--dist", str(dist), "--allow-missing"])
    assert capsys.readouterr().out.splitlines() == [
        "not checked, since this machine has no Python 3.12",
        "the newest Python of this machine is 3.13",
        f"checked ucxstore-0.1.0-cp312-abi3-manylinux_2_28_{platform.machine()}.whl",
    ]


def test_the_newcomer_takes_the_wheel_of_this_machine(dist: Path) -> None:
    newcomer = load("scripts/newcomer")
    [wheel] = newcomer.wheels_in(dist)
    assert wheel.name.endswith(f"_{platform.machine()}.whl")
    assert newcomer.wheels_in(dist / "none") == []
