"""Command ``python -m hw.paths``: see ``hw.flow.paths``."""

import sys

from hw.flow.paths import main

if __name__ == "__main__":
    sys.exit(main())
