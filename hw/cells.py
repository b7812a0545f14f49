"""Command ``python -m hw.cells``: see ``hw.flow.cells``."""

import sys

from hw.flow.cells import main

if __name__ == "__main__":
    sys.exit(main())
