"""Benchmarks of ucxstore: speed and memory, as ratios to other stores in the same run.

``python -m benchmarks`` (``make bench``) measures and prints; see README.md here.
"""
