"""`ObspecStore`: obspec's protocols, with obstore's memory store as the oracle where they agree."""

import asyncio
import inspect
import io
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import obspec
import obspec.exceptions
import pytest
from obspec_utils.protocols import ReadableStore
from obspec_utils.readers import BlockStoreReader
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import MemoryStore

from tests.fixtures import memory_alone as memory_alone
from ucxstore import Secret, UcxStore
from ucxstore.copies import count_copies
from ucxstore.obspec import ObspecStore
from ucxstore.server import Server

VALUE = bytes(range(256)) * 100

# One protocol for each method that the class says it has.
PROTOCOLS = [
    getattr(obspec, f"{name}{end}")
    for name in (
        "Get",
        "GetRange",
        "GetRanges",
        "Head",
        "List",
        "ListWithDelimiter",
        "Put",
        "Delete",
    )
    for end in ("", "Async")
]


@pytest.fixture
def store(address: str, zarr_config: None) -> Iterator[ObspecStore]:
    with ObspecStore(address) as store:
        yield store


@pytest.fixture
def oracle() -> MemoryStore:
    return MemoryStore()


type Call = Callable[..., Any]


def whole(found: Any) -> bytes:
    """All of what a read of ours has returned."""
    return bytes(found.buffer() if hasattr(found, "buffer") else asyncio.run(found.buffer_async()))


@pytest.fixture(params=["blocking", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Call a method of a store, or its other form."""

    def blocking(store: Any, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(store, name)(*arguments, **options)

    def asynchronous(store: Any, name: str, *arguments: Any, **options: Any) -> Any:
        async def run() -> Any:
            answer: Awaitable[Any] = getattr(store, f"{name}_async")(*arguments, **options)
            return await answer

        return asyncio.run(run())

    return blocking if request.param == "blocking" else asynchronous


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_the_methods_are_those_of_the_protocols(protocol: type) -> None:
    (name,) = (one for one in vars(protocol) if not one.startswith("_"))
    wanted = inspect.signature(getattr(protocol, name)).parameters
    ours = inspect.signature(getattr(ObspecStore, name)).parameters
    assert [(one.name, one.kind) for one in ours.values()] == [
        (one.name, one.kind) for one in wanted.values()
    ]
    for parameter in ours.values():
        is_optional = wanted[parameter.name].default is not inspect.Parameter.empty
        assert (parameter.default is not inspect.Parameter.empty) == is_optional
    assert (
        inspect.iscoroutinefunction(getattr(ObspecStore, name))
        == inspect.iscoroutinefunction(getattr(protocol, name))
        or name == "list_async"
    )


def test_it_is_what_obspec_utils_reads_from(store: ObspecStore) -> None:
    assert isinstance(store, ReadableStore)


# ---- reading ----


@pytest.mark.parametrize(
    "wanted", [None, (10, 20), [0, 25_600], (25_000, 99_999), {"offset": 25_000}, {"suffix": 7}]
)
def test_get(store: ObspecStore, oracle: MemoryStore, call: Call, wanted: Any) -> None:
    for one in (store, oracle):
        one.put("a/b", VALUE)
    options = {} if wanted is None else {"range": wanted}
    ours, theirs = (call(one, "get", "a/b", options=options) for one in (store, oracle))
    assert whole(ours) == bytes(oracle.get("a/b", options=options).bytes())
    assert ours.range == theirs.range
    assert ours.meta["path"] == theirs.meta["path"]
    assert ours.meta["size"] == theirs.meta["size"] == len(VALUE)
    assert ours.meta["last_modified"].tzinfo is not None
    assert ours.attributes == theirs.attributes


def test_a_value_in_pieces(store: ObspecStore) -> None:
    store.put("large", np.arange(5 << 20, dtype="u4"))
    found = store.get("large")
    assert [len(piece) for piece in found] == [8 << 20, 8 << 20, 4 << 20]
    assert b"".join(found) == np.arange(5 << 20, dtype="u4").tobytes()

    async def pieces() -> list[bytes]:
        return [bytes(piece) async for piece in await store.get_async("large")]

    assert b"".join(asyncio.run(pieces())) == b"".join(found)


def test_buffers_are_not_copied(store: ObspecStore) -> None:
    store.put("a", VALUE)
    before = store.store.stats()["bytes_read"]
    found = store.get("a")
    first, second = np.asarray(found.buffer()), np.asarray(found.buffer())
    assert np.shares_memory(first, second)
    assert all(np.shares_memory(first, np.asarray(piece)) for piece in found)
    assert store.store.stats()["bytes_read"] - before == len(VALUE)


@pytest.mark.parametrize("name", ["get", "get_range", "get_ranges", "put"])
def test_no_copy_is_made_on_the_way(store: ObspecStore, name: str) -> None:
    values = np.arange(4 << 20, dtype="u4")
    store.put("large", values)
    nbytes = values.nbytes
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: np.asarray(store.get("large").buffer()),
        "get_range": lambda: np.asarray(store.get_range("large", start=0, end=nbytes)),
        "get_ranges": lambda: [
            np.asarray(one)
            for one in store.get_ranges("large", starts=[0, nbytes // 2], lengths=[nbytes // 2] * 2)
        ],
        "put": lambda: store.put("large", values),
    }
    counts = count_copies(calls[name], nbytes)
    # A server of memory in this process keeps the value that is put.
    assert counts.total < (1.1 if name == "put" else 0.1), counts.culprits


def test_an_empty_value(store: ObspecStore, call: Call) -> None:
    store.put("empty", b"")
    assert whole(call(store, "get", "empty")) == b""
    assert call(store, "head", "empty")["size"] == 0


@pytest.mark.parametrize("end", [{"end": 30}, {"length": 20}])
def test_get_range(store: ObspecStore, oracle: MemoryStore, call: Call, end: Any) -> None:
    for one in (store, oracle):
        one.put("a", VALUE)
    ours, theirs = (call(one, "get_range", "a", start=10, **end) for one in (store, oracle))
    assert bytes(ours) == bytes(theirs) == VALUE[10:30]


def test_ranges_come_in_one_request(store: ObspecStore, call: Call) -> None:
    store.put("a", VALUE)
    before = store.store.stats()["bytes_read"]
    found = call(store, "get_ranges", "a", starts=[20_000, 0, 5], lengths=[10, 3, 3])
    assert [bytes(one) for one in found] == [VALUE[20_000:20_010], VALUE[:3], VALUE[5:8]]
    assert store.store.stats()["bytes_read"] - before == 16
    found = call(store, "get_ranges", "a", starts=[1, 25_599], ends=[2, 99_999])
    assert [bytes(one) for one in found] == [VALUE[1:2], VALUE[-1:]]
    assert call(store, "get_ranges", "a", starts=[], ends=[]) == []


@pytest.mark.parametrize(
    "options",
    [
        {"start": 0},
        {"start": 0, "end": 1, "length": 1},
        {"start": 5, "end": 5},
        {"start": 5, "length": 0},
        {"start": 25_600, "end": 25_601},
        {"start": -1, "end": 4},
    ],
)
def test_a_range_without_bytes(store: ObspecStore, call: Call, options: dict[str, int]) -> None:
    store.put("a", VALUE)
    with pytest.raises(ValueError, match=r"range|either|ends"):
        call(store, "get_range", "a", **options)
    many = {f"{name}s": [value] for name, value in options.items()}
    with pytest.raises(ValueError, match=r"range|either|ends"):
        call(store, "get_ranges", "a", **many)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("get", {}),
        ("head", {}),
        ("get_range", {"start": 0, "end": 1}),
        ("get_ranges", {"starts": [0], "ends": [1]}),
        ("get", {"options": {"version": "latest"}}),
    ],
)
def test_a_missing_value(store: ObspecStore, call: Call, name: str, options: Any) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        call(store, name, "missing", **options)
    found = obspec.exceptions.map_exception(raised.value)
    assert type(found) is obspec.exceptions.NotFoundError
    assert "missing" in str(found) or "latest" in str(found)


def test_versions_and_conditions(store: ObspecStore, call: Call) -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(Exception, match="version") as raised:
            call(store, "get", "a", options=options)
        return type(obspec.exceptions.map_exception(raised.value)).__name__

    store.put("a", b"old")
    old = call(store, "head", "a")
    assert whole(call(store, "get", "a", options={"version": old["version"]})) == b"old"
    assert whole(call(store, "get", "a", options={"if_match": old["e_tag"]})) == b"old"
    assert refused(if_none_match=old["e_tag"]) == refused(if_none_match="*") == "NotModifiedError"
    store.put("a", b"new")
    assert call(store, "head", "a")["e_tag"] != old["e_tag"]
    assert refused(if_match=f'"x", {old["e_tag"]}') == "PreconditionError"
    for version in old["version"], "1" * 19, "0", "²", "9" * 20, "9" * 5000:
        assert refused(version=version) == "NotFoundError"
    found = call(store, "get", "a", options={"if_none_match": old["e_tag"], "if_match": "*"})
    assert whole(found) == b"new"


def test_what_servers_do_not_have(store: ObspecStore, call: Call) -> None:
    for name, arguments, options in (
        ("get", ("a",), {"options": {"if_modified_since": 3}}),
        ("put", ("a", b""), {"tags": {"x": "y"}}),
        ("put", ("a", b""), {"attributes": {"x": "y"}}),
        ("put", ("a", b""), {"mode": {"e_tag": "x"}}),
        ("put", ("a", b""), {"mode": "append"}),
    ):
        with pytest.raises(NotImplementedError) as raised:
            call(store, name, *arguments, **options)
        found = obspec.exceptions.map_exception(raised.value)
        assert type(found) is obspec.exceptions.NotSupportedError
    assert list(store.list()) == []


# ---- writing ----


@pytest.mark.parametrize(
    "content",
    [
        lambda folder: VALUE,
        lambda folder: bytearray(VALUE),
        lambda folder: memoryview(VALUE),
        lambda folder: np.frombuffer(VALUE, "u4"),
        lambda folder: io.BytesIO(VALUE),
        lambda folder: folder / "file",
        lambda folder: iter([VALUE[:7], memoryview(VALUE[7:])]),
    ],
    ids=["bytes", "bytearray", "memoryview", "array", "file", "path", "iterator"],
)
def test_put(store: ObspecStore, call: Call, content: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(VALUE)
    assert call(store, "put", "a", content(tmp_path)) == {"e_tag": None, "version": None}
    assert bytes(store.get("a").buffer()) == VALUE


@pytest.mark.parametrize("content", [[3, 2], "ab", [b"a", 2]])
def test_what_is_no_buffer_is_refused(store: ObspecStore, call: Call, content: Any) -> None:
    with pytest.raises(TypeError, match="bytes-like object"):
        call(store, "put", "a", content)

    async def pieces() -> AsyncIterator[Any]:
        for piece in content:
            yield piece

    with pytest.raises(TypeError, match="bytes-like object"):
        asyncio.run(store.put_async("a", pieces()))
    assert list(store.list()) == []


def test_files_are_read_beside_the_event_loop(store: ObspecStore) -> None:
    threads = []

    class File(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            threads.append(threading.current_thread())
            return super().read(size)

    def pieces() -> Iterator[bytes]:
        threads.append(threading.current_thread())
        yield VALUE

    async def run() -> None:
        await store.put_async("file", File(VALUE))
        await store.put_async("pieces", pieces())

    asyncio.run(run())
    assert len(threads) == 2
    assert threading.current_thread() not in threads
    assert store.get("file").buffer() == store.get("pieces").buffer() == VALUE


def test_copying_from_one_store_to_another(store: ObspecStore, oracle: MemoryStore) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield VALUE[:5]
        yield VALUE[5:]

    async def run() -> None:
        await store.put_async("pieces", pieces())
        await store.put_async("again", await store.get_async("pieces"))

    asyncio.run(run())
    assert bytes(store.get("again").buffer()) == VALUE
    oracle.put("a", store.get("again"))
    assert bytes(oracle.get("a").bytes()) == VALUE


def test_put_of_a_new_value_only(store: ObspecStore, call: Call) -> None:
    call(store, "put", "a", b"first", mode="create")
    with pytest.raises(FileExistsError) as raised:
        call(store, "put", "a", b"second", mode="create")
    found = obspec.exceptions.map_exception(raised.value)
    assert type(found) is obspec.exceptions.AlreadyExistsError
    assert bytes(store.get("a").buffer()) == b"first"
    call(store, "put", "a", b"third", mode="overwrite")
    assert bytes(store.get("a").buffer()) == b"third"


def test_delete(store: ObspecStore, call: Call) -> None:
    for name in "abc":
        store.put(name, b"x")
    call(store, "delete", "a")
    call(store, "delete", ["b", "missing"])
    assert [meta["path"] for page in store.list() for meta in page] == ["c"]


@pytest.mark.parametrize("key", ["", "/a", "a/../b"])
def test_a_key_that_cannot_be(store: ObspecStore, call: Call, key: str) -> None:
    for name, arguments in (("get", ()), ("put", (b"x",)), ("delete", ())):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            call(store, name, key, *arguments)
        found = obspec.exceptions.map_exception(raised.value)
        assert type(found) is obspec.exceptions.InvalidPathError


def test_a_server_that_is_for_reading_only(call: Call, tmp_path: Path) -> None:
    with Server(tmp_path, read_only=True) as server, ObspecStore(server.address) as store:
        assert refusal_of(call, store, "put", "a", b"x") == "PermissionDeniedError"


def test_a_store_that_is_for_reading_only(call: Call, address: str) -> None:
    with ObspecStore(address, read_only=True) as store:
        assert refusal_of(call, store, "put", "a", b"x") == "PermissionDeniedError"
        assert refusal_of(call, store, "put", "a", b"x", mode="create") == "PermissionDeniedError"
        assert refusal_of(call, store, "delete", "a") == "PermissionDeniedError"
        assert refusal_of(call, store, "delete", []) == "PermissionDeniedError"


def test_whoever_lacks_the_secret_or_has_a_grant_of_another_folder(call: Call) -> None:
    secret = Secret("a secret of this test")

    def pages(store: ObspecStore) -> Any:
        async def run() -> None:
            [page async for page in store.list_async("a")]

        return asyncio.run(run()) if call.__name__ == "asynchronous" else list(store.list("a"))

    with Server("memory://", secret=secret) as server:
        for given, name in (
            ("another secret", "UnauthenticatedError"),
            (secret.grant("b/"), "PermissionDeniedError"),
        ):
            with ObspecStore(server.address, secret=given) as store:
                assert refusal_of(call, store, "get", "a") == name
                assert refusal_of(call, store, "put", "a", b"x") == name
                assert refusal_of(call, store, "delete", "a") == name
                assert refusal_of(call, store, "list_with_delimiter", "a") == name
                with pytest.raises(PermissionError) as raised:
                    pages(store)
                found = obspec.exceptions.map_exception(raised.value)
                assert type(found).__name__ == name


def refusal_of(call: Call, store: ObspecStore, name: str, *arguments: Any, **options: Any) -> str:
    """Return what obspec calls the failure."""
    with pytest.raises(PermissionError) as raised:
        call(store, name, *arguments, **options)
    found = obspec.exceptions.map_exception(raised.value)
    assert isinstance(found, obspec.exceptions.BaseError)
    return type(found).__name__


# ---- listing ----

NAMES = ["a", "foo/bar/more/x", "foo/bar/x", "foo/bar_baz/x", "foo/y", "z"]


@pytest.mark.parametrize("offset", [None, "foo/bar/x", "b"])
@pytest.mark.parametrize("folder", [None, "", "foo", "foo/bar", "foo/bar/", "missing"])
def test_list(
    store: ObspecStore, oracle: MemoryStore, folder: str | None, offset: str | None
) -> None:
    for one in (store, oracle):
        for name in NAMES:
            one.put(name, name.encode())
    ours, theirs = (
        sorted(
            (meta["path"], meta["size"])
            for page in one.list(folder, offset=offset)
            for meta in page
        )
        for one in (store, oracle)
    )
    assert ours == theirs

    async def listed() -> list[tuple[str, int]]:
        pages = store.list_async(folder, offset=offset)
        return sorted([(meta["path"], meta["size"]) async for page in pages for meta in page])

    assert asyncio.run(listed()) == theirs


@pytest.mark.parametrize("folder", [None, "foo", "foo/", "foo/bar", "missing"])
def test_list_with_delimiter(
    store: ObspecStore, oracle: MemoryStore, call: Call, folder: str | None
) -> None:
    for one in (store, oracle):
        for name in NAMES:
            one.put(name, name.encode())
    ours, theirs = (call(one, "list_with_delimiter", folder) for one in (store, oracle))
    assert sorted(ours["common_prefixes"]) == sorted(theirs["common_prefixes"])
    assert [meta["path"] for meta in ours["objects"]] == [
        meta["path"] for meta in theirs["objects"]
    ]


def test_what_is_a_value_and_a_folder_is_listed_as_a_value(store: ObspecStore, call: Call) -> None:
    for name in "foo", "foo/y":
        store.put(name, b"x")
    found = call(store, "list_with_delimiter")
    assert [meta["path"] for meta in found["objects"]] == ["foo"]
    assert found["common_prefixes"] == []
    assert [meta["path"] for page in store.list() for meta in page] == ["foo", "foo/y"]


def test_a_long_listing_comes_in_pages(memory_server: Server, prefix: str) -> None:
    with ObspecStore(f"{memory_server.address}/{prefix}") as store:
        values = [(f"{number:04}", np.zeros(1, "u1")) for number in range(2500)]
        for name, value in values[:1]:
            store.put(name, value)
        asyncio.run(put_all(store, values[1:]))
        assert [len(page) for page in store.list()] == [1000, 1000, 500]


async def put_all(store: ObspecStore, values: list[tuple[str, Any]]) -> None:
    await asyncio.gather(*(store.put_async(*value) for value in values))


# ---- the store itself ----


def test_a_store_that_is_made_already(address: str, zarr_config: None) -> None:
    with UcxStore(address) as made:
        store = ObspecStore(made)
        store.put("a", b"x")
        assert store == ObspecStore(made) == pickle.loads(pickle.dumps(store))
        assert hash(store) == hash(ObspecStore(made))
        assert repr(store) == f"ObspecStore({made.address!r})"
        assert store.url == made.address
        with pytest.raises(TypeError, match="options can't be given with a store: timeout"):
            ObspecStore(made, timeout=3)


def test_a_registry_finds_values_with_and_without_a_prefix(
    memory_server: Server, prefix: str
) -> None:
    address = memory_server.address
    with ObspecStore(address) as root, ObspecStore(f"{address}/{prefix}/run") as below:
        root.put(f"{prefix}/run/a/b", VALUE)
        for store in (root, below):
            registry = ObjectStoreRegistry({store.url: store})
            found, path = registry.resolve(f"{address}/{prefix}/run/a/b")
            assert found is store
            assert bytes(found.get(path).buffer()) == VALUE
            with BlockStoreReader(found, path, block_size=1000) as file:
                file.seek(2500)
                assert file.read(2000) == VALUE[2500:4500]
