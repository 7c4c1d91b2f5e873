"""Run the command line: ``python -m ucxstore``."""

import sys

from ucxstore.cli import main

status = main()
# If Ctrl-C met Python while it ran a text, as imports do to make dataclasses, it remembers that
# until it runs another text, and would end by SIGINT with no regard to our status.
exec("pass")
sys.exit(status)
