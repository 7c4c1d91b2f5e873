"""``ucxstore demo``: write real data to a server, read it in another process, and compare.

The data are the sea-surface temperatures of the package ``iris-sample-data``. xarray writes them
through a `UcxStore`, and xarray reads them in another process. Then the same is done with one large
array of random numbers, by each way to a server of the same host (the local plane, UCX's shared
memory, plain TCP, UCX over TCP), and speed and memory are measured.
"""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ucxstore.base.errors import UcxStoreError
from ucxstore.base.showing import one_line
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import Status, status_of

DEFAULT_MEGABYTES = 100  # the array of the memray-array study

_MOMENT = 0.01  # seconds


def main(argv: Sequence[str]) -> int:
    """Run the demo.

    Parameters
    ----------
    argv : sequence of str
        The arguments after ``demo``.

    Returns
    -------
    int
        0 if all data are equal, 1 if anything differs or fails, 130 after Ctrl-C.
    """
    arguments = build_parser().parse_args(argv)
    try:
        with _interruptible():
            from ucxstore.cli.demo.show import show  # needs the packages of the extra

            return Status.DONE if show(arguments.size) else Status.FAILED
    except KeyboardInterrupt:
        print("\nucxstore demo: interrupted, everything is cleaned up", file=sys.stderr)
        return Status.INTERRUPTED
    except ModuleNotFoundError as error:
        print(f'ucxstore demo: {error}; pip install "ucxstore[demo]"', file=sys.stderr)
        return Status.FAILED
    except (UcxStoreError, OSError, RuntimeError) as error:
        print(f"ucxstore demo: {one_line(error)}", file=sys.stderr)
        return status_of(error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM act like Ctrl-C, so that all is cleaned up, and let neither be lost.

    Python drops what is raised in a callback of a weak reference, `KeyboardInterrupt` too. Then it
    is raised anew a moment later.
    """
    report = sys.unraisablehook

    def raise_anew(dropped: "sys.UnraisableHookArgs") -> None:
        if dropped.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        else:
            report(dropped)

    previous = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGALRM)
    }
    sys.unraisablehook = raise_anew
    try:
        yield
    finally:
        sys.unraisablehook = report
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "demo",
        "Write real data to a server, read it in another process, and compare every bit; then the "
        "same with one large array. Exits with 0 if all is equal.",
    )
    parser.add_argument(
        "--size",
        type=_megabytes,
        default=DEFAULT_MEGABYTES,
        metavar="MB",
        help="megabytes of the large array (default: %(default)s)",
    )
    return parser


def _megabytes(text: str) -> int:
    size = int(text)
    if size < 1:
        raise ValueError
    return size


_megabytes.__name__ = "number of megabytes"  # argparse shows it in its message
