"""Command ``python -m hw.tables``: see ``hw.flow.tables``."""

import sys

from hw.flow.tables import main

if __name__ == "__main__":
    sys.exit(main())
