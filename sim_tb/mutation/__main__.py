"""Command ``python -m sim_tb.mutation``: see ``sim_tb.mutation.command``."""

import sys

from sim_tb.mutation.command import main

if __name__ == "__main__":
    sys.exit(main())
