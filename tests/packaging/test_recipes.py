"""The recipes for conda and Spack ask for what pyproject.toml asks for."""

import re
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import rattler_build
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA = ROOT / "packaging/conda/recipe.yaml"
SPACK = ROOT / "packaging/spack/package.py"

# The same thing under other names: PyPI's, and those of conda-forge and Spack.
OTHER_NAMES = {"libucx-cu12": "ucx"}


def wanted() -> dict[str, SpecifierSet]:
    """Return what the package needs at run time, by the names of conda-forge."""
    found = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    return {OTHER_NAMES.get(one.name, one.name): one.specifier for one in found}


def built_with() -> dict[str, SpecifierSet]:
    found = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    return {OTHER_NAMES.get(one.name, one.name): one.specifier for one in found}


# ---- conda ----


def render(text: str, folder: Path) -> dict[str, Any]:
    """Render the recipe as conda-forge would for x86-64."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(text)
    pins = {"cxx_compiler": ["gxx"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}
    [variant] = rattler_build.Stage0Recipe.from_file(recipe).render(
        rattler_build.VariantConfig(pins),
        rattler_build.RenderConfig(
            platform=rattler_build.PlatformConfig(target_platform="linux-64")
        ),
    )
    rendered: dict[str, Any] = variant.recipe.to_dict()
    return rendered


def ranges(lines: list[str]) -> dict[str, str]:
    return {name: spec for name, _, spec in (line.partition(" ") for line in lines)}


def test_the_conda_recipe_asks_for_what_the_package_needs(tmp_path: Path) -> None:
    recipe = render(CONDA.read_text(), tmp_path)
    assert recipe["package"] == {"name": "ucxstore", "version": PROJECT["project"]["version"]}
    run = ranges(recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["project"]["requires-python"]
    assert {name: SpecifierSet(spec) for name, spec in run.items()} == wanted()
    host = ranges(recipe["requirements"]["host"])
    for name, specifier in built_with().items():
        assert SpecifierSet(host[name].replace("1.18.*", "==1.18.*")) == specifier
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in PROJECT["project"]["scripts"].items()
    ]


def test_a_wrong_conda_recipe_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(rattler_build.RattlerBuildError, match="requirementz"):
        render(CONDA.read_text().replace("requirements:", "requirementz:"), tmp_path)


# ---- Spack ----


class Package:
    """What Spack's ``PythonPackage`` is for a recipe: something to derive from."""


def load(text: str) -> dict[str, Any]:
    """Run a Spack recipe with stand-ins for Spack's directives; return what it has declared."""
    said: dict[str, Any] = {"versions": [], "needs": {}, "variants": set()}
    conditions: list[str] = []

    @contextmanager
    def when(condition: str):  # type: ignore[no-untyped-def]
        conditions.append(condition)
        yield
        conditions.pop()

    def depends_on(spec: str, type: str | tuple[str, ...]) -> None:
        name, at, versions = spec.partition(" ")[0].partition("@")
        said["needs"][name] = (versions if at else "", type, tuple(conditions))

    directives = {
        "PythonPackage": Package,
        "conflicts": lambda spec, msg: None,
        "depends_on": depends_on,
        "license": lambda name: said.update(license=name),
        "variant": lambda name, default, description: said["variants"].add(name),
        "version": lambda number, sha256=None: said["versions"].append(number),
        "when": when,
    }
    exec(compile(text.replace("from spack.package import *", ""), SPACK, "exec"), directives)
    said["class"] = directives["PyUcxstore"]
    return said


def includes(ranges: str, version: str) -> bool:
    """Tell whether Spack's ranges, such as ``1.18:1.21,1.22.1:``, include a version."""
    for one in ranges.split(","):
        low, colon, high = one.partition(":")
        number = Version(version)
        below = Version(high) if high else None
        # Spack's upper end includes all that begins with it: 3 includes 3.9.
        cut = Version(".".join(version.split(".")[: len(high.split("."))])) if high else number
        if Version(low) <= number and (below is None or cut <= below):
            return bool(colon) or number == Version(low)
    return False


def test_the_spack_recipe_asks_for_what_the_package_needs() -> None:
    said = load(SPACK.read_text())
    assert said["versions"] == [PROJECT["project"]["version"]]
    assert said["license"] == PROJECT["project"]["license"]
    needs = said["needs"]
    assert needs["python"] == ("3.12:", ("build", "run"), ())
    for name, specifier in wanted().items():
        found, kinds, conditions = needs[name if name == "ucx" else f"py-{name}"]
        assert "run" in kinds
        assert conditions == ()
        bounds = [
            [*text.split("."), "0", "0"][:3] for text in re.findall(r"[\d.]+", str(specifier))
        ]
        around = [".".join(bound) for bound in bounds]
        around += [".".join([*bound[:2], "99"]) for bound in bounds]
        for version in [*around, "0.9", "1.17.9", "1.21.9", "3.9.9"]:
            expected = specifier.contains(version)
            assert includes(found, version) is expected, f"{name} {version}"
    for name in ("scikit-build-core", "nanobind"):
        [least] = re.findall(r">=([\d.]+)", str(built_with()[name]))
        assert needs[f"py-{name}"][:2] == (f"{least}:", "build")


@pytest.mark.parametrize("extra", ["tools", "dask"])
def test_variants_are_extras(extra: str) -> None:
    said = load(SPACK.read_text())
    assert extra in said["variants"]
    extras = PROJECT["project"]["optional-dependencies"][extra]
    names = {f"py-{Requirement(text).name}" for text in extras}
    assert {name for name, need in said["needs"].items() if need[2] == (f"+{extra}",)} == names


def test_spack_sets_where_ucx_is() -> None:
    package = load(SPACK.read_text())["class"]()

    class Prefix(str):
        lib = "/spack/ucx/lib"

    class Ucx:
        prefix = Prefix("/spack/ucx")

    class Environment(dict[str, str]):
        set = prepend_path = dict.__setitem__

    package.spec = {"ucx": Ucx()}
    build, run = Environment(), Environment()
    package.setup_build_environment(build)
    package.setup_run_environment(run)
    assert build == {"UCX_ROOT": "/spack/ucx"}
    assert run == {"UCXSTORE_UCX": "system", "LD_LIBRARY_PATH": "/spack/ucx/lib"}
