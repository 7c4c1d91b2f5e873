"""``ucxstore ls`` and ``ucxstore du``: which values a server has, and how large they are."""

import argparse
from collections.abc import AsyncIterator, Sequence

from ucxstore.cli.options import Commands, ToolError, add_client_options, open_store, run
from ucxstore.cli.text import printable, size_text

# Names that are looked up together: a page of a listing has some thousands.
_AT_ONCE = 1000

_SIZE_WIDTH = 14


def add_commands(commands: Commands) -> None:
    """Add ``ls`` and ``du``."""
    ls = commands.add_parser(
        "ls",
        help="list the keys of a server",
        description="List what is right under a prefix; folders end in a slash.",
        allow_abbrev=False,
    )
    ls.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    ls.add_argument("-l", dest="long", action="store_true", help="with sizes, in bytes")
    ls.add_argument("-R", dest="recursive", action="store_true", help="all keys under the prefix")
    add_client_options(ls)
    ls.set_defaults(run=lambda arguments: run(arguments, _ls(arguments)))

    du = commands.add_parser(
        "du",
        help="tell how much a server has under a prefix",
        description="Print the bytes and the number of values under a prefix.",
        allow_abbrev=False,
    )
    du.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    du.add_argument("--human", action="store_true", help="bytes as kB, MB, ...")
    add_client_options(du)
    du.set_defaults(run=lambda arguments: run(arguments, _du(arguments)))


async def _ls(arguments: argparse.Namespace) -> int:
    with open_store(arguments, arguments.address) as store:
        names = store.list() if arguments.recursive else store.list_dir("")
        found = False
        async for some in _in_groups(names):
            found = True
            if arguments.recursive and not arguments.long:
                _show([(name, None) for name in some], long=False)
                continue
            sizes = await store.getsizes(some)
            shown = [
                (name if size is not None else f"{name}/", size)
                for name, size in zip(some, sizes, strict=True)
            ]
            _show(shown, long=arguments.long)
        if not found:
            _show([await _the_key_itself(arguments)], long=arguments.long)
    return 0


async def _du(arguments: argparse.Namespace) -> int:
    with open_store(arguments, arguments.address) as store:
        keys, nbytes = await store.measure()
        if keys == 0:
            _, nbytes = await _the_key_itself(arguments)
            keys = 1
    size = size_text(nbytes) if arguments.human else str(nbytes)
    print(f"{size}\t{keys}\t{store}")
    return 0


async def _the_key_itself(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return name and size of the key that was given where a prefix was expected."""
    parent, _, name = arguments.address.rstrip("/").rpartition("/")
    if parent.removeprefix("ucx://").strip("/"):
        with open_store(arguments, parent) as store:
            (size,) = await store.getsizes([name])
        if size is not None:
            return name, size
    raise ToolError(f"{arguments.address}: there is nothing")


def _show(names: Sequence[tuple[str, int | None]], *, long: bool) -> None:
    for name, size in names:
        shown = "" if size is None else size
        print(f"{shown:>{_SIZE_WIDTH}}  {printable(name)}" if long else printable(name))


async def _in_groups(names: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    group: list[str] = []
    async for name in names:
        group.append(name)
        if len(group) == _AT_ONCE:
            yield group
            group = []
    if group:
        yield group
