"""``ucxstore info``: show an array, or a group as a tree."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from ucxstore.base.showing import count_text, printable, size_text
from ucxstore.cli.common.command import add_client_options, open_store
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import CommandError, MissingError

if TYPE_CHECKING:
    from ucxstore.stores.description import ArrayDescription, Description


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "info",
        "Show an array, or a group as a tree: shape, chunks, codecs, what is stored, and which way "
        "whole chunks go. DIRECT: straight between array and server; DECODE, ENCODE: through a "
        "codec, in ucxstore; FALLBACK: by zarr's own pipeline, with more copies.",
    )
    parser.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_client_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    with open_store(arguments, arguments.address) as store:
        from ucxstore.stores.description import describe

        try:
            found = describe(store)
        except FileNotFoundError as error:
            raise MissingError(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:  # as zarr raises them
            raise CommandError(f"{store}: metadata cannot be read: {error}") from error
        shown = json.dumps(as_json(found)) if arguments.json else "\n".join(tree(found, str(store)))
        print(shown)


def as_json(found: "Description") -> dict[str, object]:
    """Return a description as JSON has it: with a kind, and members within."""
    from ucxstore.stores.description import ArrayDescription

    if isinstance(found, ArrayDescription):
        return {"kind": "array", **asdict(found)}
    members = [as_json(member) for member in found.members]
    return {"kind": "group", "name": found.name, "zarr_format": found.zarr_format} | {
        "members": members
    }


def tree(found: "Description", name: str) -> Iterator[str]:
    """Yield the lines of a tree, whose root has this name."""
    from ucxstore.stores.description import ArrayDescription

    if isinstance(found, ArrayDescription):
        first, second = _array_lines(found)
        yield f"{printable(name)}  {first}"
        yield f"    {second}"
        return
    count = count_text(len(found.members), "member")
    yield f"{printable(name)}  group of {count}, format {found.zarr_format}"
    for index, member in enumerate(found.members):
        is_last = index == len(found.members) - 1
        first, *others = tree(member, member.name)
        yield f"{'└── ' if is_last else '├── '}{first}"
        for line in others:
            yield f"{'    ' if is_last else '│   '}{line}"


def _array_lines(array: "ArrayDescription") -> tuple[str, str]:
    grid = f"chunks {array.chunks}" if array.chunks or not array.shape else "chunks of many shapes"
    if array.shards is not None:
        grid = f"shards {array.shards} of {grid}"
    what = "shards" if array.shards is not None else "chunks"
    ways = array.read if array.read == array.write else f"{array.read}, {array.write}"
    reason = f" ({array.reason})" if array.reason else ""
    return (
        f"{array.dtype} {array.shape}, {grid}, {printable(' '.join(array.codecs)) or 'no codec'}, "
        f"format {array.zarr_format}",
        f"{array.stored_values:,} of {array.most_values:,} {what} stored, "
        f"{size_text(array.stored_bytes)} for {size_text(array.nbytes)}; {ways}{reason}",
    )
