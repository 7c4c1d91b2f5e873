"""Codecs of a chunk: which there are, and where they read and write."""
