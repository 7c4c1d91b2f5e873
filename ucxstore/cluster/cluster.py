"""Several servers with the surface of a connection to one.

The requests are those of the core's ``Connection``; what they take and return is described there.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ucxstore.cluster.answers import (
    Count,
    Each,
    Folder,
    Measures,
    Missing,
    Nothing,
    Page,
    pick,
)
from ucxstore.cluster.joined import Joined
from ucxstore.cluster.routes import Routes, split_metadata

if TYPE_CHECKING:
    from ucxstore._core import Completions, Connection, Operation

type _Array = tuple[int, Sequence[int], Sequence[int], int]
type _Offsets = npt.NDArray[np.int64] | None
type _Part = tuple[int, int, Sequence[int], Sequence[int], _Offsets]
type _Ranges = Sequence[tuple[int, int, int]]


class Cluster(Routes):
    """The servers of a store that has several.

    Keys are placed by rendezvous hashing. Servers that share what they serve stand in for one
    another. Where each has values of its own, all of them keep what says what arrays and groups
    are, and any of them is asked for it.
    """

    def get(
        self,
        keys: Sequence[str],
        ranges: Sequence[_Ranges],
        timeout: float,
        completions: "Completions | None" = None,
        versions: Sequence[int] | None = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.get(
                pick(keys, some),
                pick(ranges, some),
                timeout,
                completions,
                None if versions is None else pick(versions, some),
            )

        return self._read_values(keys, start, completions)

    def get_into(
        self,
        keys: Sequence[str],
        ranges: Sequence[_Ranges],
        outs: Sequence[_Array],
        owners: list[Any],
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            wanted = pick(keys, some), pick(ranges, some), pick(outs, some)
            return to.get_into(*wanted, owners, timeout, completions)

        return self._read_values(keys, start, completions)

    def read_boxes(
        self,
        keys: Sequence[str],
        boxes: list[int],
        out: _Array,
        chunk_shape: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        width = 3 * len(chunk_shape)

        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            wanted = pick(keys, some), list(pick(boxes, some, width))
            return to.read_boxes(*wanted, out, chunk_shape, owner, timeout, completions)

        return self._move(keys, start, Missing(), completions)

    def read_parts(
        self,
        keys: Sequence[str],
        sources: Sequence[_Part],
        targets: Sequence[_Part],
        address: int,
        expected: Sequence[int],
        versions: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.read_parts(
                pick(keys, some),
                pick(sources, some),
                pick(targets, some),
                address,
                pick(expected, some),
                pick(versions, some),
                owner,
                timeout,
                completions,
            )

        return self._move(keys, start, Each(len(keys)), completions)

    def set(
        self,
        keys: Sequence[str],
        values: Sequence[_Array],
        owners: list[Any],
        if_absent: bool,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int], if_absent: bool) -> "Operation":
            sent = pick(keys, some), pick(values, some)
            return to.set(*sent, owners, if_absent, timeout, completions)

        spread, answer = self._spread(
            keys, lambda to, some: start(to, some, if_absent), Each(len(keys))
        )
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = split_metadata(keys)
        shares = spread.home(others)
        if if_absent:  # who comes first is decided by one server
            shares += spread.home_first(copied, lambda to, some: start(to, some, False))
        else:
            shares += spread.everywhere(copied)
        return self._join(shares, answer, completions)

    def set_parts(
        self,
        keys: Sequence[str],
        values: Sequence[Sequence[_Array]],
        owners: list[Any],
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            sent = pick(keys, some), pick(values, some)
            return to.set_parts(*sent, owners, timeout, completions)

        return self._move(keys, start, Nothing(), completions)

    def write_boxes(
        self,
        keys: Sequence[str],
        starts: list[int],
        value: _Array,
        chunk_shape: Sequence[int],
        owner: object,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        width = len(chunk_shape)

        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            sent = pick(keys, some), list(pick(starts, some, width))
            return to.write_boxes(*sent, value, chunk_shape, owner, timeout, completions)

        return self._move(keys, start, Nothing(), completions)

    def delete(
        self, keys: Sequence[str], timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.delete(pick(keys, some), timeout, completions)

        spread, answer = self._spread(keys, start, Nothing())
        if self.shared:
            return self._join(spread.anywhere(range(len(keys))), answer, completions)
        copied, others = split_metadata(keys)
        return self._join(spread.home(others) + spread.everywhere(copied), answer, completions)

    def stat(
        self, keys: Sequence[str], timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", some: Sequence[int]) -> "Operation":
            return to.stat(pick(keys, some), timeout, completions)

        return self._read_values(keys, start, completions)

    def ping(self, timeout: float, completions: "Completions | None" = None) -> Joined:
        def start(to: "Connection", _: Sequence[int]) -> "Operation":
            return to.ping(timeout, completions)

        return self._ask_all("", start, Nothing(), completions)

    def delete_prefix(
        self, prefix: str, timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        def start(to: "Connection", _: Sequence[int]) -> "Operation":
            return to.delete_prefix(prefix, timeout, completions)

        return self._ask_all(prefix, start, Count(), completions)

    def measure(
        self, prefix: str, any: bool, timeout: float, completions: "Completions | None" = None
    ) -> Joined:
        """Measure; what all servers keep a copy of counts as often as there are copies."""

        def start(to: "Connection", _: Sequence[int]) -> "Operation":
            return to.measure(prefix, any, timeout, completions)

        return self._ask_all(prefix, start, Measures(), completions)

    def list_page(
        self,
        prefix: str,
        delimited: bool,
        cursor: str,
        timeout: float,
        completions: "Completions | None" = None,
    ) -> Joined:
        """List; of servers with values of their own a folder comes as one page."""

        def start(to: "Connection", cursor: str) -> "Operation":
            return to.list_page(prefix, delimited, cursor, timeout, completions)

        if delimited and not self.shared:
            # Where a page of a folder ends, storages tell in ways of their own.
            spread, answer = self._spread([prefix], lambda to, _: start(to, cursor), Folder())
            return self._join(spread.all_pages(start), answer, completions)
        return self._ask_all(prefix, lambda to, _: start(to, cursor), Page(), completions)
