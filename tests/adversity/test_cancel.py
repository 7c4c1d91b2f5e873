"""Requests are cancelled: the caller's memory is its own again at once."""

import asyncio
import gc
import random
import time
import weakref
from collections.abc import Awaitable
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from tests.adversity.conftest import OpenStore, StartServer, Ucx
from tests.adversity.scripts import Script
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
    LARGE,
    MEDIUM,
    VALUE,
    Repeated,
    begin_to_read,
    filled,
    partly_filled,
    wipe,
)
from tests.eventually import eventually, eventually_async, loop_turns
from tests.values import as_buffer
from ucxstore import ServerLostError, UcxStore
from ucxstore.client.requests import Request
from ucxstore.pipeline.access import access_to

# From the cancellation to its end: UCX must first let go of the memory.
RELEASE = 20.0


@pytest.fixture
def store(server: RemoteServer, store: UcxStore) -> UcxStore:
    store.set_sync("key", as_buffer(filled(VALUE)))
    return store


async def cancel[T](task: "asyncio.Task[T]") -> float:
    """Cancel it, and return how long that took."""
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - start


async def cancelled_in_mid_read(store: UcxStore, out: np.ndarray) -> None:
    """Cancel a read into `out` in its middle."""
    while True:
        wipe(out)
        reading = asyncio.create_task(store.get_into("key", out))
        await eventually_async(lambda task=reading: partly_filled(out) or task.done(), pause=0)
        if not reading.done():
            assert await cancel(reading) < RELEASE
            return


async def test_a_read(store: UcxStore) -> None:
    out = filled(BLANK)
    for _ in range(3):
        await cancelled_in_mid_read(store, out)
        out[:] = BLANK
        assert await store.getsize("key") == LARGE
        other = filled(BLANK)
        assert await store.get_into("key", other) == LARGE
        assert (other == VALUE).all()
        assert (out == BLANK).all()


async def test_the_memory_of_a_read_goes(store: UcxStore) -> None:
    out = filled(BLANK)
    gone = weakref.ref(out)
    await cancelled_in_mid_read(store, out)
    del out
    await loop_turns()  # asyncio itself holds the last task in the step that it woke
    gc.collect()
    assert gone() is None
    assert await store.getsize("key") == LARGE


async def test_a_write(store: UcxStore) -> None:
    chance = random.Random(7)
    cancelled = 0
    for byte in range(2, 12):
        source = filled(byte)
        writing = asyncio.create_task(store.set("key", cpu.Buffer.from_array_like(source)))
        await loop_turns(chance.randrange(1, 400))
        if not writing.done():
            assert await cancel(writing) < RELEASE
            cancelled += 1
        source[:] = 0x77
        out = filled(BLANK)
        assert await store.get_into("key", out) == LARGE
        assert out[0] in {VALUE, *range(2, byte + 1)}
        assert (out == out[0]).all()
    assert cancelled > 2


async def test_a_deadline_of_asyncios(store: UcxStore) -> None:
    out = filled(BLANK)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read_until_cancelled(store, out), 0.1)
    assert time.monotonic() - start < 0.1 + RELEASE
    out[:] = BLANK
    assert await store.getsize("key") == LARGE
    assert (out == BLANK).all()


async def read_until_cancelled(store: UcxStore, out: np.ndarray) -> None:
    while True:
        await store.get_into("key", out)


async def test_the_others_on_the_connection(store: UcxStore) -> None:
    """Other requests succeed, or raise that the connection was reset for one that did not end."""
    await store.set("other", as_buffer(filled(3, MEDIUM)))
    out = filled(BLANK)
    outs = [filled(BLANK, MEDIUM) for _ in range(8)]
    others = [asyncio.create_task(store.get_into("other", out)) for out in outs]
    small = asyncio.create_task(store.exists("key"))
    await cancelled_in_mid_read(store, out)
    out[:] = BLANK
    results = await asyncio.gather(*others, small, return_exceptions=True)
    for result, array in zip(results, outs, strict=False):
        if isinstance(result, BaseException):
            assert isinstance(result, ServerLostError)
            assert "cancelled" in str(result)
        else:
            assert result == MEDIUM
            assert (array == 3).all()
    assert (out == BLANK).all()


async def test_one_that_waits_for_a_stopped_server(
    server: RemoteServer, store: UcxStore, start_server: StartServer, open_store: OpenStore
) -> None:
    elsewhere = open_store(start_server())
    await elsewhere.set("other", as_buffer(filled(3, MEDIUM)))
    out = filled(BLANK)
    reading = await begin_to_read(store, out)
    await asyncio.to_thread(server.process.stop)
    try:
        assert await cancel(reading) < RELEASE
        out[:] = BLANK
        assert await elsewhere.getsize("other") == MEDIUM
    finally:
        server.process.go_on()
    assert await store.getsize("key") == LARGE
    assert (out == BLANK).all()


async def test_a_storm(store: UcxStore) -> None:
    """Reads and writes are cancelled at any moment, and the connection stays usable."""
    await store.set("other", as_buffer(filled(3, MEDIUM)))
    chance = random.Random(7)
    outs = [filled(BLANK, MEDIUM) for _ in range(4)]

    def requests() -> list[Awaitable[object]]:
        source = as_buffer(filled(4, MEDIUM))
        return [
            *(store.get_into("other", out) for out in outs),
            store.set("written", source),
            store.get_partial_values(None, [("other", None)]),
            store.exists("other"),
            store.delete("nothing"),
        ]

    for _ in range(15):
        tasks = [asyncio.ensure_future(request) for request in requests()]
        for task in chance.sample(tasks, k=5):
            await loop_turns(chance.randrange(6))
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert not isinstance(result, Exception) or isinstance(result, ServerLostError)
    assert await store.get_into("other", outs[0]) == MEDIUM
    assert (outs[0] == 3).all()
    if await store.exists("written"):
        await store.get_into("written", outs[0])
        assert (outs[0] == 4).all()


# ---- Ctrl-C ----

READ_FOREVER = """
out = filled(BLANK)
async def main():
    while True:
        await store.get_into("key", out)
def read_forever():
    while True:
        store.get_into_sync("key", out)
def ctrl_c():
    eventually(lambda: out[-1] != BLANK)
    print("reading", flush=True)
threading.Thread(target=ctrl_c, daemon=True).start()
"""

ENDS = """
try:
    {call}
except KeyboardInterrupt:
    out[:] = BLANK
    try:
        assert store.get_into_sync("key", filled(BLANK)) == LARGE
    except ServerLostError:  # the connection was reset to get the memory back
        assert store.get_into_sync("key", filled(BLANK)) == LARGE
    assert (out == BLANK).all()
    print("interrupted")
"""


@pytest.mark.parametrize("call", ["read_forever()", "asyncio.run(main())"])
def test_ctrl_c(server: RemoteServer, store: UcxStore, ucx: Ucx, call: str) -> None:
    with Script(server.address, ucx, READ_FOREVER + ENDS.format(call=call)) as script:
        assert script.line() == "reading"
        start = time.monotonic()
        script.interrupt()
        assert script.line() == "interrupted"
        assert time.monotonic() - start < RELEASE
        script.end()
    assert store.get_sync("key") is not None


def test_an_interrupt_between_the_start_of_a_read_and_the_wait_for_it(
    store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks for signals there, too."""
    out = filled(BLANK)
    channel = access_to(store).channel
    begin = channel.begin

    def interrupted(request: Request[Any], queue: None) -> Any:
        begin(request, queue)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(channel, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.get_into_sync("key", out)
    out[:] = BLANK
    try:
        assert store.get_into_sync("key", filled(BLANK)) == LARGE
    except ServerLostError:  # the connection was reset to get the memory back
        assert store.get_into_sync("key", filled(BLANK)) == LARGE
    assert (out == BLANK).all()


def test_ctrl_c_while_the_server_stands_still(
    server: RemoteServer, store: UcxStore, ucx: Ucx
) -> None:
    code = """
out = filled(BLANK)
def read():
    while True:
        wipe(out)
        store.get_into_sync("key", out)
def tell():
    until_begun(out)
    print("reading", flush=True)
threading.Thread(target=tell, daemon=True).start()
try:
    read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with Script(server.address, ucx, code) as script:
        assert script.line() == "reading"
        server.process.stop()
        try:
            start = time.monotonic()
            script.interrupt()
            assert script.line() == "interrupted"
            assert time.monotonic() - start < RELEASE
            script.end()
        finally:
            server.process.go_on()
    assert store.get_sync("key") is not None


def test_ctrl_c_while_zarr_reads(server: RemoteServer, store: UcxStore, ucx: Ucx) -> None:
    array = zarr.create_array(
        store, name="array", shape=(3000, 3000), chunks=(100, 3000), dtype="f8", compressors=None
    )
    array[...] = 1
    code = """
import logging, warnings, zarr
# Of zarr's own: Ctrl-C may come between its making a coroutine and its running it, and its loop
# ends with the process, whatever runs there.
warnings.filterwarnings("ignore", "coroutine .* was never awaited")
pending = "Task was destroyed but it is pending"
logging.getLogger("asyncio").addFilter(lambda record: pending not in record.getMessage())
array = zarr.open_array(store, path="array")
def read():
    while True:
        array[...]
        print("reading", flush=True)
try:
    read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with Script(server.address, ucx, code) as script:
        assert script.line() == "reading"
        script.interrupt()
        while script.line() != "interrupted":
            pass
        script.end()
    with Repeated(lambda: array[0]) as reading:
        eventually(lambda: reading.rounds)
