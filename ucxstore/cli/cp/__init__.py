"""``ucxstore cp``: copy a tree of values between servers, directories and object stores."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from ucxstore.cli.command import CommandError, UsageError, add_client_options, open_store, run
from ucxstore.cli.cp.locations import Location, ServerLocation, is_server, open_objects
from ucxstore.cli.cp.plan import CopyPlan, Entry, groups, plan_copy
from ucxstore.cli.parser import Parser, make_parser
from ucxstore.cli.text import size_text
from ucxstore.options import DEFAULT_BUFFER_BUDGET
from ucxstore.pipeline.budget import Budget

DEFAULT_JOBS = 8
MAX_JOBS = 1024

type Moved = Callable[[int], object]
"""Called with the number of bytes that were just copied."""

_LOCATIONS = "a directory, file:///path, s3://, gs://, az:// or http(s)://..., or ucx://host:port"


def main(argv: Sequence[str]) -> NoReturn:
    """Run ``ucxstore cp``, and end the process with the exit status."""
    arguments = _make_parser().parse_args(argv)
    _leave(run("cp", lambda: asyncio.run(_main(arguments))))


def _make_parser() -> Parser:
    parser = make_parser(
        "cp",
        "Copy all values under SOURCE to DESTINATION. Values that DESTINATION has with the same "
        "size are skipped, unless both sides know times and it is older there. So repeat an "
        "interrupted copy to finish it.",
    )
    parser.add_argument("source", metavar="SOURCE", help=f"{_LOCATIONS}[/prefix]")
    parser.add_argument("destination", metavar="DESTINATION", help="the same")
    parser.add_argument(
        "--jobs",
        type=int,
        default=DEFAULT_JOBS,
        metavar="N",
        help="concurrent requests (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="also copy values that DESTINATION has")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    add_client_options(parser)
    return parser


def _leave(status: int) -> NoReturn:
    """End the process at once, without the interpreter's shutdown.

    obstore's threads release Python objects shortly after a request has ended. If the interpreter
    shuts down meanwhile, the process aborts: this happened to one in five copies of a single file.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _main(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.jobs <= MAX_JOBS:
        raise UsageError(f"--jobs: {arguments.jobs} is not between 1 and {MAX_JOBS}")
    source = _open(arguments, arguments.source, writes=False)
    destination = _open(arguments, arguments.destination, writes=True)
    start = time.monotonic()
    try:
        plan = await _plan(arguments, source, destination)
        with _progress(plan, shown=not arguments.quiet) as moved:
            await copy(plan, source, destination, arguments.jobs, moved)
    finally:
        source.close()
        destination.close()
    if not arguments.quiet:
        print(_summary(plan, time.monotonic() - start))
    return 0


async def _plan(arguments: argparse.Namespace, source: Location, destination: Location) -> CopyPlan:
    entries = [entry async for entry in source.list()]
    if not entries:
        raise CommandError(f"{arguments.source}: no values found")
    there = {} if arguments.all else {entry.key: entry async for entry in destination.list()}
    try:
        plan = plan_copy(entries, there)
    except ValueError as error:
        raise CommandError(f"{arguments.source}: {error}") from error
    for entry in (*plan.chunks, *plan.metadata):
        source.check(entry.key)
        destination.check(entry.key)
    return plan


async def copy(
    plan: CopyPlan, source: Location, destination: Location, jobs: int, moved: Moved
) -> None:
    """Carry out a plan.

    At most 256 MiB are in memory at once, or one larger value. The first failure ends the copy,
    once the transfers in flight have ended.

    Raises
    ------
    CommandError, UcxStoreError
        The first failure, with the key.
    """
    budget = Budget(DEFAULT_BUFFER_BUDGET)
    max_keys = max(source.max_keys, destination.max_keys)
    for entries in (plan.chunks, plan.metadata):
        todo = groups(entries, max_keys)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(jobs):
                    tasks.create_task(_work(todo, source, destination, budget, moved))
        except* Exception as failures:
            raise _first(failures) from None


async def _work(
    todo: Iterator[Sequence[Entry]],
    source: Location,
    destination: Location,
    budget: Budget,
    moved: Moved,
) -> None:
    for group in todo:  # all tasks share this iterator
        with await budget.claim(sum(entry.size for entry in group)) as claim:
            values = await source.read(group)
            claim.resize(sum(map(len, values)))
            await destination.write(group, values)
        moved(sum(map(len, values)))


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _open(arguments: argparse.Namespace, location: str, *, writes: bool) -> Location:
    if is_server(location):
        return ServerLocation(open_store(arguments, location, read_only=not writes))
    return open_objects(location, arguments.jobs, make=writes)


def _progress(plan: CopyPlan, *, shown: bool) -> AbstractContextManager[Moved]:
    """Show a progress bar, on a terminal only."""
    if not shown or not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    from ucxstore.cli.cp.bar import bar

    return bar(plan.nbytes)


def _summary(plan: CopyPlan, seconds: float) -> str:
    speed = size_text(plan.nbytes / max(seconds, 1e-9))
    there = f"; {plan.present} were there" if plan.present else ""
    return (
        f"copied {plan.keys} values, {size_text(plan.nbytes)} in {seconds:.1f} s ({speed}/s){there}"
    )
