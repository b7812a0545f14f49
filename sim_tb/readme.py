"""Command ``python -m sim_tb.readme``: see ``sim_tb.report.readme``."""

import sys

from sim_tb.report.readme import main

if __name__ == "__main__":
    sys.exit(main())
