import asyncio
import subprocess
import sys

from tests.eventually import loop_turns
from ucxstore.server.sources.doubts import ANYTHING, Doubts

# obstore's threads take half a second to return from giving an answer. The interpreter shuts down
# meanwhile, and takes a second for it: until it has flushed its standard output.
ENDS_WHILE_ANSWERED = """
import sys, threading, time
from asyncio.selector_events import BaseSelectorEventLoop
from obstore.store import MemoryStore
from zarr.core.buffer import cpu
from ucxstore import Server, UcxStore

class Output:
    closed = False
    def flush(self, sleep=time.sleep):
        sleep(1)

def slowly(loop, wake=BaseSelectorEventLoop._write_to_self):
    wake(loop)
    if threading.current_thread().name.startswith("Dummy"):
        time.sleep(0.5)
BaseSelectorEventLoop._write_to_self = slowly
with Server(MemoryStore()) as server, UcxStore(server.address) as store:
    store.set_sync("key", cpu.Buffer.from_bytes(b"value"))
sys.stdout = Output()
"""


def test_a_process_does_not_end_before_obstores_threads_have_answered() -> None:
    command = [sys.executable, "-c", ENDS_WHILE_ANSWERED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_that_is_given_up_after_the_end_is_waited_for() -> None:
    async def given_up() -> asyncio.Future[None]:
        doubts = Doubts(3600.0)
        doubts.close()
        sent = asyncio.get_running_loop().create_future()
        doubts.add(["key"], ANYTHING, sent)
        await loop_turns()
        return sent

    assert asyncio.run(given_up()).cancelled()
