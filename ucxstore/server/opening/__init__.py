"""Open what a location names: memory, a directory, or a source behind a cache."""
