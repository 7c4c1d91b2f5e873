"""How encoded and merged writes end: what is in flight before and after that."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.core.buffer import NDBuffer

from tests.backdoor import Backdoor
from tests.eventually import eventually, nothing_happens_async
from tests.pipeline.arrays import DATA, SLAB, made
from tests.pipeline.strategies import contents
from tests.pipeline.watched import wrap_sending
from ucxstore import UcxStore
from ucxstore.codecs.chain import Chain
from ucxstore.copies import count_copies
from ucxstore.pipeline import write_plan
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.encode import Encoding
from ucxstore.server import Server


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_plan, "GROUP_BYTES", 1)


class Gate:
    """Holds encoders up, with a chunk of the user's array in their hands, until it is opened."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        is_held: Callable[[NDBuffer], bool] = lambda chunk: True,
    ) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.inside = 0
        encode = Chain.encode

        def gated(chain: Chain, chunk: NDBuffer, spec: Any) -> Any:
            if not is_held(chunk):
                return encode(chain, chunk, spec)
            self.inside += 1
            self.entered.set()
            assert self.opened.wait(30)
            try:
                return encode(chain, chunk, spec)
            finally:
                self.inside -= 1

        monkeypatch.setattr(Chain, "encode", gated)


# ---- while it goes on ----


@pytest.mark.usefixtures("small_groups", "two_threads")
async def test_what_is_encoded_is_sent_while_others_are_encoded(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    gate = Gate(monkeypatch, lambda chunk: bool(chunk[0, 0].as_scalar() == -DATA[250, 0]))
    write = asyncio.ensure_future(array.async_array.setitem(..., -DATA))
    assert await asyncio.to_thread(gate.entered.wait, 30)
    async with asyncio.timeout(20):
        for part in np.s_[:250], np.s_[500:]:
            while not np.array_equal(await array.async_array.getitem(part), -DATA[part]):
                await nothing_happens_async(0.005)
    assert not write.done()
    gate.opened.set()
    await write
    np.testing.assert_array_equal(await array.async_array.getitem(...), -DATA)


@pytest.mark.parametrize("budget", [1, 3 * SLAB, 1 << 28])
@pytest.mark.parametrize("selection", [np.s_[:], np.s_[:, 5]])
@pytest.mark.usefixtures("small_groups")
def test_the_budget_holds(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, budget: int, selection: Any
) -> None:
    """Count the bytes that are read, encoded or sent at once, whenever some are added."""
    made(ucx_store, compressors=BloscCodec(cname="lz4", clevel=0))
    store = UcxStore(ucx_store.address, buffer_budget=budget)
    array = zarr.open_array(store, path="a", mode="r+")
    peaks: list[tuple[int, int]] = []
    flying: dict[str, int] = {}
    make = Encoding._make_all

    def counting_make(self: Any, positions: list[int], sources: list[Any]) -> Any:
        paths = [self._batch.chunks[position][0].path for position in positions]
        held = sum(source.size for source in sources if source is not None)
        made = make(self, positions, sources)
        flying[paths[0]] = held + sum(value.size for value in made)
        peaks.append((sum(list(flying.values())), len(flying)))
        return made

    def counting(send: Any) -> Any:
        async def counted(self: Any, keys: Any, values: Any) -> None:
            await send(self, keys, values)
            del flying[keys[0]]

        return counted

    monkeypatch.setattr(Encoding, "_make_all", counting_make)
    wrap_sending(monkeypatch, counting)
    array[selection] = 1 - DATA[selection]
    most, chunks = max(peaks)
    assert len(peaks) == 4
    assert not flying
    assert most <= budget or chunks == 1  # a chunk larger than the budget is written by itself
    assert access_to(store).budget.in_use == 0
    np.testing.assert_array_equal(array[selection], 1 - DATA[selection])


@pytest.mark.usefixtures("small_groups")
def test_reads_and_writes_at_the_same_time_share_the_budget(ucx_store: UcxStore) -> None:
    made(ucx_store)
    store = UcxStore(ucx_store.address, buffer_budget=SLAB)
    arrays = [zarr.open_array(store.with_read_only(), path="a", mode="r+") for _ in range(3)]
    results: list[bool] = []

    def work(number: int) -> None:
        array = arrays[number]
        for _ in range(5):
            found = asyncio.run(array.async_array.getitem(np.s_[:]))
            asyncio.run(array.async_array.setitem(np.s_[:], DATA))
            results.append(np.array_equal(found, DATA))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 15
    assert access_to(store).budget.in_use == 0


def test_memory_is_bounded(prefix: str) -> None:
    """The bound: the budget, and for each thread its codec's memory and one contiguous chunk."""
    with Server.spawn("memory://") as server:
        store = UcxStore(f"{server.address}/{prefix}", buffer_budget=1 << 20, strict=True)
        noise = np.random.default_rng(0).random((2000, 2000), "f4")
        array = zarr.create_array(store, name="n", shape=noise.shape, chunks=(200, 200), dtype="f4")
        with zarr.config.set({"threading.max_workers": 2}):
            array[:] = noise  # starts threads
            for selection, value in (np.s_[:], noise), (np.s_[10:-10], 1 - noise[10:-10]):
                counts = count_copies(lambda s=selection, v=value: array.__setitem__(s, v), 1)
                chunk = 4 * 200 * 200
                allowed = (1 << 20) + 2 * (2 * chunk) + 2 * (1 << 20) + (1 << 20)
                assert counts.peak_extra < allowed, counts.culprits
        np.testing.assert_array_equal(array[10:-10], 1 - noise[10:-10])


# ---- no reader of the user's array is left behind ----


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("codec", [None, ZstdCodec()])
@pytest.mark.usefixtures("small_groups")
async def test_a_cancelled_write_waits_for_its_threads(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, times: int, codec: Any
) -> None:
    array = await asyncio.to_thread(made, ucx_store, compressors=codec)
    gate = Gate(monkeypatch)
    value = -DATA[:, 5:]
    write = asyncio.ensure_future(array.async_array.setitem(np.s_[:, 5:], value))
    assert await asyncio.to_thread(gate.entered.wait, 30)
    for _ in range(times):
        write.cancel()
        await nothing_happens_async(0.02)
    assert not write.done()  # its thread is about to read
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert gate.inside == 0
    assert access_to(ucx_store).budget.in_use == 0
    stored = await asyncio.to_thread(contents, array)
    value[:] = 7
    await asyncio.to_thread(lambda: None)
    assert await asyncio.to_thread(contents, array) == stored
    monkeypatch.undo()
    await array.async_array.setitem(..., -DATA)
    np.testing.assert_array_equal(await array.async_array.getitem(...), -DATA)


@pytest.mark.usefixtures("small_groups")
async def test_the_loop_runs_on_while_threads_encode(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    gate = Gate(monkeypatch)
    write = asyncio.ensure_future(array.async_array.setitem(..., -DATA))
    assert await asyncio.to_thread(gate.entered.wait, 30)
    assert await ucx_store.exists("a/zarr.json")
    assert not write.done()
    gate.opened.set()
    await write
    np.testing.assert_array_equal(await array.async_array.getitem(...), -DATA)


@pytest.mark.usefixtures("small_groups")
async def test_a_failed_write_waits_for_its_other_threads(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    backdoor.set(f"{prefix}/a/c/1/0", b"no zstd frame")  # which does not get to the gate
    load = Chain.load
    with zarr.config.set({"threading.max_workers": 3}):
        gate = Gate(monkeypatch)

        def late(self: Any, source: Any, spec: Any) -> Any:
            """Let a broken value fail only once a sound one is being encoded."""
            assert source.size > 100 or gate.entered.wait(30)
            return load(self, source, spec)

        monkeypatch.setattr(Chain, "load", late)
        write = asyncio.ensure_future(array.async_array.setitem(np.s_[:, 5], 1))
        assert await asyncio.to_thread(gate.entered.wait, 30)
        await nothing_happens_async(0.05)
        assert not write.done()
        gate.opened.set()
        with pytest.raises(RuntimeError, match="invalid input data"):
            await write
    assert gate.inside == 0
    assert access_to(ucx_store).budget.in_use == 0


@pytest.mark.parametrize("how", ["encode", "send"])
async def test_a_failure_keeps_no_memory(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    array = await asyncio.to_thread(made, ucx_store)

    def failing(*_: Any) -> Any:
        raise RuntimeError("it did not work")

    if how == "encode":
        monkeypatch.setattr(Chain, "encode", failing)
    else:
        wrap_sending(monkeypatch, lambda _: failing)
    value = -DATA
    gone = weakref.ref(value)
    gc.collect()
    gc.disable()
    try:
        message = ""
        try:
            await array.async_array.setitem(..., value)
        except RuntimeError as error:
            message = str(error)
        assert message == "it did not work"
        del value
        await asyncio.to_thread(eventually, lambda: gone() is None, 5)
    finally:
        gc.enable()
    assert access_to(ucx_store).budget.in_use == 0


async def test_a_lost_server_fails_the_write(tmp_path: Any) -> None:
    with Server(tmp_path) as server:
        store = UcxStore(server.address, timeout=30, connect_timeout=3)
        array = await asyncio.to_thread(made, store)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1"):
        await array.async_array.setitem(..., -DATA)
    assert access_to(store).budget.in_use == 0
    store.close()
