"""What is done in a forked child and at exit, and in which order."""

import re
import subprocess
import sys
from pathlib import Path

from ucxstore.base import process


def run(code: str) -> list[str]:
    """Run code in an interpreter of its own, and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


PREPARE = """
import os, sys
from ucxstore.base import process
from ucxstore.base.process import Exit, Finalizer
class Thing: pass
def say(text):
    return lambda *seconds: print(text, *seconds, flush=True)
def in_child(work=lambda: None):
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_what_ends_at_exit_ends_in_order() -> None:
    code = """
process.at_exit(Exit.CONNECTIONS, say("connections"))
things = [Thing(), Thing()]
for number, thing in enumerate(things):
    Finalizer(thing, Exit.SERVERS, say(f"server {number}"), 0.5)
process.at_exit(Exit.SCRATCH, say("scratch"))
"""
    assert run(PREPARE + code) == ["scratch", "connections", "server 1 0.5", "server 0 0.5"]


def test_one_that_fails_keeps_no_other_from_ending() -> None:
    code = """
def fails():
    raise ValueError("as it should")
process.at_exit(Exit.SCRATCH, fails)
process.at_exit(Exit.CONNECTIONS, say("connections"))
"""
    assert run(PREPARE + code) == ["connections"]


def test_a_finalizer_is_called_once_and_in_no_child() -> None:
    code = """
forgotten, called, kept, free = Thing(), Thing(), Thing(), Thing()
Finalizer(forgotten, Exit.SERVERS, say("forgotten"), 0.5)
finalizer = Finalizer(called, Exit.SERVERS, say("called"), 0.5)
Finalizer(kept, Exit.SERVERS, say("kept"), 0.5)
Finalizer(free, Exit.SERVERS, say("free"), 0.5).detach()
def in_the_child():
    global kept
    finalizer(2)
    assert not finalizer.is_mine
    del kept
in_child(in_the_child)
assert finalizer.is_mine
print("parent", flush=True)
del forgotten, free
finalizer(3)
del called
"""
    assert run(PREPARE + code) == ["parent", "forgotten 0.5", "called 3", "kept 0.5"]


def test_a_forked_child_starts_anew_in_order() -> None:
    code = """
class Named:
    def __init__(self, name):
        self.name = name
        process.in_child(self.reset)
    def reset(self):
        print(self.name, flush=True)
process.in_child(say("first"))
kept, forgotten = Named("kept"), Named("forgotten")
process.in_child(say("last"))
del forgotten
in_child()
print("parent")
"""
    assert run(PREPARE + code) == ["first", "kept", "last", "parent"]


def test_nothing_is_left_of_what_was_forgotten() -> None:
    class Thing:
        def reset(self) -> None: ...

    def registered() -> tuple[int, list[int]]:
        return len(process._resets), [len(ends) for ends in process._ends.values()]

    before = registered()
    for _ in range(10):
        thing = Thing()
        process.in_child(thing.reset)
        process.Finalizer(thing, process.Exit.SERVERS, lambda _: None, 0.0)
    del thing
    assert registered() == before


def test_the_operating_system_is_asked_in_one_place() -> None:
    """The order is defined only if no other module registers functions."""
    package = Path(process.__file__).parent
    ways = re.compile(r"register_at_fork|atexit\.register")
    assert [each for each in package.rglob("*.py") if ways.search(each.read_text())] == [
        Path(process.__file__)
    ]
