"""Trees of values at locations of every kind, not by way of the code that copies."""

from collections.abc import Callable
from pathlib import Path

import obstore
import obstore.store
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from ucxstore import UcxStore

type Named = Callable[[str, str], str]
"""Makes the name of a location of one kind."""


def everything(location: str) -> dict[str, bytes]:
    """Return what is at a location, not by way of the code that copies."""
    if location.startswith("ucx://"):
        return sync(_everything(UcxStore(location)))
    if location.startswith("s3://"):
        store = obstore.store.from_url(location)
        listed = [meta["path"] for batch in obstore.list(store) for meta in batch]
        return {key: bytes(obstore.get(store, key).bytes()) for key in listed}
    root = Path(location)
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


async def _everything(store: UcxStore) -> dict[str, bytes]:
    found = {}
    async for key in store.list():
        value = await store.get(key)
        assert value is not None
        found[key] = value.to_bytes()
    return found


def fill(location: str, values: dict[str, bytes]) -> None:
    if location.startswith("ucx://"):
        store = UcxStore(location)
        for key, value in values.items():
            store.set_sync(key, cpu.Buffer.from_bytes(value))
    elif location.startswith("s3://"):
        objects = obstore.store.from_url(location)
        for key, value in values.items():
            obstore.put(objects, key, value)
    else:
        for key, value in values.items():
            path = Path(location, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
