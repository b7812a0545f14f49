"""Command ``python -m hw.registers``: see ``hw.flow.registers``."""

import sys

from hw.flow.registers import main

if __name__ == "__main__":
    sys.exit(main())
