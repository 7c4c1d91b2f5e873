"""Indexes of shards, and their cache."""
