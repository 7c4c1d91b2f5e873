"""What can be seen on the network between two hosts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hosts.conftest import RunOn
from tests.hosts.network import Host

SECRET = "a secret that is long enough"

# All packets of the device, both ways, while a store writes and reads.
USE = """
import socket
import struct

ALL, FORCE = 3, 33
sniffed = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
sniffed.setsockopt(socket.SOL_SOCKET, FORCE, 64 << 20)
sniffed.bind(("eth0", 0))
sniffed.setblocking(False)

KEY = "a-key-that-nobody-sees"
VALUE = b"a value that nobody sees" * 10_000
with UcxStore(store.address, secret={secret!r}, encrypt={encrypt}, integrity=True) as mine:
    mine.set_sync(KEY, as_buffer(VALUE))
    assert mine.get_sync(KEY).to_bytes() == VALUE
    data = np.frombuffer(VALUE, "u1").reshape(400, 600)
    array = zarr.create_array(mine, name=KEY + "/array", data=data, chunks=(70, 130))
    assert (array[3:300:2, 5:500] == data[3:300:2, 5:500]).all()
    assert list(zarr.open_group(mine, path=KEY)) == ["array"]
    stats = mine.stats()
packets = []
while True:
    try:
        packets.append(sniffed.recv(1 << 17))
    except BlockingIOError:
        break
counted = sniffed.getsockopt(263, 6, 8)
sniffed.close()
_, dropped = struct.unpack("II", counted)
assert dropped == 0
assert sum(map(len, packets)) > 2 * len(VALUE)
for sought in (KEY.encode(), VALUE[:24], VALUE[100:113], b"zarr_format", b"chunk_grid"):
    print(sum(sought in packet for packet in packets) > 0)
print(stats["encrypted"], *stats["lanes"])
"""


@pytest.mark.parametrize("encrypt", [True, False])
def test_who_listens_sees_no_keys_and_no_values(
    encrypt: bool, hosts: Sequence[Host], run_on: RunOn, tmp_path: Path
) -> None:
    serving, using, *_ = hosts
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    options = ["--secret-file", str(file), *(["--encrypt"] if encrypt else [])]
    with serving.serving("memory://", *options):
        code = USE.format(secret=SECRET, encrypt=encrypt)
        *seen, said = run_on(using, serving.address, code).end().splitlines()
    assert seen == [str(not encrypt)] * 5
    assert said == f"{encrypt} tcp"
