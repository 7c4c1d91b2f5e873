"""Carry out a copy: plan it, and move values between two locations."""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence

from ucxstore.cli.command import CommandError, NotFoundError, open_store
from ucxstore.cli.cp.locations import Location, ServerLocation, is_server, open_objects
from ucxstore.cli.cp.plan import CopyPlan, Entry, groups, plan_copy
from ucxstore.options import DEFAULT_BUFFER_BUDGET
from ucxstore.pipeline.budget import Budget

type Moved = Callable[[int], object]
"""Called with the number of bytes that were just copied."""


def open_location(arguments: argparse.Namespace, location: str, *, writes: bool) -> Location:
    """Open a location as the arguments say."""
    if is_server(location):
        return ServerLocation(open_store(arguments, location, read_only=not writes))
    return open_objects(location, arguments.jobs, make=writes)


async def plan(arguments: argparse.Namespace, source: Location, destination: Location) -> CopyPlan:
    """Find out which values of the source are to be copied."""
    entries = [entry async for entry in source.list()]
    if not entries:
        raise NotFoundError(f"{arguments.source}: no values found")
    there = {} if arguments.all else {entry.key: entry async for entry in destination.list()}
    try:
        found = plan_copy(entries, there)
    except ValueError as error:
        raise CommandError(f"{arguments.source}: {error}") from error
    for entry in (*found.chunks, *found.metadata):
        source.check(entry.key)
        destination.check(entry.key)
    return found


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
