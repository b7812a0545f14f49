"""Command ``python -m sim_tb.coverage``."""

import sys

from sim_tb.coverage.functional import main

sys.exit(main())
