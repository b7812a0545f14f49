"""Command ``python -m sim_tb.figures``: see ``sim_tb.report.figures``."""

import sys

from sim_tb.report.figures import main

if __name__ == "__main__":
    sys.exit(main())
