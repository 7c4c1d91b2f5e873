"""``ucxstore cluster``: show a set of servers, accept a loss, forget a member."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ucxstore.base.showing import printable, size_text, text_columns
from ucxstore.cli.common.command import add_client_options, open_store, run
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import CommandError

if TYPE_CHECKING:
    from ucxstore.base.address import HostPort
    from ucxstore.cluster.agreement import Agreement
    from ucxstore.cluster.record import Record
    from ucxstore.protocol.frames import Welcome

_COLUMNS = ("member", "identity", "server", "state", "values", "bytes")


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore cluster``; return the exit status."""
    arguments = list(argv)
    action = ACTIONS.get(arguments[0]) if arguments else None
    parser = build_parser() if action is None else action[0]()
    given = parser.parse_args(arguments if action is None else arguments[1:])
    work = _show if action is None else action[1]
    return run("cluster", partial(work, given))


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "cluster",
        "Show which servers make up a set: the record that they keep, and what is there. "
        "'cluster accept-loss ADDRESS' goes on with servers whose old values are lost; "
        "'cluster forget ADDRESS MEMBER' takes a member out of the set.",
    )
    return _with_address(parser)


def _make_accept_parser() -> Parser:
    return _with_address(
        make_parser(
            "cluster accept-loss",
            "Replace lost storages by those that the servers have now. What was on the lost ones "
            "is missing from then on, and is read as fill values.",
        )
    )


def _make_forget_parser() -> Parser:
    parser = make_parser(
        "cluster forget",
        "Take a member out of the set of servers. What is on it is missing from then on, and is "
        "read as fill values. End the clients of the set first.",
    )
    _with_address(parser)
    parser.add_argument(
        "member",
        metavar="MEMBER",
        help="the member's name or the beginning of its identity, as 'cluster ADDRESS' shows them",
    )
    return parser


def _with_address(parser: Parser) -> Parser:
    parser.add_argument(
        "address", metavar="ADDRESS", help="ucx://host:port,host:port: all servers of the set"
    )
    add_client_options(parser)
    return parser


def _show(arguments: argparse.Namespace) -> int:
    from ucxstore.base.errors import ConnectError
    from ucxstore.cluster.agreement import Agreement
    from ucxstore.stores.store import connectors_of

    with open_store(arguments, arguments.address) as store:
        agreement = Agreement(connectors_of(store), arguments.timeout)
        agreement.greet()
        for server, problem in agreement.problems.items():
            print(f"{server}: {problem}")
        if not agreement.welcomes:
            raise ConnectError(f"{store}: none of the servers can be reached")
        if any(welcome.shared for welcome in agreement.welcomes.values()):
            return _show_shared(agreement.welcomes)
        record = agreement.record()
        full = {
            server: _measure(arguments, server, welcome)
            for server, welcome in agreement.welcomes.items()
        }
        if record is None:
            print("the servers keep no record of a set: the first client of several makes it")
        print("\n".join(text_columns([_COLUMNS, *_rows(record, agreement.welcomes, full)])))
        return 0 if record is None or _is_whole(record, agreement) else 1


def _show_shared(welcomes: "Mapping[HostPort, Welcome]") -> int:
    print("the servers share their values: each can stand in for the others")
    rows = [(str(server), one.identity.hex()) for server, one in welcomes.items()]
    print("\n".join(text_columns([("server", "identity"), *rows])))
    return 0 if len({identity for _, identity in rows}) == 1 else 1


def _is_whole(record: "Record", agreement: "Agreement") -> bool:
    return agreement.is_complete() and len(agreement.welcomes) == len(record.members)


def _rows(
    record: "Record | None",
    welcomes: "Mapping[HostPort, Welcome]",
    full: "Mapping[HostPort, Sequence[str]]",
) -> list[Sequence[str]]:
    left = dict(welcomes)
    rows: list[Sequence[str]] = []
    for place in record.members if record is not None else ():
        at = next((one for one in left if left[one].identity == place.identity), None)
        member = printable(place.name), place.identity.hex()
        if at is None:
            rows.append((*member, "", "missing", "", ""))
        else:
            kept = left.pop(at).record == record.encode() if record is not None else False
            rows.append((*member, str(at), "there" if kept else "without the record", *full[at]))
    state = "no member yet" if record is None else "foreign"
    for server, welcome in left.items():
        rows.append(("", welcome.identity.hex(), str(server), state, *full[server]))
    return rows


def _measure(
    arguments: argparse.Namespace, server: "HostPort", welcome: "Welcome"
) -> Sequence[str]:
    """Return how many values a server has, and their bytes."""
    import asyncio

    from ucxstore.base.errors import UcxStoreError

    try:
        with open_store(arguments, f"ucx://{server}") as store:
            store.rely_on({server: welcome.identity})  # alone, whatever set it belongs to
            count, nbytes = asyncio.run(store.measure())
    except UcxStoreError as error:
        return "?", printable(str(error))
    return f"{count:,}", size_text(nbytes)


def _accept(arguments: argparse.Namespace) -> int:
    from ucxstore.cluster.agreement import accept_loss
    from ucxstore.stores.store import connectors_of

    with open_store(arguments, arguments.address) as store:
        record = accept_loss(connectors_of(store), arguments.timeout)
        _print_members(record)
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    from ucxstore.cluster.agreement import forget
    from ucxstore.stores.store import connectors_of

    wanted: str = arguments.member

    def which(record: "Record") -> int:
        found = [
            index
            for index, place in enumerate(record.members)
            if place.name == wanted or (wanted and place.identity.hex().startswith(wanted))
        ]
        if len(found) != 1:
            members = ", ".join(map(str, record.members))
            raise CommandError(f"{wanted!r} does not name one of the members: {members}")
        return found[0]

    with open_store(arguments, arguments.address) as store:
        record = forget(connectors_of(store), which, arguments.timeout)
        _print_members(record)
    return 0


def _print_members(record: "Record") -> None:
    print("\n".join(f"{printable(place.name)}  {place.identity.hex()}" for place in record.members))


ACTIONS: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace], int]]] = {
    "accept-loss": (_make_accept_parser, _accept),
    "forget": (_make_forget_parser, _forget),
}
