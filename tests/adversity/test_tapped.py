"""What somebody sees who listens on the wire."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.adversity.tapped import KEY, LARGE, SECRET, VALUE
from tests.durability.recording import preload

TAPPED = Path(__file__).with_name("tapped.py")
ROOT = TAPPED.parents[2]

# What is in a listing, in metadata, and in a compressed chunk.
OTHERS = (b"zarr_format", b"chunk_grid", b"\x28\xb5\x2f\xfd")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preload(TAPPED.with_name("tap.c"), tmp_path_factory.mktemp("tap"))


def run(library: Path, folder: Path, *, encrypt: bool) -> tuple[dict[str, Any], bytes]:
    record = folder / "wire"
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversity.tapped", record, str(encrypt)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout), record.read_bytes()


def test_nothing_is_seen_of_what_is_encrypted(library: Path, tmp_path: Path) -> None:
    said, wire = run(library, tmp_path, encrypt=True)
    assert said["lanes"] == ["tcp"]
    rows = [row.tobytes() for row in np.frombuffer(VALUE, np.uint8).reshape(24, 100)[:, :13]]
    keys = (KEY.encode(), SECRET.encode())
    for secret in (*keys, VALUE[:24], VALUE[:13], LARGE[:16], *OTHERS, *rows):
        assert secret not in wire, secret
    # It is what another library makes of it, under the same keys: no nonce but its own.
    [[send, receive]] = [[bytes.fromhex(key) for key in keys] for keys in said["keys"]]
    for key in (send, receive):
        nonces = [number.to_bytes(8, "little") + b"\1\0\0\0" for number in range(40)]
        sealed = [AESGCM(key).encrypt(nonce, LARGE, None) for nonce in nonces]
        assert sum(one in wire for one in sealed) == 1


def test_all_is_seen_of_what_is_not(library: Path, tmp_path: Path) -> None:
    """As it was, and is without: so the test above can fail."""
    said, wire = run(library, tmp_path, encrypt=False)
    assert said["keys"] == []
    for seen in (KEY.encode(), VALUE[:24], LARGE, *OTHERS):
        assert seen in wire, seen
    assert SECRET.encode() not in wire
