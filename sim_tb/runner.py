"""Command ``python -m sim_tb.runner``: see ``sim_tb.simulator.runner``."""

import sys

from sim_tb.simulator.runner import main

if __name__ == "__main__":
    sys.exit(main())
