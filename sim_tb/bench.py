"""Command ``python -m sim_tb.bench``: see ``sim_tb.performance.bench``."""

import sys

from sim_tb.performance.bench import main

if __name__ == "__main__":
    sys.exit(main())
