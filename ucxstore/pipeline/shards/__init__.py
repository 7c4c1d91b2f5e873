"""Read and write the inner chunks of shards."""
