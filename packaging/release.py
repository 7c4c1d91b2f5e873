"""Make all that a release needs, and publish it if asked to. `make release` calls this.

Without --publish it is a dry run: it checks that the files agree on the version, builds the source
distribution, the wheels, the site and the image, and says what is still to do. With --publish
nothing may be left to do, and then it pushes a tag, uploads the packages, and publishes the site.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = ("x86_64", "aarch64")
FILES = ("packaging/conda/*", "packaging/spack/*", "deploy/**/*", "docs/howto/*.md")
CONTAINER_TOOLS = ("docker", "podman")
NO_CONTAINERS = f"neither {' nor '.join(CONTAINER_TOOLS)} answers on this machine"
ACCOUNT = "UV_PUBLISH_TOKEN"

# As files write the version: ucxstore:0.1.0, ucxstore-0.1.0, ucxstore 0.1.0, and as recipes do.
_VERSION = re.compile(
    r'(?:\bucxstore[ :-]|newTag: "|^  version: |\bversion\(")(\d+\.\d+\.\d+)', re.M
)
_CHANGES = re.compile(r"^## \[(\S+)\] - (\S+)\n(.*?)(?=^## |\Z)", re.M | re.S)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def main(argv: Sequence[str] | None = None) -> None:
    """Make a release, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="repeatable")
    parser.add_argument("--image", help="the image's name in a registry, to push it there")
    parser.add_argument("--publish", action="store_true", help="publish what was made")
    arguments = parser.parse_args(argv)
    version = project(ROOT)["version"]
    if wrong := [*disagreements(ROOT, version), *faults_of_changes(ROOT, version)]:
        raise SystemExit("\n".join(wrong))
    remaining = list(to_do(ROOT, version))
    if arguments.image and container_tool() is None:
        remaining.append(f"- {arguments.image} can't be pushed: {NO_CONTAINERS}")
    if arguments.publish and remaining:
        raise SystemExit("\n".join(["not published, since this is to do first:", *remaining]))
    made = list(make(version, arguments.arch or ARCHITECTURES, complete=arguments.publish))
    print("\n".join([f"==== release {version}", *made]))
    if arguments.publish:
        publish(version, arguments.image)
    else:
        print("\n".join(["==== a dry run: nothing was published. To do before that:", *remaining]))
        print("then: make release PUBLISH=1")


def project(root: Path) -> dict[str, str]:
    """Return what pyproject.toml says about the project."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


# ---- what is checked ----


def disagreements(root: Path, version: str) -> Iterator[str]:
    """Yield each place that names another version of ucxstore than pyproject.toml."""
    for path in sorted({path for pattern in FILES for path in root.glob(pattern)}):
        if path.is_file():
            text = path.read_text()
            for match in _VERSION.finditer(text):
                if match[1] != version:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root)}:{line}: {match[1]}, but this is {version}"


def faults_of_changes(root: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with the newest section of the changelog."""
    newest = _CHANGES.search((root / "CHANGELOG.md").read_text())
    if newest is None:
        yield "CHANGELOG.md: no section '## [VERSION] - DATE'"
        return
    named, when, text = newest.groups()
    if named != version:
        yield f"CHANGELOG.md: the newest section is of {named}, but this is {version}"
    if when != "unreleased" and not _DATE.fullmatch(when):
        yield f"CHANGELOG.md: {named} is of {when!r}; write a date, or 'unreleased'"
    if not re.search(r"^- ", text, re.M):
        yield f"CHANGELOG.md: {named} lists no changes"


def changes(root: Path) -> tuple[str, str]:
    """Return the date and the text of the changelog's newest section."""
    newest = _CHANGES.search((root / "CHANGELOG.md").read_text())
    assert newest is not None
    return newest[2], newest[3].strip() + "\n"


def to_do(root: Path, version: str) -> Iterator[str]:
    """Yield what a maintainer has to do before this can be published."""
    if changes(root)[0] == "unreleased":
        yield f"- CHANGELOG.md: write the date in place of 'unreleased' at {version}"
    if "urls" not in project(root):
        yield "- pyproject.toml: add [project.urls], so that the index links to the repository"
    if git(root, "status", "--porcelain") != "":
        yield "- commit, or remove, what `git status` shows"
    if git(root, "tag", "--list", f"v{version}") != "":
        yield f"- the tag v{version} is there already: raise the version"
    if "origin" not in (git(root, "remote") or "").split():
        yield "- git remote add origin ...: the tag and the site go there"
    if not os.environ.get(ACCOUNT):
        yield f"- export {ACCOUNT}=...: the account's token at the package index"


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints; `None` if it fails, as outside of a checkout."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


# ---- what is made ----


def make(version: str, architectures: Sequence[str], complete: bool) -> Iterator[str]:
    """Make everything, and yield a line about each; raise an error if all must be there."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    missing = {arch: reason for arch in architectures if (reason := why_no_wheel(arch))}
    if complete and missing:
        raise SystemExit("\n".join(missing.values()))
    for arch in architectures:
        if arch == platform.machine():
            run("make", "check-wheel")
        elif arch not in missing:
            run("make", "wheels", f"ARCH={arch}")
    run("make", "docs")
    yield f"version    {version}, in all files; CHANGELOG.md: {changes(ROOT)[0]}"
    for package in packages(dist, version):
        yield f"package    dist/{package.name}, {package.stat().st_size / 1e6:.1f} MB"
    for arch, reason in missing.items():
        yield f"package    none for {arch}: {reason}"
    yield f"site       build/site, {len(list((ROOT / 'build/site').rglob('*.html')))} pages"
    yield f"image      {make_image(version)}"
    (dist / "NOTES.md").write_text(changes(ROOT)[1])
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
            for file in packages(dist, version)]  # fmt: skip
    (dist / "SHA256SUMS").write_text("".join(sums))
    yield "notes      dist/NOTES.md, dist/SHA256SUMS"


def packages(dist: Path, version: str) -> list[Path]:
    """Return the source distribution and the wheels."""
    return sorted(
        [*dist.glob(f"ucxstore-{version}.tar.gz"), *dist.glob(f"ucxstore-{version}-*.whl")]
    )


def why_no_wheel(arch: str) -> str | None:
    """Return what this machine lacks to build a wheel of an architecture; `None` for nothing."""
    asked = subprocess.run(
        [sys.executable, "-c", f"import build; build.objcopy({arch!r})"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "packaging/wheels")},
        capture_output=True,
        text=True,
    )
    return asked.stderr.strip() or None


def make_image(version: str) -> str:
    """Build the image, where a container tool answers; return what came of it."""
    tool = container_tool()
    if tool is None:
        return f"not built: {NO_CONTAINERS}"
    name = f"ucxstore:{version}"
    run(tool, "build", "--file", "deploy/docker/Dockerfile", "--tag", name, ".")
    return f"{name}, by {tool}"


def container_tool() -> str | None:
    """Return a tool that builds images: one that is there, and whose service runs."""
    for tool in CONTAINER_TOOLS:
        if shutil.which(tool):
            asked = subprocess.run([tool, "info"], capture_output=True, timeout=60)
            if asked.returncode == 0:
                return tool
    return None


# ---- what is published ----


def publish(version: str, image: str | None) -> None:
    """Push the tag, upload the packages, publish the site, and push the image."""
    tag = f"v{version}"
    run("git", "tag", "--annotate", tag, "--file", "dist/NOTES.md", "--cleanup=verbatim")
    run("git", "push", "origin", tag)
    run(Path(sys.executable).with_name("uv"), "publish", *packages(ROOT / "dist", version))
    run("make", "docs-publish")
    if image is not None:
        tool = container_tool()
        run(tool, "tag", f"ucxstore:{version}", f"{image}:{version}")
        run(tool, "push", f"{image}:{version}")
    print(f"published {version}")


def run(*command: object) -> None:
    """Run a command in the repository; end if it fails."""
    words = [str(word) for word in command]
    print("----", " ".join(words), flush=True)
    if subprocess.run(words, cwd=ROOT).returncode:
        raise SystemExit(f"{' '.join(words)} failed")


if __name__ == "__main__":
    main()
