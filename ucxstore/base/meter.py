"""`progress`: a bar for reads and writes through zarr, for those who ask for one.

The pipeline looks at `active` once an operation. While it is empty, nothing else happens. While a
block of `progress` is open, operations are done in parts, and the bar moves after each.
"""

import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from ucxstore.base import logs, process
from ucxstore.base.showing import size_text

# A part has at least so many bytes, so that the way of its chunks matters more than its start, ...
PART_BYTES = 32 << 20
# ... and there are at most so many parts of an operation.
_MOST_PARTS = 100


class Meter:
    """The bytes that were moved of those that were planned, while a block of `progress` is open.

    Attributes
    ----------
    planned, moved : int
        Bytes of the values in the user's arrays, whatever their chunks take.
    """

    def __init__(self, bar: "_RichBar | None") -> None:
        self.planned = 0
        self.moved = 0
        self._bar = bar
        self._lock = process.lock()

    def __repr__(self) -> str:
        return f"Meter({size_text(self.moved)} of {size_text(self.planned)})"

    def add(self, *, planned: int = 0, moved: int = 0) -> None:
        """Count bytes, on any thread. A bar that fails does not fail what is counted."""
        with self._lock:
            self.planned += planned
            self.moved += moved
            bar = self._bar
            if bar is None:  # also if another thread goes on after the block, or the bar has failed
                return
            try:
                bar.update(self.moved, self.planned)
            except Exception as error:
                logs.root.warning("the progress bar has failed, and is left out: %r", error)
                self._bar = None
                with suppress(Exception):
                    bar.close()

    def close(self) -> None:
        """End the bar. A second call does nothing."""
        with self._lock:
            bar, self._bar = self._bar, None
            if bar is None:
                return
            try:
                bar.close()
            except Exception as error:
                logs.root.warning("the progress bar has failed: %r", error)


# The open blocks of this process.
active: tuple[Meter, ...] = ()
_lock = process.lock()


def progress(description: str = "zarr") -> AbstractContextManager[Meter]:
    """Show a progress bar for what zarr reads from, and writes to, stores of ours.

    It counts the bytes of all arrays that are read or written within the block, on any thread of
    this process. Operations are done in parts of 32 MiB and more, one after the other, so that the
    bar moves: that costs a little speed. An operation counts as planned when it begins. If the
    block is left by an exception, the bar stays where it is. rich draws it, on standard error.

    Parameters
    ----------
    description : str
        What stands before the bar.

    Returns
    -------
    context manager
        It gives a `Meter`, with the bytes that are `planned` and `moved`.

    Raises
    ------
    ImportError
        If rich is not installed.
    TypeError
        If `description` is no text, such as a store: all stores are counted.

    Examples
    --------
    >>> with ucxstore.progress():  # doctest: +SKIP
    ...     values = z[...]
    """
    check_description(description)
    return _progress(description)


def check_description(value: object) -> None:
    """Raise ``TypeError`` if `value` does not say what stands before a bar."""
    if not isinstance(value, str):
        raise TypeError(
            f"description: a text that stands before the bar is needed, not {value!r}; progress "
            "counts what goes to and from all stores within its block: with ucxstore.progress():"
        )


@contextmanager
def _progress(description: str) -> Iterator[Meter]:
    global active
    meter = Meter(open_bar(description))
    with _lock:
        active = (*active, meter)
    try:
        yield meter
    finally:
        with _lock:
            active = tuple(one for one in active if one is not meter)
        meter.close()


def _forget_all() -> None:
    """In a forked child, the bars are the parent's."""
    global active
    active = ()


process.in_child(_forget_all)


# ---- what the pipeline uses ----


async def in_parts[C: Sequence[Any], R](
    move: Callable[[Sequence[C]], Awaitable[R]], chunks: Iterable[C]
) -> list[R]:
    """Move chunks in parts, and count them.

    Parameters
    ----------
    move : callable
        Reads or writes some of the chunks.
    chunks : iterable of tuple
        As zarr passes them: the second is a chunk's spec, the third its selection.

    Returns
    -------
    list
        What `move` returned, for each part.
    """
    meters = active
    many = list(chunks)
    sizes = [_selected_bytes(spec, selection) for _, spec, selection, *_ in many]
    total = sum(sizes)
    for meter in meters:
        meter.add(planned=total)
    results = []
    for begin, end in _parts(sizes, max(PART_BYTES, -(-total // _MOST_PARTS))):
        results.append(await move(many[begin:end]))
        for meter in meters:
            meter.add(moved=sum(sizes[begin:end]))
    return results


def _parts(sizes: Sequence[int], least: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts that have at least so many bytes, but for the last one."""
    begin = held = 0
    for position, size in enumerate(sizes):
        held += size
        if held >= least:
            yield begin, position + 1
            begin, held = position + 1, 0
    if begin < len(sizes) or not sizes:
        yield begin, len(sizes)


def _selected_bytes(spec: Any, selection: Any) -> int:
    """Return the bytes of what is selected in a chunk; of objects, what their references take."""
    parts = selection if isinstance(selection, tuple) else (selection,)
    count, axis = 1, 0
    arrays: list[tuple[int, ...]] = []
    for part in parts:
        if part is Ellipsis:
            axis = len(spec.shape) - (len(parts) - parts.index(part) - 1)
            continue
        if isinstance(part, slice):
            count *= len(range(*part.indices(spec.shape[axis])))
        elif isinstance(part, np.ndarray):
            is_mask = part.dtype == np.bool_
            arrays.append((int(np.count_nonzero(part)),) if is_mask else part.shape)
        axis += 1
    count *= math.prod(spec.shape[axis:]) * math.prod(np.broadcast_shapes(*arrays))
    itemsize: int = spec.dtype.to_native_dtype().itemsize
    return int(count) * itemsize


# ---- the bar ----


def open_bar(description: str) -> "_RichBar":
    """Return a bar that rich draws; ``ImportError`` if there is no rich."""
    try:
        return _RichBar(description)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise ImportError(
            'progress needs rich: pip install "ucxstore[tools]"', name="rich"
        ) from None


class _RichBar:
    def __init__(self, description: str) -> None:
        from rich import progress as rich
        from rich.console import Console
        from rich.markup import escape

        self._progress = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            rich.DownloadColumn(),
            rich.TransferSpeedColumn(),
            rich.TimeRemainingColumn(),
            console=Console(stderr=True),
            # Else rich takes what is printed to the terminal, also on its way to a file.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._progress.start()
        self._task = self._progress.add_task(escape(description), total=None)

    def update(self, moved: int, planned: int) -> None:
        self._progress.update(self._task, completed=moved, total=planned)

    def close(self) -> None:
        self._progress.stop()
