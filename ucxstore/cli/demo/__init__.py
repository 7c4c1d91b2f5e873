"""``ucxstore demo``: write real data to a server, read it in another process, and compare.

The data are the sea-surface temperatures of the package ``iris-sample-data``. xarray writes them
through a `UcxStore`, and xarray reads them in another process. Then the same is done with one large
array of random numbers, over shared memory and over TCP, and speed and memory are measured.
"""

import signal
import sys
from collections.abc import Sequence

from ucxstore.cli.parser import Parser, make_parser
from ucxstore.errors import UcxStoreError

DEFAULT_MEGABYTES = 100  # the array of the memray-array study

_INTERRUPTED = 130  # as in shells: 128 + SIGINT


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
    arguments = _make_parser().parse_args(argv)
    # SIGTERM acts like Ctrl-C: the temporary directory and the processes are cleaned up.
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        from ucxstore.cli.demo.show import show  # needs the packages of the extra

        return 0 if show(arguments.size) else 1
    except KeyboardInterrupt:
        print("\nucxstore demo: interrupted, everything is cleaned up", file=sys.stderr)
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        print(f'ucxstore demo: {error}; pip install "ucxstore[demo]"', file=sys.stderr)
        return 1
    except (UcxStoreError, OSError, RuntimeError) as error:
        print(f"ucxstore demo: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _make_parser() -> Parser:
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
