"""Changes that were given up, and which the object store carries out later."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.eventually import eventually
from tests.server.sources.s3_objects import Answer, Rule, S3Objects
from tests.server.sources.test_cache import get, put
from ucxstore import UcxStore
from ucxstore.base import errors
from ucxstore.server import Server


def delete(store: UcxStore, key: str) -> None:
    asyncio.run(store.delete(key))


@contextmanager
def served(source: Any, **options: Any) -> Iterator[tuple[Server, UcxStore]]:
    """Start a server of a source; yield it, and a store of it."""
    with Server(source, **options) as server, UcxStore(server.address) as store:
        yield server, store


def give_up_a_write(bucket: S3Objects, store: UcxStore) -> Rule:
    """Write what the object store does not answer in time; return its request, held back."""
    late = bucket.hold("PUT", "k")
    with pytest.raises(errors.UnknownOutcomeError, match="'k'"):
        put(store, "k", b"1")
    return late


@pytest.mark.parametrize("before", ["missing", "unseen", "read", "written"])
def test_a_write_that_was_given_up_does_not_undo_a_later_one(
    bucket: S3Objects, before: str
) -> None:
    if before in ("unseen", "read"):
        bucket.objects["k"] = b"0"
    with served(bucket.store(), source_timeout=1.0) as (_, store):
        if before == "read":
            assert get(store, "k") == b"0"
        elif before == "written":
            put(store, "k", b"0")
        if before == "unseen":  # the first PUT finds that the key is there
            bucket.hold("PUT", "k").goes_on.set()
        late = give_up_a_write(bucket, store)
        put(store, "k", b"2")
        late.carry_out()
        assert bucket.objects["k"] == b"2"
        assert get(store, "k") == b"2"


def test_a_write_of_equal_bytes_is_not_undone_either(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    """An equal value has an equal entity tag, so no condition tells them apart."""
    with served(bucket.store(), source_timeout=1.5) as (_, store):
        put(store, "k", b"0")
        late = give_up_a_write(bucket, store)
        again = pool.submit(put, store, "k", b"0")
        with pytest.raises(TimeoutError):
            again.result(0.3)
        assert bucket.requests["PUT", "k"] == 2
        late.carry_out()
        again.result(30)
        assert bucket.objects["k"] == b"0"
        assert get(store, "k") == b"0"


def test_a_value_of_unknown_age_is_not_kept(bucket: S3Objects) -> None:
    """The old value is read, but not believed, until the key is written anew."""
    with served(bucket.store(), source_timeout=1.0) as (_, store):
        put(store, "k", b"0")
        late = give_up_a_write(bucket, store)
        assert get(store, "k") == b"0"
        late.carry_out()
        assert get(store, "k") == b"1"
        put(store, "k", b"2")
        assert get(store, "k") == b"2"
        asked = bucket.requests["GET", "k"]
        assert get(store, "k") == b"2"
        assert bucket.requests["GET", "k"] == asked


def test_writes_of_one_key_are_sent_one_after_another(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    with served(bucket.store()) as (_, store):
        first = bucket.hold("PUT", "k")
        writes = [pool.submit(put, store, "k", b"1")]
        assert first.arrived.wait(10)
        writes.append(pool.submit(put, store, "k", b"2"))
        put(store, "other", b"3")
        assert bucket.requests["PUT", "k"] == 1
        first.carry_out()
        for one in writes:
            one.result(30)
        assert bucket.values() == {"k": b"2", "other": b"3"}
        assert get(store, "k") == b"2"


def test_who_gave_a_write_up_sees_his_next_one_last(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    """The client's own time-out strikes; the server still waits for the store."""
    with (
        Server(bucket.store()) as server,
        UcxStore(server.address) as store,
        UcxStore(server.address, timeout=0.5) as hasty,
    ):
        first = bucket.hold("PUT", "k")
        with pytest.raises(
            errors.RequestTimeoutError, match="'k' may have its old value"
        ) as raised:
            put(hasty, "k", b"1")
        assert isinstance(raised.value, errors.UnknownOutcomeError)
        with pytest.raises(errors.RequestTimeoutError):
            put(hasty, "k", b"never sent")
        last = pool.submit(put, store, "k", b"2")
        # It comes behind the notes that the others were given up.
        eventually(lambda: server.stats()["writing_bytes"] == len(b"1" + b"never sent" + b"2"))
        first.carry_out()
        last.result(30)
        assert bucket.objects["k"] == b"2"
        assert bucket.requests["PUT", "k"] == 2


def test_a_write_whose_server_ended_does_not_undo_a_later_one(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    """The next server in rank writes others later."""
    with Server(bucket.store()) as one, Server(bucket.store()) as other:
        both = f"ucx://{one.address.removeprefix('ucx://')},{other.address.removeprefix('ucx://')}"
        with UcxStore(both) as store:
            late = bucket.hold("PUT", "k")
            write = pool.submit(put, store, "k", b"1")
            assert late.arrived.wait(10)
            asked = max((one, other), key=lambda server: server.stats()["writing_bytes"])
            asked.close(0)
            with pytest.raises(errors.UnknownOutcomeError, match="'k'"):
                write.result(30)
            put(store, "k", b"2")
            late.carry_out()
            assert bucket.objects["k"] == b"2"
            assert get(store, "k") == b"2"


def test_the_loss_of_the_only_server_tells_of_the_write(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    with served(bucket.store()) as (server, store):
        put(store, "k", b"0")
        late = bucket.hold("PUT", "k")
        write = pool.submit(put, store, "k", b"1")
        assert late.arrived.wait(10)
        server.close(0)
        with pytest.raises(errors.UnknownOutcomeError, match="'k'"):
            write.result(30)


@pytest.mark.parametrize("answer", [Answer.FAILED, Answer.LOST])
@pytest.mark.parametrize("before", [None, b"0"])
def test_a_write_whose_answer_was_lost_has_succeeded(
    bucket: S3Objects, answer: Answer, before: bytes | None
) -> None:
    with served(bucket.store()) as (_, store):
        if before is not None:
            put(store, "k", before)
        bucket.answer("PUT", "k", answer)
        put(store, "k", b"1")
        assert bucket.objects["k"] == b"1"
        put(store, "k", b"2")
        assert bucket.objects["k"] == b"2"
        assert get(store, "k") == b"2"


def test_a_write_that_is_sent_again_does_not_undo_a_later_one(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    with served(bucket.store()) as (_, store):
        put(store, "k", b"0")
        bucket.answer("PUT", "k", Answer.FAILED)
        again = bucket.hold("PUT", "k")
        write = pool.submit(put, store, "k", b"1")
        assert again.arrived.wait(10)
        bucket.objects["k"] = b"of another server"
        again.carry_out()
        with pytest.raises(errors.StorageError):
            write.result(30)
        assert bucket.objects["k"] == b"of another server"
        assert get(store, "k") == b"of another server"


def test_a_store_that_answers_nothing_leaves_the_end_unknown(bucket: S3Objects) -> None:
    with served(bucket.store(max_retries=0)) as (_, store):
        bucket.answer("PUT", "k", Answer.LOST)
        with pytest.raises(
            errors.UnknownOutcomeError, match="'k' may have its old value"
        ) as raised:
            put(store, "k", b"1")
        assert isinstance(raised.value, errors.StorageError)
        assert get(store, "k") == b"1"


def test_what_was_never_sent_has_a_known_end() -> None:
    options = {
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "us-east-1",
    }
    with served("s3://bucket", storage_options=options, source_timeout=2.0, check=False) as (
        _,
        store,
    ):
        with pytest.raises(errors.StorageError, match="connection refused") as raised:
            put(store, "k", b"1")
        assert not isinstance(raised.value, errors.UnknownOutcomeError)


@pytest.mark.parametrize("conditions", [True, False])
def test_a_delete_that_was_given_up_does_not_undo_a_later_write(
    bucket: S3Objects, pool: ThreadPoolExecutor, conditions: bool
) -> None:
    source = bucket.store() if conditions else bucket.http_store()
    with served(source, source_timeout=1.5) as (server, store):
        put(store, "k", b"0")
        late = bucket.hold("DELETE", "k")
        with pytest.raises(errors.UnknownOutcomeError, match="'k'"):
            delete(store, "k")
        write = pool.submit(put, store, "k", b"1")
        eventually(lambda: server.stats()["writing_bytes"])
        assert bucket.requests["PUT", "k"] == 1
        late.carry_out()
        write.result(30)
        assert bucket.objects["k"] == b"1"
        assert get(store, "k") == b"1"


def test_a_store_without_conditions_is_waited_for(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    with served(bucket.http_store(), source_timeout=1.5) as (server, store):
        late = give_up_a_write(bucket, store)
        write = pool.submit(put, store, "k", b"2")
        eventually(lambda: server.stats()["writing_bytes"])
        assert bucket.requests["PUT", "k"] == 1
        late.carry_out()
        write.result(30)
        assert bucket.objects["k"] == b"2"


def test_nothing_is_waited_for_for_ever(bucket: S3Objects) -> None:
    with served(bucket.http_store(), source_timeout=0.5) as (_, store):
        late = give_up_a_write(bucket, store)
        put(store, "k", b"2")
        assert not late.goes_on.is_set()
        assert bucket.objects["k"] == b"2"


def test_a_removal_of_a_prefix_that_was_given_up_does_not_undo_a_later_write(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    bucket.objects.update({"a/1": b"0", "a/2": b"0", "b": b"0"})
    with served(bucket.store(), source_timeout=1.5) as (server, store):
        late = bucket.hold("DELETE", "a/1")
        with pytest.raises(errors.UnknownOutcomeError, match="a/"):
            asyncio.run(store.delete_dir("a"))
        write = pool.submit(put, store, "a/2", b"1")
        eventually(lambda: server.stats()["writing_bytes"])
        late.carry_out()
        write.result(30)
        assert bucket.values() == {"a/2": b"1", "b": b"0"}
        assert get(store, "a/2") == b"1"


def test_a_created_key_that_was_removed_does_not_come_back(
    bucket: S3Objects, pool: ThreadPoolExecutor
) -> None:
    """A PUT on the condition that the key is missing may be carried out after its removal."""
    with served(bucket.store(), source_timeout=1.5) as (_, store):
        late = give_up_a_write(bucket, store)
        removal = pool.submit(delete, store, "k")
        late.carry_out()
        removal.result(30)
        assert "k" not in bucket.objects
        assert get(store, "k") is None


def test_a_store_that_heeds_no_conditions_is_found_out(bucket: S3Objects) -> None:
    """Its writes succeed all the same."""
    bucket.heeds = False
    with served(bucket.store()) as (_, store):
        for value in (b"1", b"2", b"3"):
            put(store, "k", value)
            assert get(store, "k") == value


@pytest.mark.parametrize("count", [20])
def test_writes_take_no_more_requests_than_before(bucket: S3Objects, count: int) -> None:
    with served(bucket.store()) as (_, store):
        for _ in range(2):
            for number in range(count):
                put(store, str(number), b"value")
        assert sum(bucket.requests.values()) == 2 * count
    with served(bucket.store(), cache=0) as (_, store):
        bucket.requests.clear()
        for number in range(count):  # they are there, and this server does not know it
            put(store, str(number), b"another")
        methods = [method for (method, _), n in bucket.requests.items() for _ in range(n)]
        assert methods.count("PUT") == count + 1
        assert methods.count("HEAD") == count
