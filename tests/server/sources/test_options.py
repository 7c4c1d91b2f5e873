import pytest

from ucxstore.options import parse_size
from ucxstore.server.sources.options import StorageOptions


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("4GiB", 4 << 30),
        ("1.5 GiB", 3 << 29),
        ("512MB", 512_000_000),
        ("512 MiB", 512 << 20),
        ("2kB", 2000),
        ("2KB", 2000),
        (" 2KiB ", 2048),
        ("1TB", 10**12),
    ],
)
def test_sizes(given: int | str, size: int) -> None:
    assert parse_size("cache", given) == size


@pytest.mark.parametrize("given", ["", "GiB", "4 gigs", "-1", "1e3", "0x10", "4GiBs", -1, 1 << 60])
def test_what_is_no_size(given: int | str) -> None:
    with pytest.raises(ValueError, match=r"^cache: "):
        parse_size("cache", given)


@pytest.mark.parametrize("given", [1.5, True, None, b"4GiB"])
def test_what_cannot_be_a_size(given: object) -> None:
    with pytest.raises(TypeError, match=r"^cache: "):
        parse_size("cache", given)  # type: ignore[arg-type]


def test_options_that_nobody_gave_are_none() -> None:
    assert StorageOptions.of() is None
    assert StorageOptions.of(cache="1MB") == StorageOptions(cache=1_000_000)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_is_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^source_timeout: "):
        StorageOptions.of(source_timeout=seconds)


def test_storage_options_are_text_and_not_shown() -> None:
    options = StorageOptions.of(storage_options={"secret_access_key": "the-secret"})
    assert options is not None
    assert "the-secret" not in repr(options)
    with pytest.raises(TypeError, match=r"^storage_options: ") as caught:
        StorageOptions.of(storage_options={"a": "the-secret", "b": 1})  # type: ignore[dict-item]
    assert "the-secret" not in str(caught.value)
