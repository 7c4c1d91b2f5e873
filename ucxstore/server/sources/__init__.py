"""Sources behind a server's cache: object stores and zarr stores. Only servers use this."""
