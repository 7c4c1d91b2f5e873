"""Networks between a server and its clients: loopback, and two namespaces joined by a link.

A namespace lives for as long as a process that reads a pipe of ours, and the programs inside end
with their input: when we are gone, however that came about, so is all of it. Nothing has a name
that could be left over.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.network.programs import ROOT

LOOPBACK = "loopback"
VETH = "veth"
# The rates at which each end of a link may send, as tc takes them; None: as fast as it can.
NETWORKS: dict[str, str | None] = {
    LOOPBACK: None,
    VETH: None,
    "10 Gbit/s": "10gbit",
    "1 Gbit/s": "1gbit",
}

_TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")
_SECONDS = 20.0
# For programs that do not end with their input.
_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
# What a host may send at once, after a pause; and how long what is above the rate may wait.
_BURSTS = {"10gbit": "2mb", "1gbit": "256kb"}
_LATENCY = "20ms"
_LIVE = "mount -t sysfs sysfs /sys && ip link set lo up && echo ready && exec cat"  # UCX reads it


@dataclass(frozen=True, slots=True)
class End:
    """A host: its address, its network device, and what goes before a command to run it there."""

    ip: str
    device: str
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A network, with the host of the server and the one of its clients."""

    name: str
    server: End
    client: End


def why_not(name: str) -> str | None:
    """Say why there can be no network of this name, if that is so."""
    if name == LOOPBACK:
        return None
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        return f"no {', '.join(missing)} here (iproute2, util-linux)"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, text=True, timeout=_SECONDS
    )
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


@contextmanager
def linked(name: str) -> Iterator[Link]:
    """Make a network, which ends with the context."""
    if name == LOOPBACK:
        end = End("127.0.0.1", "lo", _DIE_WITH_US if shutil.which(_DIE_WITH_US[0]) else ())
        yield Link(name, end, end)
        return
    with ExitStack() as stack:
        pids = [stack.enter_context(_namespace()) for _ in range(2)]
        _run_inside(pids[0], f"ip link add eth0 type veth peer name eth0 netns {pids[1]}")
        ends = [_end(pid, f"10.98.0.{number}") for number, pid in enumerate(pids, start=1)]
        for pid in pids:
            _await_link(pid)
            if rate := NETWORKS[name]:
                limit = f"rate {rate} burst {_BURSTS[rate]} latency {_LATENCY}"
                _run_inside(pid, f"tc qdisc add dev eth0 root tbf {limit}")
        yield Link(name, *ends)


@contextmanager
def _namespace() -> Iterator[int]:
    """Yield a process with a network of its own."""
    with subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-c", _LIVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as holder:
        try:
            assert holder.stdin is not None
            assert holder.stdout is not None
            if holder.stdout.readline() != "ready\n":
                raise RuntimeError("there is no network namespace")
            yield holder.pid
        finally:
            holder.kill()


def _end(pid: int, ip: str) -> End:
    _run_inside(pid, f"ip addr add {ip}/24 dev eth0")
    _run_inside(pid, "ip link set eth0 up")
    enter = ("nsenter", "--target", str(pid), "--net", "--mount", f"--wd={ROOT}", "--")
    return End(ip, "eth0", (*enter, *_DIE_WITH_US))


def _run_inside(pid: int, command: str) -> str:
    enter = ["nsenter", "--target", str(pid), "--net", "--mount", "--"]
    done = subprocess.run(
        [*enter, *command.split()], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
    return done.stdout


def _await_link(pid: int) -> None:
    """Wait until the kernel says that the link is up, which takes it a moment."""
    end = time.monotonic() + _SECONDS
    while " state UP " not in _run_inside(pid, "ip link show dev eth0"):
        if time.monotonic() > end:
            raise RuntimeError(f"the link is not up after {_SECONDS:g} s")
        time.sleep(0.02)
