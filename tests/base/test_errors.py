import copy
import copyreg
import inspect
import pickle

import pytest
from tblib.pickling_support import pickle_exception

import ucxstore
from ucxstore.base import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_exception_pickles_with_its_message(error_class: type[Exception]) -> None:
    error = error_class("127.0.0.1:7400: no such luck")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is error_class
        assert str(twin) == str(error)
        assert twin.args == error.args


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_exception_is_shown_by_its_promised_path(error_class: type[Exception]) -> None:
    assert error_class.__module__ == "ucxstore"
    assert getattr(ucxstore, error_class.__name__) is error_class


def test_a_class_of_somebody_elses_keeps_its_own_path_and_options() -> None:
    class Named:
        def __init_subclass__(cls, name: str) -> None:
            cls.name = name  # type: ignore[attr-defined]

    class TheirError(errors.StorageError, Named, name="theirs"):
        name: str

    assert (TheirError.__module__, TheirError.name) == (__name__, "theirs")


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_exception_is_of_our_tree_and_in_its_picture(error_class: type[Exception]) -> None:
    assert issubclass(error_class, errors.UcxStoreError)
    assert errors.__doc__ is not None
    [line] = [line for line in errors.__doc__.splitlines() if error_class.__name__ in line.split()]
    for base in error_class.__bases__:
        if base.__module__ == "builtins" and base is not Exception:
            assert f"({base.__name__})" in line


@pytest.mark.parametrize(
    ("error_class", "builtin"),
    [
        (errors.AddressError, ValueError),
        (errors.AuthenticationError, PermissionError),
        (errors.AuthenticationError, ConnectionError),
        (errors.StorageError, OSError),
        (errors.RequestTimeoutError, TimeoutError),
        (errors.ServerLostError, ConnectionError),
        (errors.UcxUnavailableError, ImportError),
    ],
)
def test_the_builtin_that_fits_catches_it(
    error_class: type[Exception], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin, match="why"):
        raise error_class("why")


@pytest.mark.parametrize("pickled_whole", [False, True], ids=["python", "distributed"])
def test_a_copy_without_frames_holds_none(
    pickled_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where distributed was imported, an exception is copied as tblib pickles it."""
    if pickled_whole:
        monkeypatch.setitem(copyreg.dispatch_table, errors.ConnectError, pickle_exception)
    try:
        try:
            raise OSError("below")
        except OSError as error:
            raise errors.ConnectError("cannot connect") from error
    except errors.ConnectError as error:
        found = errors.without_frames(error)
    assert (type(found), str(found)) == (errors.ConnectError, "cannot connect")
    assert found.__traceback__ is found.__cause__ is found.__context__ is None
