"""Two hosts and more: over the network, and only over it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.hosts.conftest import RunOn
from tests.hosts.network import Host, hosts_on_a_switch, why_not

VALUES = """
values = np.random.default_rng(5).integers(0, 1000, (1200, 1000), "i4")
layouts = {
    "raw": {"chunks": (150, 125), "compressors": None},
    "zstd": {"chunks": (150, 125)},
    "shards": {"chunks": (30, 25), "shards": (150, 125)},
}
"""

WRITE = (
    VALUES
    + """
for name, layout in layouts.items():
    zarr.create_array(store, name=name, data=values, fill_value=-1, **layout)
"""
)

READ = (
    VALUES
    + """
for name in layouts:
    array = zarr.open_array(store, path=name, mode="r")
    np.testing.assert_array_equal(array[...], values)
    np.testing.assert_array_equal(array[5:900:3, 7:800], values[5:900:3, 7:800])
print(*array.store.stats()["lanes"], array.store.stats()["integrity"])
"""
)


@pytest.fixture(scope="module")
def containers() -> Iterator[Sequence[Host]]:
    if (problem := why_not()) is not None:
        pytest.skip(problem)
    with hosts_on_a_switch(2, shares_ipc=True) as containers:
        yield containers


def words(lanes: str) -> set[str]:
    return set(lanes.replace("/", " ").split())


def test_what_one_host_writes_another_reads(hosts: Sequence[Host], run_on: RunOn) -> None:
    serving, writing, reading, _ = hosts
    with serving.serving("memory://"):
        assert run_on(writing, serving.address, WRITE).end() == ""
        assert words(run_on(reading, serving.address, READ).end()) == {"tcp", "True"}
        at_home = words(run_on(serving, serving.address, READ).end())
        assert at_home == {"tcp", "False"}  # no checksums within the host


@pytest.mark.parametrize("way", ["socket", "network"])
def test_containers_that_share_ipc_and_no_network(
    way: str, containers: Sequence[Host], run_on: RunOn, tmp_path: Path
) -> None:
    """They reach one another by a Unix socket in a folder that both see, or else by TCP.

    As PyTorch wants its containers: ``--ipc=host``, and networks and processes of their own.
    """
    serving, using = containers
    segments = {host.output("stat -c %d:%i /dev/shm") for host in containers}
    assert len(segments) == 1, "they share /dev/shm"
    options = ("--socket", str(tmp_path / "socket")) if way == "socket" else ()
    code = """
os.environ["UCXSTORE_LOCAL"] = "auto"
store = UcxStore(store.address, connect_timeout=20)
store.set_sync("key", as_buffer(b"value" * 1_000_000))
assert store.get_sync("key").to_bytes() == b"value" * 1_000_000
print(*store.stats()["lanes"])
"""
    with serving.serving("memory://", *options):
        lanes = run_on(using, serving.address, code).end()
    assert lanes.strip() == ("local" if way == "socket" else "tcp")


def test_one_address_of_several(hosts: Sequence[Host], run_on: RunOn) -> None:
    serving, reading, *_ = hosts
    other = serving.ip.replace("10.99.0.", "10.99.0.10")
    serving.add_address(other)
    code = f"""
store.set_sync("key", as_buffer(b"value"))
elsewhere = UcxStore("ucx://{serving.place}", connect_timeout=5)
try:
    elsewhere.get_sync("key")
except ConnectError as error:
    print(error)
print(store.get_sync("key").to_bytes())
"""
    with serving.serving("memory://", bind=f"{other}:7400"):
        refused, value = run_on(reading, f"ucx://{other}:7400", code).end().splitlines()
    assert serving.place in refused
    assert "refused" in refused
    assert value == "b'value'"


def test_a_slow_link_times_nothing_out(hosts: Sequence[Host], run_on: RunOn) -> None:
    """A value that takes longer than the timeout, and than it takes to notice a lost machine.

    Each of its segments takes 2 s.
    """
    serving, reading, *_ = hosts
    code = """
slow = UcxStore(store.address, timeout=3, connect_timeout=5)
value = np.random.default_rng(5).integers(0, 255, 32_000_000, "u1")
store.set_sync("key", as_buffer(value))
print("set", flush=True)
sys.stdin.readline()
out = filled(BLANK, value.size)
started = time.monotonic()
assert slow.get_into_sync("key", out) == value.size
assert (out == value).all()
print(time.monotonic() - started)
"""
    with serving.serving("memory://"):
        script = run_on(reading, serving.address, code)
        assert script.line() == "set"
        with serving.limited("64mbit"):
            script.say("go on\n")
            assert float(script.end()) > 3
