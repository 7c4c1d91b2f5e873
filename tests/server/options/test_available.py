"""How much memory a process may use, in groups of control as containers and hosts have them."""

from pathlib import Path

import pytest

from ucxstore.server.options.available import SHARE, available_memory, default_memory

GIB = 1 << 30
V2 = "30 29 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
V1 = "31 29 0:27 {root} /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
OTHER = "22 1 0:20 / /proc rw - proc proc rw\nnonsense\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", f"MemFree: 1 kB\nMemTotal:  {64 << 20} kB\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(root: Path, own: str, mounts: str) -> None:
    write(root, "proc/self/cgroup", own)
    write(root, "proc/self/mountinfo", OTHER + mounts)


def test_the_machine(host: Path) -> None:
    assert available_memory(host) == 64 * GIB


def test_without_a_proc(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 1 << 20


@pytest.mark.parametrize("file", ["a/b/memory.max", "a/memory.max", "memory.max", "a/memory.high"])
def test_a_group_or_one_above_it(host: Path, file: str) -> None:
    group(host, "0::/a/b\n", V2.format(root="/"))
    write(host, "sys/fs/cgroup/a/b/memory.max", "max\n")
    write(host, f"sys/fs/cgroup/{file}", f"{2 * GIB}\n")
    assert available_memory(host) == 2 * GIB


def test_the_least_counts(host: Path) -> None:
    group(host, "0::/a/b\n", V2.format(root="/"))
    write(host, "sys/fs/cgroup/a/b/memory.max", f"{4 * GIB}\n")
    write(host, "sys/fs/cgroup/a/memory.max", f"{3 * GIB}\n")
    write(host, "sys/fs/cgroup/memory.max", f"{100 * GIB}\n")
    assert available_memory(host) == 3 * GIB


@pytest.mark.parametrize(
    ("own", "root"),
    [
        ("0::/\n", "/"),  # a namespace of its own
        ("0::/docker/x\n", "/docker/x"),  # the host's names, and only its own folder mounted
        ("0::/../x\n", "/"),
    ],
)
def test_a_container(host: Path, own: str, root: str) -> None:
    group(host, own, V2.format(root=root))
    write(host, "sys/fs/cgroup/memory.max", f"{GIB}\n")
    assert available_memory(host) == GIB


def test_version_1(host: Path) -> None:
    group(host, "9:cpu:/\n4:hugetlb,memory:/jobs/7\n0::/\n", V1.format(root="/"))
    write(host, "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    assert available_memory(host) == 64 * GIB
    write(host, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", f"{5 * GIB}\n")
    assert available_memory(host) == 5 * GIB


@pytest.mark.parametrize("text", ["max\n", "", "many\n", "0\n", "-5\n"])
def test_what_is_no_limit(host: Path, text: str) -> None:
    group(host, "0::/a\n", V2.format(root="/"))
    write(host, "sys/fs/cgroup/a/memory.max", text)
    assert available_memory(host) == 64 * GIB


def test_the_default_is_a_share_of_it() -> None:
    assert default_memory() == int(available_memory() * SHARE)
