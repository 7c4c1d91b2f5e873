"""A server and a client, forked for each line of the input, of which one runs out of something.

A program, for `scarcity.Family`: it writes a line with what has become of each pair.
"""

import atexit
import ctypes
import faulthandler
import gc
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from zarr.core.sync import sync

from tests.adversity.scarcity import SECONDS, Case, Outcome
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import Server, UcxStore
from ucxstore.base.native import core

# Where UCX has no descriptor for its thread of asynchronous events, it fails an assertion. So the
# core looks whether there are enough before it makes a worker.
FATAL_IN_UCX = ("ucs_async_pipe_create", "ucs_event_set_create")

# Files that a process keeps once it has served or connected: UCX's, the recycler's timer, the event
# loop and the threads of the client.
KEPT = 24

_OPTIONS: dict[str, Any] = {
    "local": {"local": "auto"},
    "shm": {"local": "ucx", "ucx": {"TLS": "posix,self,tcp"}},
    "tcp": {"local": "ucx", "ucx": {"TLS": "tcp"}},
}

SMALL = b"value" * 20
LARGE = np.random.default_rng(1).integers(0, 256, 700_000, np.uint8)
HUGE = np.random.default_rng(2).integers(0, 256, 5_000_000, np.uint8)


# ---- the library ----


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.scarcity_spare.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    library.scarcity_report.restype = ctypes.c_char_p
    library.scarcity_end.restype = library.scarcity_failed.restype = ctypes.c_long
    library.scarcity_arm.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    return library


# nanobind's functions and those that it instantiates, but for the ones that call the core's.
_NANOBIND = re.compile(
    r"^(?!.*func_create)((void|bool) )?(nanobind::|tsl::)|shared_from_python|py_deleter|tsl::detail"
)


def _spare_nanobind(module: str) -> None:
    """Spare nanobind's own allocations, which end the process where they fail.

    They are in functions that may not throw: the maps of its instances, and the casters that make a
    shared_ptr. They run as Python makes an object of the core's, or gives it one.
    """
    with Path("/proc/self/maps").open() as maps:
        base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(module))
    named = subprocess.run(
        ["nm", "-C", "-n", "-S", "--defined-only", module],
        env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in named.stdout.splitlines():
        found = re.match(r"([0-9a-f]+) ([0-9a-f]+) \w (.*)", line)
        if found and _NANOBIND.search(found[3]):
            begin = base + int(found[1], 16)
            _library().scarcity_spare(begin, begin + int(found[2], 16))


class Scarcity:
    """The library in one process, which runs out of something if that is wanted of it.

    Parameters
    ----------
    case : Case
    n, failures : int
        As for `Family.run`.
    wanted : bool
    """

    def __init__(self, case: Case, n: int, failures: int, *, wanted: bool) -> None:
        self._library = _library()
        self._arguments = (case.kind, case.callers, n, failures)
        self._wanted = wanted
        self.counted = 0

    def begin(self) -> None:
        if self._wanted:
            self._library.scarcity_arm(*self._arguments)

    def end(self) -> None:
        if self._wanted:
            self.counted = max(self.counted, self._library.scarcity_end())

    @property
    def failed(self) -> int:
        return int(self._library.scarcity_failed()) if self._wanted else 0


# ---- the client, and the server ----


class Session:
    """What a client does with its store.

    Parameters
    ----------
    store : UcxStore
    errors : list of str or None
        Takes the exceptions; ``None`` if there must be none.
    """

    def __init__(self, store: UcxStore, errors: list[str] | None) -> None:
        self._store = store
        self._errors = errors

    def run(self) -> None:
        store = self._store
        for _ in range(2):
            self._attempt(lambda: store.set_sync("small", as_buffer(SMALL)))
            self._attempt(lambda: store.set_sync("folder/large", as_buffer(LARGE)))
            self._attempt(lambda: store.set_sync("folder/huge", as_buffer(HUGE)))
            self._attempt(lambda: self._get("small", SMALL))
            self._attempt(lambda: self._get("folder/large", LARGE.tobytes()))
            self._attempt(self._get_into)
            self._attempt(lambda: sync(self._list()))
            self._attempt(lambda: store.delete_sync("small"))
            self._attempt(lambda: sync(store.delete_dir("folder")))

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except AssertionError:
            raise
        except Exception as error:
            if self._errors is None:
                raise
            self._errors.append(named(error))

    def _get(self, key: str, wanted: bytes) -> None:
        found = self._store.get_sync(key)
        assert self._errors or found is not None, f"{key} is lost"
        assert found is None or found.to_bytes() == wanted, f"{key} is wrong"

    def _get_into(self) -> None:
        out = np.zeros_like(HUGE)
        if self._store.get_into_sync("folder/huge", out) is not None:
            assert (out == HUGE).all(), "folder/huge is wrong"

    async def _list(self) -> list[str]:
        return [key async for key in self._store.list_prefix("")]


def named(error: Exception) -> str:
    """Return an exception as text. It must say what has happened, and not be a time-out."""
    text = f"{type(error).__name__}: {error}"
    assert str(error), f"no words: {text}"
    assert not isinstance(error, TimeoutError), f"nobody has said that it failed: {text}"
    return text


def connect(address: str, way: str, errors: list[str] | None) -> None:
    """Connect, and do all that a client does."""
    with UcxStore(address, timeout=10, connect_timeout=10, **_OPTIONS[way]) as store:
        Session(store, errors).run()


def be_server(case: Case, scarce: Scarcity, pipe: Connection, folder: str) -> list[str]:
    """Serve while something is scarce and after that, and return the exceptions."""
    errors: list[str] = []
    location = "memory://" if case.storage == "memory" else folder
    begun = _open_files()
    scarce.begin()
    try:
        server = Server(
            location, local=case.way == "local", ucx_shared_memory=case.way == "shm", threads=1
        )
    except Exception as error:
        errors.append(named(error))
        scarce.end()
        server = Server(
            location, local=case.way == "local", ucx_shared_memory=case.way == "shm", threads=1
        )
    with server:
        pipe.send(server.address)
        assert pipe.recv() == "used"
        scarce.end()
        pipe.send("ended")
        assert pipe.recv() == "used again"
        eventually(lambda: server.sessions == 0, 10, 0.01, "sessions are left")
    pipe.send("closed")
    _check_files(begun)
    return errors


def be_client(case: Case, scarce: Scarcity, pipe: Connection, _: str) -> list[str]:
    """Use the server while something is scarce and after that, and return the exceptions."""
    errors: list[str] = []
    address = pipe.recv()
    begun = _open_files()
    scarce.begin()
    try:
        connect(address, case.way, errors)
    except AssertionError:
        raise
    except Exception as error:
        errors.append(named(error))
    scarce.end()
    pipe.send("used")
    assert pipe.recv() == "ended"
    connect(address, case.way, None)
    gc.collect()  # an exception of an event loop's keeps its frames, and so a store, until then
    pipe.send("used again")
    assert pipe.recv() == "closed"
    _check_files(begun)
    return errors


ROLES = {"server": be_server, "client": be_client}


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _check_files(begun: int) -> None:
    eventually(
        lambda: _open_files() - begun <= KEPT,
        10,
        0.01,
        lambda: f"{_open_files() - begun} files are left",
    )


# ---- their processes ----


class Child:
    """The process of one of the two.

    Parameters
    ----------
    role : {"server", "client"}
    ends : tuple of Connection
        Of the pipe between them: its own, and the other's.
    folder : Path
        What it writes goes there.
    run : tuple
        The case, and n and the failures of `Family.run`.
    """

    def __init__(
        self,
        role: str,
        ends: tuple[Connection, Connection],
        folder: Path,
        run: tuple[Case, int, int],
    ) -> None:
        self._role = role
        self._output = folder / role
        self._answer, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            ends[1].close()
            output = os.open(self._output, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._live(ends[0], folder, run, writer)
        os.close(writer)
        ends[0].close()

    def _live(
        self, pipe: Connection, folder: Path, run: tuple[Case, int, int], writer: int
    ) -> None:
        case, n, failures = run
        outcome = Outcome()
        scarce = Scarcity(case, n, failures, wanted=self._role == case.victim)
        faulthandler.dump_traceback_later(SECONDS - 5)
        try:
            outcome.errors = ROLES[self._role](case, scarce, pipe, str(folder / "root"))
        except BaseException:
            scarce.end()
            outcome.faults.append(f"{self._role}: {traceback.format_exc()}")
        outcome.counted, outcome.failed = scarce.counted, scarce.failed
        os.write(writer, json.dumps(asdict(outcome)).encode())
        pipe.close()
        atexit._run_exitfuncs()  # as at any end
        os._exit(0)

    def end(self, deadline: float) -> Outcome:
        """Wait for its end, and return what has become of it."""
        handle = os.pidfd_open(self._pid)
        ended, _, _ = select.select([handle], [], [], max(deadline - time.monotonic(), 0.0))
        os.close(handle)
        if not ended:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        text = b""
        while part := os.read(self._answer, 65536):
            text += part
        os.close(self._answer)
        outcome = Outcome(**json.loads(text)) if text else Outcome()
        if code != 0:
            how = f"ended with {code}" if ended else "hung"
            output = self._output.read_text(errors="replace")[-6000:]
            outcome.faults.append(f"{self._role}: {how}\n{output}")
        return outcome


def run_pair(case: Case, n: int, failures: int) -> Outcome:
    """Run a server and a client, and return what has become of both."""
    whole = Outcome()
    folder = Path(mkdtemp())  # no TemporaryDirectory: the children would remove it
    try:
        (folder / "root").mkdir()
        one, other = Pipe()
        children = [
            Child("server", (one, other), folder, (case, n, failures)),
            Child("client", (other, one), folder, (case, n, failures)),
        ]
        deadline = time.monotonic() + SECONDS
        for outcome in [child.end(deadline) for child in children]:
            whole.counted += outcome.counted
            whole.failed += outcome.failed
            whole.errors += outcome.errors
            whole.faults += outcome.faults
    finally:
        shutil.rmtree(folder)
    whole.report = str(_library().scarcity_report().decode())
    if whole.report and not whole.failed:
        whole.failed = 1  # and its process could not say so
    return whole


def main() -> None:
    """Run pairs, as the input says."""
    _spare_nanobind(str(core.__file__))
    for name in FATAL_IN_UCX:
        _library().scarcity_spare_function(name.encode())
    for line in sys.stdin:
        match json.loads(line):
            case [case, n, failures]:
                answer = asdict(run_pair(Case(**case), n, failures))
            case _:
                answer = {}
                _library().scarcity_forget()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
