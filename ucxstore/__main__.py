"""Run the command line: ``python -m ucxstore``."""

import sys

from ucxstore.cli import main

sys.exit(main())
