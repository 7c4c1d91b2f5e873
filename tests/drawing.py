"""How many examples Hypothesis draws: fewer for every change, all in full runs, many more at night.

The environment variable ``HYPOTHESIS_PROFILE`` picks the profile. ``make test`` draws the same
examples each time, so that what fails is the change's; ``make test-full`` draws more of the same;
``make test-nightly`` draws others.
"""

import os
from fractions import Fraction

from hypothesis import HealthCheck, settings

_SHARES = {"every-change": Fraction(1, 5), "full": Fraction(1), "nightly": Fraction(20)}

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "every-change"


def examples(full: int) -> int:
    """Return how many examples this run draws where a full one draws `full`."""
    return max(1, int(full * _SHARES[PROFILE]))


def load_profile() -> None:
    """Set what holds for all tests; a test that draws many examples asks for `examples`."""
    # No deadline for an example: that depends on how fast the machine is.
    settings.register_profile(
        "every-change", derandomize=True, deadline=None, max_examples=examples(100)
    )
    settings.register_profile("full", derandomize=True, deadline=None)
    settings.register_profile(
        "nightly",
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    settings.load_profile(PROFILE)
