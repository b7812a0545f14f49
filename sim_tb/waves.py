"""Command ``python -m sim_tb.waves``: see ``sim_tb.simulator.waves``."""

import sys

from sim_tb.simulator.waves import main

if __name__ == "__main__":
    sys.exit(main())
