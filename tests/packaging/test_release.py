"""What `make release` checks, makes and publishes. Continuous integration makes its dry run."""

import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
CHANGES = (
    "# Changes\n\n## [1.2.3] - {}\n\n### Added\n\n- A thing.\n\n## [1.2.2] - 2020-01-01\n\n- Old.\n"
)

_loader = SourceFileLoader("release", str(ROOT / "packaging/release.py"))
_spec = spec_from_loader(_loader.name, _loader)
assert _spec is not None
release: ModuleType = module_from_spec(_spec)
_loader.exec_module(release)


def write(root: Path, **files: str) -> None:
    """Write files by their names, with a dot for each double underscore."""
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)


# ---- the version ----


def test_the_files_of_this_repository_agree_on_the_version() -> None:
    version = release.project(ROOT)["version"]
    assert list(release.disagreements(ROOT, version)) == []
    assert list(release.faults_of_changes(ROOT, version)) == []


def test_each_file_that_names_another_version_is_told() -> None:
    named = {line.partition(":")[0] for line in release.disagreements(ROOT, "99.0.0")}
    assert named >= {
        "deploy/docker/Dockerfile",
        "deploy/docker/compose.yaml",
        "deploy/kubernetes/client.yaml",
        "deploy/kubernetes/kustomization.yaml",
        "docs/howto/configure.md",
        "docs/howto/docker.md",
        "docs/howto/install.md",
        "packaging/conda/recipe.yaml",
        "packaging/spack/package.py",
    }


def test_the_line_of_another_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/compose.yaml").write_text("a:\n  image: ucxstore:1.2.2\n")
    assert list(release.disagreements(tmp_path, "1.2.3")) == [
        "deploy/compose.yaml:2: 1.2.2, but this is 1.2.3"
    ]


# ---- the changelog ----


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CHANGES.format("2026-01-31"), None),
        (CHANGES.format("unreleased"), None),
        (CHANGES.format("soon"), "'soon'; write a date"),
        (CHANGES.format("2026-01-31").replace("[1.2.3]", "[1.2.4]"), "is of 1.2.4, but this is"),
        (CHANGES.format("2026-01-31").replace("- A thing.", ""), "lists no changes"),
        ("# Changes\n", "no section"),
    ],
)
def test_faults_of_the_changelog_are_told(text: str, fault: str | None, tmp_path: Path) -> None:
    write(tmp_path, CHANGELOG__md=text)
    found = list(release.faults_of_changes(tmp_path, "1.2.3"))
    assert found == [] if fault is None else fault in found[0]


def test_the_notes_are_the_newest_section_alone(tmp_path: Path) -> None:
    write(tmp_path, CHANGELOG__md=CHANGES.format("2026-01-31"))
    assert release.changes(tmp_path) == ("2026-01-31", "### Added\n\n- A thing.\n")


# ---- what is to do ----


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which nothing is to do."""
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setenv(release.ACCOUNT, "token")
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "a")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.org")
    project = '[project]\nversion = "1.2.3"\nurls = {Source = "https://example.org"}\n'
    write(root, pyproject__toml=project, CHANGELOG__md=CHANGES.format("2026-01-31"),
          **{"__gitignore": "/dist/\n/build/\n"})  # fmt: skip
    git(root, "init", "--quiet")
    commit(root)
    git(root, "remote", "add", "origin", "https://example.org/r")
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", root, *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "A")


def without_account(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(release.ACCOUNT)


def unreleased(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, CHANGELOG__md=CHANGES.format("unreleased"))
    commit(root)


def without_urls(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, pyproject__toml='[project]\nversion = "1.2.3"\n')
    commit(root)


@pytest.mark.parametrize(
    ("lack", "told"),
    [
        (without_account, "export UV_PUBLISH_TOKEN"),
        (unreleased, "write the date in place of 'unreleased' at 1.2.3"),
        (without_urls, "[project.urls]"),
        (lambda root, patch: write(root, new="x"), "commit, or remove"),
        (lambda root, patch: git(root, "tag", "v1.2.3"), "the tag v1.2.3 is there already"),
        (lambda root, patch: git(root, "remote", "remove", "origin"), "git remote add origin"),
    ],
)
def test_what_is_to_do_is_told(
    lack: Callable[[Path, pytest.MonkeyPatch], None],
    told: str,
    ready: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(release.to_do(ready, "1.2.3")) == []
    lack(ready, monkeypatch)
    [line] = release.to_do(ready, "1.2.3")
    assert told in line


# ---- make, and publish ----


@pytest.fixture
def commands(ready: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run in the ready repository: noted, with what `make` leaves there."""
    ran: list[str] = []

    def run(*command: object) -> None:
        ran.append(" ".join(map(str, command)))
        for folder, name in {
            "make check-wheel": ("dist", f"ucxstore-1.2.3-cp312-abi3-{platform.machine()}.whl"),
            "make wheels ARCH=aarch64": ("dist", "ucxstore-1.2.3-cp312-abi3-aarch64.whl"),
            "make wheels ARCH=x86_64": ("dist", "ucxstore-1.2.3-cp312-abi3-x86_64.whl"),
            "make docs": ("build/site", "index.html"),
        }.items():
            if ran[-1] == folder:
                (ready / name[0]).mkdir(parents=True, exist_ok=True)
                (ready / name[0] / name[1]).write_text("x")

    monkeypatch.setattr(release, "ROOT", ready)
    monkeypatch.setattr(release, "run", run)
    monkeypatch.setattr(release, "container_tool", lambda: None)
    monkeypatch.setattr(release, "why_no_wheel", lambda arch: None)
    return ran


def test_a_dry_run_makes_all_and_publishes_nothing(
    commands: list[str], ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ready / "dist").mkdir()
    (ready / "dist/ucxstore-1.2.2-cp312-abi3-x86_64.whl").touch()
    release.main([])
    assert sorted(commands) == ["make check-wheel", "make docs", f"make wheels ARCH={OTHER}"]
    said = capsys.readouterr().out
    assert f"dist/ucxstore-1.2.3-cp312-abi3-{OTHER}.whl" in said
    assert "image      not built: neither docker nor podman answers" in said
    assert "nothing was published" in said
    assert {file.name for file in (ready / "dist").iterdir()} == {
        "NOTES.md",
        "SHA256SUMS",
        "ucxstore-1.2.3-cp312-abi3-x86_64.whl",
        "ucxstore-1.2.3-cp312-abi3-aarch64.whl",
    }
    subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=ready / "dist", check=True)


def test_a_wheel_that_cannot_be_built_here_is_told(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "why_no_wheel", {OTHER: "no objcopy"}.get)
    release.main([])
    assert f"none for {OTHER}: no objcopy" in capsys.readouterr().out
    commands.clear()
    with pytest.raises(SystemExit, match=r"^no objcopy$"):
        release.main(["--publish"])
    assert commands == []


def test_nothing_is_made_or_published_before_all_is_done(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(release.ACCOUNT)
    with pytest.raises(SystemExit, match="to do first:\n- export UV_PUBLISH_TOKEN"):
        release.main(["--publish"])
    assert commands == []


def test_an_image_is_asked_for_that_cannot_be_pushed(commands: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"to do first:\n- example\.org/ucxstore can't be pushed"):
        release.main(["--publish", "--image", "example.org/ucxstore"])
    assert commands == []


def test_the_tag_goes_before_what_cannot_be_taken_back(
    commands: list[str], ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "container_tool", lambda: "podman")
    release.main(["--publish", "--arch", platform.machine(), "--image", "example.org/ucxstore"])
    wheel = ready / f"dist/ucxstore-1.2.3-cp312-abi3-{platform.machine()}.whl"
    assert commands == [
        "make check-wheel",
        "make docs",
        "podman build --file deploy/docker/Dockerfile --tag ucxstore:1.2.3 .",
        "git tag --annotate v1.2.3 --file dist/NOTES.md --cleanup=verbatim",
        "git push origin v1.2.3",
        f"{Path(sys.executable).with_name('uv')} publish {wheel}",
        "make docs-publish",
        "podman tag ucxstore:1.2.3 example.org/ucxstore:1.2.3",
        "podman push example.org/ucxstore:1.2.3",
    ]


def test_a_container_tool_that_does_not_answer_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release.container_tool() is None
    for name, status in {"docker": 1, "podman": 0}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    assert release.container_tool() == "podman"
