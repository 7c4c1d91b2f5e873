"""``ucxstore copies``: count the copies that zarr stores make."""

from collections.abc import Sequence

from ucxstore.cli.command import run


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore copies``; return the exit status."""
    from ucxstore.copies.command import main as run_copies  # which imports those of its extra

    return run("copies", lambda: run_copies(argv), extra="copies")
