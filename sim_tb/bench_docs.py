"""Command ``python -m sim_tb.bench_docs``: see ``sim_tb.performance.docs``."""

import sys

from sim_tb.performance.docs import main

if __name__ == "__main__":
    sys.exit(main())
