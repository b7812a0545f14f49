"""Command ``python -m hw.synth``: see ``hw.flow.synth``."""

import sys

from hw.flow.synth import main

if __name__ == "__main__":
    sys.exit(main())
