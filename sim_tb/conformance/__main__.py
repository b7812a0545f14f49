"""Command ``python -m sim_tb.conformance``: see ``sim_tb.conformance.command``."""

import sys

from sim_tb.conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
