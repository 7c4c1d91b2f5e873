"""The progress bar of ``ucxstore cp``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def bar(nbytes: int) -> Iterator[Callable[[int], object]]:
    """Show the progress of a copy of `nbytes`; yield a function to call with the bytes copied."""
    columns = (
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("copy", total=nbytes)
        yield lambda done: progress.advance(task, done)
