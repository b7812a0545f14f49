"""Command ``python -m hw.verilog``: see ``hw.flow.verilog``."""

import sys

from hw.flow.verilog import main

if __name__ == "__main__":
    sys.exit(main())
