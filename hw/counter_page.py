"""Command ``python -m hw.counter_page``: see ``hw.flow.counter_page``."""

import sys

from hw.flow.counter_page import main

if __name__ == "__main__":
    sys.exit(main())
