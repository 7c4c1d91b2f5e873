"""Carry out a copy: plan it, and move values between two locations."""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

from ucxstore.base.options import DEFAULT_BUFFER_BUDGET
from ucxstore.cli.common.command import open_store
from ucxstore.cli.common.status import CommandError, MissingError
from ucxstore.cli.cp.locations import (
    Location,
    ServerLocation,
    is_file,
    is_server,
    open_objects,
    split_location,
    target_of,
)
from ucxstore.cli.cp.plan import CopyPlan, Entry, groups, plan_copy, plan_one
from ucxstore.pipeline.budget import Budget

type Moved = Callable[[int], object]
"""Called with the number of bytes that were just copied."""


async def prepare(
    arguments: argparse.Namespace, locations: ExitStack
) -> tuple[CopyPlan, Location, Location]:
    """Find out which values are to be copied, from where and where to, and write nothing.

    Parameters
    ----------
    arguments : Namespace
    locations : ExitStack
        It closes the locations.

    Raises
    ------
    NotFoundError
        If the source is neither a prefix with values nor a value.
    """

    def open_location(location: str, *, writes: bool) -> Location:
        if is_server(location):
            store = open_store(arguments, location, read_only=not writes)
            return locations.enter_context(closing(ServerLocation(store)))
        return locations.enter_context(closing(open_objects(location, arguments.jobs, make=writes)))

    # Before the source is listed, which may take long: is it a destination at all?
    destination = open_location(arguments.destination, writes=True)
    if not is_file(arguments.source):
        source = open_location(arguments.source, writes=False)
        entries = [entry async for entry in source.list()]
        if entries or source.unreadable:
            there = {} if arguments.all else {one.key: one async for one in destination.list()}
            return _checked(arguments, plan_copy, entries, there), source, destination
    split = split_location(arguments.source)
    if split is not None:
        folder, name = split
        source = open_location(folder, writes=False)
        entry = await source.find(name)
        if entry is not None:
            folder, target = target_of(arguments.destination, name)
            destination = open_location(folder, writes=True)
            return _checked(arguments, plan_one, entry, target), source, destination
    raise MissingError(f"{arguments.source}: no values found")


def _checked[**P](
    arguments: argparse.Namespace,
    make: Callable[P, CopyPlan],
    *planned: P.args,
    **options: P.kwargs,
) -> CopyPlan:
    try:
        return make(*planned, **options)
    except ValueError as error:
        raise CommandError(f"{arguments.source}: {error}") from error


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
    for entry in (*plan.chunks, *plan.metadata):
        source.check(entry.key)
        destination.check(plan.target_of(entry).key)
    budget = Budget(DEFAULT_BUFFER_BUDGET)
    max_keys = max(source.max_keys, destination.max_keys)
    for entries in (plan.chunks, plan.metadata):
        todo = groups(entries, max_keys)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(jobs):
                    tasks.create_task(_work(plan, todo, source, destination, budget, moved))
        except* Exception as failures:
            raise _first(failures) from None


async def _work(
    plan: CopyPlan,
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
            await destination.write([plan.target_of(entry) for entry in group], values)
        moved(sum(map(len, values)))


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
