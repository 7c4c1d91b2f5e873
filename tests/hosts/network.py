"""Hosts of our own making: namespaces of the kernel, joined by a bridge.

A host has a network, processes, System V and POSIX shared memory of its own, and the files of the
machine. It lives for as long as a process that reads a pipe of ours: when we are gone, however that
came about, so is the host with all that runs there. Nothing has a name that could be left over.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.eventually import eventually

ROOT = Path(__file__).parents[2]

_LOST = " WARNING ucxstore.server: lost "

# What a server says where its UCX listens beyond loopback, as its data ports ask for.
_UCX_OVER_TCP = " WARNING ucxstore.server: network: UCX over TCP believes whoever connects "

_OWN = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_OWN_IPC = "--ipc"
_OWN_SHM = "mount -t tmpfs tmpfs /dev/shm && "
_LIVE = "mount -t sysfs sysfs /sys && "  # UCX reads it
_LIVE += "ip link set lo up && echo ready && exec cat"
_PORT = 7400

# The hardware address of no host.
_NOBODY = "02:00:00:00:00:fe"


def why_not() -> str | None:
    """Say what is missing to make hosts, if anything is."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    missing = [name for name in ("ip", "tc", "unshare", "nsenter") if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)} here (iproute2, util-linux)"
    made = subprocess.run(
        ["unshare", *_OWN, _OWN_IPC, "true"], capture_output=True, text=True, timeout=20
    )
    return None if made.returncode == 0 else f"no namespaces here: {made.stderr.strip()}"


class Namespaces:
    """The namespaces of a host. A context manager; all that runs inside ends with it.

    Parameters
    ----------
    shares_ipc : bool
        Whether it has the machine's shared memory, System V's and POSIX's, as containers with
        ``--ipc=host`` have.
    """

    def __init__(self, *, shares_ipc: bool = False) -> None:
        own = _OWN if shares_ipc else [*_OWN, _OWN_IPC]
        self._holder = subprocess.Popen(
            ["unshare", *own, "sh", "-c", _LIVE if shares_ipc else _OWN_SHM + _LIVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        ready = self._holder.stdout.readline()
        assert ready == "ready\n", ready
        self.pid = _child_of(self._holder.pid)
        target = ["nsenter", "--target", str(self.pid)]
        self.inside = [*target, "--all", f"--wd={ROOT}", "--"]
        self._on_network = [*target, "--net", "--"]

    def run(self, command: str) -> None:
        """Run a command on its network; the text is split at spaces."""
        subprocess.run([*self._on_network, *command.split()], check=True, timeout=20)

    def output(self, command: str) -> str:
        """Run a command inside, and return its output; the text is split at spaces."""
        done = subprocess.run(
            [*self.inside, *command.split()], capture_output=True, text=True, check=True, timeout=20
        )
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._holder.stdin is not None
        with self._holder:
            self._holder.stdin.close()
            self._holder.wait(20)


class Host(Namespaces):
    """A host, with its link to the others.

    Parameters
    ----------
    number : int
    shares_ipc : bool
        As of `Namespaces`.
    """

    def __init__(self, number: int, *, shares_ipc: bool = False) -> None:
        super().__init__(shares_ipc=shares_ipc)
        self.ip = f"10.99.0.{number}"
        self.place = f"{self.ip}:{_PORT}"
        self.address = f"ucx://{self.place}"
        self._port = f"port{number}"

    def link_to(self, switch: Namespaces) -> None:
        """Make the link, whose other end is a port of the switch."""
        self._switch = switch
        switch.run(f"ip link add {self._port} type veth peer name eth0 netns {self.pid}")
        self.add_address(self.ip)
        self.run("ip link set eth0 up")
        self.plug()
        self.await_link("eth0")

    def await_link(self, device: str) -> None:
        """Wait until a device's link is up: the kernel notes that a little later."""
        show = [*self._on_network, "ip", "link", "show", device]
        eventually(lambda: b" state UP " in subprocess.check_output(show, timeout=20))

    def add_address(self, ip: str) -> None:
        """Add an address."""
        self.run(f"ip addr add {ip}/24 dev eth0")

    def plug(self) -> None:
        """Join the link to the switch."""
        self._switch.run(f"ip link set {self._port} master bridge up")

    def unplug(self) -> None:
        """Let the link go dead: what is sent is lost, and nobody says so."""
        self._switch.run(f"ip link set {self._port} down")

    def cut(self, ip: str) -> None:
        """Let nothing get to an address any more, and nobody know: what is sent goes nowhere."""
        self.run(f"ip neigh replace {ip} lladdr {_NOBODY} dev eth0 nud permanent")

    def mend(self, ip: str) -> None:
        """Let what is sent there arrive again."""
        self.run(f"ip neigh del {ip} lladdr {_NOBODY} dev eth0")

    def end(self, entered: int, how: signal.Signals = signal.SIGTERM) -> None:
        """End a program that was started inside, given the process that entered the namespaces."""
        os.kill(_child_of(entered), how)

    @contextmanager
    def barring(self, ports: str, *, rejects: bool) -> Iterator[None]:
        """Let a firewall at the host bar what comes to some TCP ports.

        Parameters
        ----------
        ports : str
            One, or a range.
        rejects : bool
            Whether it tells the sender so; else it drops it.
        """
        what = f"iif eth0 ipproto tcp dport {ports} {'prohibit' if rejects else 'blackhole'}"
        # Who forwards nothing tells nobody. And a host's own addresses come before all rules.
        self.write("/proc/sys/net/ipv4/ip_forward", str(int(rejects)))
        self.run("ip rule add pref 20 lookup local")
        self.run("ip rule del pref 0")
        self.run(f"ip rule add pref 10 {what}")
        try:
            yield
        finally:
            self.run(f"ip rule del pref 10 {what}")
            self.run("ip rule add pref 0 lookup local")
            self.run("ip rule del pref 20")
            self.write("/proc/sys/net/ipv4/ip_forward", "0")

    def write(self, path: str, text: str) -> None:
        """Write to a file, as the host sees it."""
        subprocess.run(
            [*self.inside, "tee", path],
            input=text,
            stdout=subprocess.DEVNULL,
            text=True,
            check=True,
            timeout=20,
        )

    @contextmanager
    def knowing(self, names: str) -> Iterator[None]:
        """Let the host have these lines as its ``/etc/hosts``."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(names)
            file.flush()
            Path(file.name).chmod(0o644)
            self.output(f"mount --bind {file.name} /etc/hosts")
            try:
                yield
            finally:
                self.output("umount /etc/hosts")

    @contextmanager
    def limited(self, rate: str) -> Iterator[None]:
        """Limit the rate at which the host can send."""
        limit = f"rate {rate} burst 64kb latency 100ms"
        self.run(f"tc qdisc add dev eth0 root tbf {limit}")
        try:
            yield
        finally:
            self.run("tc qdisc del dev eth0 root")

    @contextmanager
    def serving(
        self,
        root: str | Path,
        *options: str,
        bind: str = "",
        loses_client: bool = False,
        warns: str = "\n",
    ) -> Iterator[Self]:
        """Run ``ucxstore serve``, which must end well, and only report a client that it loses.

        Or what else the test expects it to say.
        """
        command = [sys.executable, "-m", "ucxstore", "serve", str(root), "--insecure", *options]
        server = subprocess.Popen(
            [*self.inside, *command, "--bind", bind or self.place],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with server:
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                assert "serving" in line, server.communicate()[1]
                yield self
            finally:
                self.end(server.pid)
            _, errors = server.communicate(timeout=30)
            others = [
                line
                for line in errors.splitlines()
                if not (loses_client and _LOST in line)
                and not ("--data-ports" in options and _UCX_OVER_TCP in line)
                and warns not in line
            ]
            assert (server.returncode, others) == (0, []), errors


@contextmanager
def hosts_on_a_switch(count: int, *, shares_ipc: bool = False) -> Iterator[Sequence[Host]]:
    """Make hosts, each with a link to one switch."""
    with ExitStack() as stack:
        switch = stack.enter_context(Namespaces())
        switch.run("ip link add bridge type bridge")
        switch.run("ip link set bridge up")
        hosts = [
            stack.enter_context(Host(number, shares_ipc=shares_ipc))
            for number in range(1, count + 1)
        ]
        for host in hosts:
            host.link_to(switch)
        yield hosts


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
