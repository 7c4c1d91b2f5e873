"""Geometry of selections: boxes, axes, points and runs of bytes; pure, no zarr, no I/O."""
