"""`UcxPath`: ``ucx://`` paths for universal_pathlib, which finds it by an entry point."""

from typing import Any

from fsspec.registry import get_filesystem_class
from upath import UPath

from ucxstore.base.address import SCHEME
from ucxstore.base.secret import Secret

# universal_pathlib takes the file system's way of parsing paths only once fsspec has loaded it.
get_filesystem_class(SCHEME.removesuffix("://"))


class UcxPath(UPath):
    """A path of `UcxFileSystem` that says its servers when it is written as text.

    fsspec takes the servers out of a URL, into the options of the file system. The text of a usual
    `UPath` lacks them: nobody can open ``ucx:///key``. A secret among its options shows and
    pickles as a `Secret` does.

    Examples
    --------
    >>> folder = UPath("ucx://127.0.0.1:7400/run-17")  # doctest: +SKIP
    >>> zarr.open(str(folder / "array"))  # doctest: +SKIP
    """

    __slots__ = ()

    @classmethod
    def _transform_init_args(
        cls, args: tuple[Any, ...], protocol: str, storage_options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], str, dict[str, Any]]:
        secret = Secret.of(storage_options.get("secret"))
        if secret is not None:
            storage_options = {**storage_options, "secret": secret}
        return args, protocol, storage_options

    def __str__(self) -> str:
        text: str = super().__str__()
        servers = self.storage_options.get("servers")
        if servers is None or not text.startswith(SCHEME):
            return text  # a relative path
        return f"{SCHEME}{servers}/{text.removeprefix(SCHEME).lstrip('/')}".rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"
