"""Servers in the workers of a Dask cluster, and stores over them: `deploy`, `locality`, `share`."""

try:
    from ucxstore.dask.deployment import Deployment, deploy
    from ucxstore.dask.locality import locality
    from ucxstore.dask.sharing import share
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"dask", "distributed"}:
        raise
    raise ImportError(
        f'ucxstore.dask needs Dask ({error}): pip install "ucxstore[dask]"', name=error.name
    ) from error

__all__ = ["Deployment", "deploy", "locality", "share"]
