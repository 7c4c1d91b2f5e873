"""The store, and what belongs to it: scratch space, views, allocations, values without zarr."""
