"""Speed and memory of ucxstore, as ratios to other ways that are measured in the same run.

``python -m benchmarks`` (``make bench``) measures and prints; see README.md here.
"""
