"""Do what a page says, as a reader with a terminal and a Python prompt would.

``python -m tests.docs.reader PAGE`` runs the blocks of a page in the current folder, on a network
of their own: the ports that pages name may be in use on this machine. All is done twice while the
page's servers go on serving, as by readers who come back. Each section has a Python of its own, by
a new ``__main__``: names that it does not define, or import, are missing there.
"""

import array
import ast
import asyncio
import fcntl
import inspect
import os
import re
import socket
import struct
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryFile

import psutil

from tests.docs.blocks import Block, blocks_of
from tests.eventually import nothing_happens

# How often a page is read. A second time finds what a first one leaves in the way.
PASSES = 2
# Seconds for a command, and for a server to listen or to end.
_SECONDS = 120
_PORT = re.compile(r"--(?:bind|metrics)[ =]\S*:(\d+)")
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_NUMBER = re.compile(r"\d+(\.\d+)*")


def main() -> None:
    page = Path(sys.argv[1])
    leave_network()
    with ExitStack() as terminals:
        for number in range(PASSES):
            print(f"\n=== pass {number + 1} of {page.name}", flush=True)
            _read(page, terminals if number == 0 else None)


def _read(page: Path, terminals: ExitStack | None) -> None:
    """Do what a page says; its servers are started in terminals, or run already."""
    python = _new_python()
    section = None
    blocks = blocks_of(page.read_text())
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        print(f"\n--- {page.name}, line {block.line}", flush=True)
        with nullcontext() if after is None or not after.is_output else _compared(after.text):
            if block.file is not None:
                Path(block.file).write_text(block.text)
            elif block.is_server:
                if terminals is not None:
                    terminals.enter_context(_terminal(block))
            elif block.language == "sh":
                _shell(block.text)
            elif block.language == "python":
                if block.section != section and not block.goes_on:
                    python = _new_python()
                section = block.section
                _python(block, str(page), python)


def _new_python() -> dict[str, object]:
    """Return the names of a new ``__main__``, which pickle sends by value, as from a prompt."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    return sys.modules["__main__"].__dict__


def leave_network() -> None:
    """Move to a network namespace of our own, which has a loopback device alone.

    Raises
    ------
    OSError
        The kernel allows this user none.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        os.unshare(os.CLONE_NEWNET)
    else:
        os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        # struct ifreq: the device's name and its flags; see netdevice(7).
        request = array.array("B", struct.pack("16sh14x", b"lo", _IFF_UP))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


@contextmanager
def _compared(expected: str) -> Iterator[None]:
    """Raise an error unless what is printed, by children too, has the expected lines."""
    sys.stdout.flush()
    with TemporaryFile("w+") as file:
        terminal = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(terminal, 1)
            os.close(terminal)
            file.seek(0)
            printed = file.read()
            print(printed, flush=True)
    assert (missing := unprinted(expected, printed)) == [], f"not printed: {missing}"


def unprinted(expected: str, printed: str) -> list[str]:
    """Return the lines of an output that were not printed, or in another order."""
    shapes = iter([_shape(line) for line in printed.splitlines()])
    wanted = (line for line in expected.splitlines() if line != "...")
    return [line for line in wanted if _shape(line) not in shapes]


def _shape(line: str) -> str:
    return _NUMBER.sub("0", " ".join(line.split()))


def _python(block: Block, name: str, namespace: dict[str, object]) -> None:
    source = "\n" * (block.line - 1) + block.text  # so that a traceback has the page's lines
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))
    else:
        exec(code, namespace)


def _shell(text: str) -> None:
    """Run commands; what they export stays, as in a terminal."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as exported:
        keep = f"trap 'env -0 >&{writing}' EXIT\n"
        try:
            subprocess.run(["bash", "-euo", "pipefail", "-c", keep + text], check=True,
                           pass_fds=[writing], timeout=_SECONDS)  # fmt: skip
        finally:
            os.close(writing)
        for entry in exported.read().split(b"\0"):
            name, equals, value = os.fsdecode(entry).partition("=")
            if equals and name not in ("_", "SHLVL"):
                os.environ[name] = value


@contextmanager
def _terminal(block: Block) -> Iterator[None]:
    """Start a server, wait until it listens, and interrupt it at the end."""
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        _wait_until_it_listens(server, {int(port) for port in _PORT.findall(block.text)})
        yield
    finally:
        _end(server)


def _wait_until_it_listens(server: subprocess.Popen[bytes], ports: set[int]) -> None:
    """Wait until it listens at all of the ports, or at any if none is named."""
    deadline = time.monotonic() + _SECONDS
    while server.poll() is None:
        found = set(_ports_of(server.pid))
        if found and ports <= found:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server listens at {found}, and not at all of {ports}")
        nothing_happens(0.02)
    raise RuntimeError(f"the server has ended with status {server.returncode}")


def _ports_of(pid: int) -> Iterator[int]:
    try:
        first = psutil.Process(pid)
        processes = [first, *first.children(recursive=True)]
        for process in processes:
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    yield connection.laddr.port
    except psutil.NoSuchProcess:
        pass


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a terminal's processes."""
    try:
        processes = psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        processes = []
    for process in processes or [server]:
        process.terminate()
    psutil.wait_procs(processes, timeout=_SECONDS)
    try:
        server.wait(_SECONDS)
    finally:
        for process in [*processes, server]:
            process.kill()


if __name__ == "__main__":
    main()
