"""Command ``python -m sim_tb.coverage``: see ``sim_tb.coverage.command``."""

import sys

from sim_tb.coverage.command import main

if __name__ == "__main__":
    sys.exit(main())
