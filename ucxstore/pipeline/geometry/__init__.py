"""What a selection selects of a chunk, as boxes and runs of bytes: pure, no zarr, no I/O."""
