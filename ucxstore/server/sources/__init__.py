"""What is behind a server's cache: object stores, and any zarr store; used by servers alone."""
