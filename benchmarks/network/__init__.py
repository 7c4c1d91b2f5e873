"""What any transport between two processes can do over TCP here, and ucxstore beside.

``python -m benchmarks.network`` measures, and writes docs/network.md; see README.md above.
"""
