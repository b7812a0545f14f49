"""Command ``python -m hw.lint``: see ``hw.flow.lint``."""

import sys

from hw.flow.lint import main

if __name__ == "__main__":
    sys.exit(main())
