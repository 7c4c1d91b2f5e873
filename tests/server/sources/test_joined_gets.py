"""Gets that go together, and each of which has its own answer."""

import asyncio
from typing import Any

import numpy as np
import pytest

from ucxstore.client.requests import Found, Request
from ucxstore.server.sources.joined_gets import JoinedGets


class Servers:
    """Answers requests, and counts them; keys that begin with "bad" fail any request."""

    def __init__(self, size: int) -> None:
        self.asked: list[int] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._size = size

    async def ask(self, request: Request[list[Found | None]]) -> list[Found | None]:
        self.asked.append(len(request.keys))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        for key in request.keys:
            if key.startswith("bad"):
                raise OSError(f"{key} fails")
        versions = request.arguments["versions"]
        return [
            None if key == "missing" else (np.full(self._size, int(key), "u1"), self._size, version)
            for key, version in zip(request.keys, versions, strict=True)
        ]


async def _all(gets: JoinedGets, keys: list[str]) -> list[Any]:
    return await asyncio.gather(
        *(gets.get(key, [], at) for at, key in enumerate(keys)), return_exceptions=True
    )


def test_small_values_go_together_and_large_ones_alone() -> None:
    async def run(size: int) -> list[int]:
        servers = Servers(size)
        gets = JoinedGets(servers.ask)
        keys = [str(number) for number in range(64)]
        for _ in range(5):
            found = await _all(gets, keys)
            assert [value[0][0] for value in found] == list(range(64))
            assert [value[2] for value in found] == list(range(64))
        return servers.asked

    assert asyncio.run(run(1000))[-4:] == [16] * 4
    assert asyncio.run(run(4 << 20)) == [1] * 320


def test_a_failure_is_that_of_its_key() -> None:
    async def run() -> list[Any]:
        gets = JoinedGets(Servers(10).ask)
        for _ in range(3):
            await _all(gets, [str(number) for number in range(64)])
        return await _all(gets, ["1", "bad", "missing", "3"])

    first, bad, missing, third = asyncio.run(run())
    assert (first[0][0], third[0][0], missing) == (1, 3, None)
    assert isinstance(bad, OSError)
    assert str(bad) == "bad fails"


def test_a_request_that_nobody_waits_for_is_cancelled() -> None:
    async def run() -> tuple[list[str], list[str]]:
        servers = Servers(10)
        gets = JoinedGets(servers.ask)
        for _ in range(3):
            await _all(gets, [str(number) for number in range(64)])
        servers.gate.clear()
        waiting = [asyncio.ensure_future(gets.get(key, [])) for key in ("1", "2")]
        await asyncio.wait(waiting, timeout=0.01)
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=0.01)
        before = list(servers.ended)
        waiting[1].cancel()
        for one in waiting:
            with pytest.raises(asyncio.CancelledError):
                await one
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 1)
        return before, servers.ended

    assert asyncio.run(run()) == ([], ["cancelled"])
