"""Command ``python -m hw.sta``: see ``hw.flow.sta``."""

import sys

from hw.flow.sta import main

if __name__ == "__main__":
    sys.exit(main())
