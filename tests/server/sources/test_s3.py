"""A server in front of a real S3 server; `make s3` builds one."""

import asyncio
from datetime import timedelta

import numpy as np
import obstore
import pytest
import zarr
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store
from zarr.core.buffer import default_buffer_prototype

from profiles.s3 import S3Server
from tests.cli.command import run
from tests.fixtures import s3_environment as s3_environment
from tests.server.sources.test_cache import get, put
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.server import Server
from ucxstore.server.sources.object_store import ObjectSource

PROTOTYPE = default_buffer_prototype()


def bucket(s3: S3Server, **changes: str) -> S3Store:
    return S3Store(
        **{
            "bucket": s3.bucket,
            "endpoint": s3.endpoint,
            "region": s3.region,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
            **changes,
        },
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=1)},
    )


def test_an_array_by_url_and_in_a_process(s3: S3Server, s3_environment: None) -> None:
    values = np.random.default_rng(0).random((300, 300))
    location = f"s3://{s3.bucket}/arrays/one"
    with Server(location, cache="64MiB") as server, UcxStore(server.address) as store:
        array = zarr.create_array(store, shape=(300, 300), chunks=(100, 100), dtype="f8")
        array[:] = values
        np.testing.assert_array_equal(array[:], values)
    keys = {entry["path"] for entry in obstore.list(bucket(s3), "arrays/one").collect()}
    assert "arrays/one/zarr.json" in keys
    assert len(keys) == 10
    with Server.spawn(location, cache="64MiB") as process, UcxStore(process.address) as store:
        np.testing.assert_array_equal(zarr.open_array(store, mode="r")[:], values)
    assert process.returncode == 0, process.output  # threads of obstore's may outlive Python


def test_a_key_is_made_once(s3: S3Server) -> None:
    with Server(bucket(s3)) as server, UcxStore(f"{server.address}/once") as store:
        for value in (b"first", b"second"):
            asyncio.run(store.set_if_not_exists("k", PROTOTYPE.buffer.from_bytes(value)))
        assert get(store, "k") == b"first"


def test_keys_are_listed_in_pages_and_removed(s3: S3Server) -> None:
    objects = bucket(s3, prefix="many")
    # More than one page of a listing, and of S3's.
    names = [f"group/{'long-name/' * 20}{number:04}/.z" for number in range(1300)]
    for name in names:
        obstore.put(objects, name, b"12")

    async def listed(store: UcxStore) -> None:
        assert [key async for key in store.list()] == names
        assert [key async for key in store.list_prefix(names[7][:-3])] == [names[7]]
        assert [name async for name in store.list_dir("group")] == ["long-name"]
        assert await store.getsize_prefix("group") == 2 * len(names)
        assert not await store.is_empty("group")
        await store.delete_dir("group")
        assert await store.is_empty("group")

    with Server(objects) as server, UcxStore(server.address) as store:
        asyncio.run(listed(store))
    assert not obstore.list(objects).collect()


def test_a_missing_bucket_is_no_missing_key(s3: S3Server) -> None:
    with pytest.raises(StorageError, match=r"^storage: S3Store: there is no such bucket"):
        Server(bucket(s3, bucket="no-such-bucket"))
    with (
        Server(bucket(s3, bucket="no-such-bucket"), check=False) as server,
        UcxStore(server.address) as store,
    ):
        for call in (
            lambda: get(store, "k"),
            lambda: put(store, "k", b"v"),
            lambda: asyncio.run(store.exists("k")),
            lambda: asyncio.run(store.delete("k")),
        ):
            with pytest.raises(StorageError, match=r"'k' .*there is no such bucket"):
                call()


def test_a_wrong_bucket_is_named_at_the_start(s3: S3Server, s3_environment: None) -> None:
    done = run("serve", "s3://no-such-bucket/data")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "ucxstore serve: storage: s3://no-such-bucket/data: there is no such bucket"
    )
    assert line.endswith("to start without asking: --no-check (check=False)")


def test_a_wrong_secret_is_told_and_not_shown(s3: S3Server) -> None:
    if s3.description.startswith("moto"):
        pytest.skip("moto's server takes any secret")
    with pytest.raises(StorageError, match=r"^storage: S3Store: permission denied"):
        Server(bucket(s3, secret_access_key="not-the-secret"))
    with (
        Server(bucket(s3, secret_access_key="not-the-secret"), check=False) as server,
        UcxStore(server.address) as store,
        pytest.raises(StorageError, match=r"'k' .*permission denied") as caught,
    ):
        get(store, "k")
    assert "not-the-secret" not in str(caught.value)
    assert s3.secret_key not in str(caught.value)


async def test_a_write_that_lands_late_fails(s3: S3Server) -> None:
    """A real server heeds the conditions that ours sends, also through prefixes."""
    store = bucket(s3)
    ours, others = (ObjectSource(store, "S3") for _ in range(2))
    key = "late/k"
    for source, text in ((ours, b"1"), (others, b"2"), (ours, b"3")):
        version = {"e_tag": (await obstore.head_async(store, key))["e_tag"]} if text > b"1" else {}
        await source.put(key, np.frombuffer(text, "u1"), if_absent=False)
        with pytest.raises((AlreadyExistsError, PreconditionError)):
            await obstore.put_async(store, key, b"late", mode=version or "create")
        assert bytes((await obstore.get_async(store, key)).bytes()) == text
