"""Runs recorded cases of the silicon through the golden model or the RTL: ``make conformance``.

The last line of the output is ``N passed, M failed``. The exit status is 0 if all cases passed, 1
if one failed, and 2 if the command line is wrong.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from golden import conformance as golden_conformance
from golden.vectors import Case, VectorError, check, read_cases
from sim_tb.simulator.progress import progress_bar
from sim_tb.testbench.models import PRESETS as MODELS

TARGETS = ("golden", "rtl")


def diagnoses(cases: Sequence[Case], target: str, models: str = "fixed") -> Iterator[str | None]:
    """Run the cases; yield for each, in order, None if it passed, else a message.

    Parameters
    ----------
    cases : sequence of Case
        Recorded cases.
    target : "golden" or "rtl"
        What runs them. The RTL runs no encodings of tensor maps.
    models : str
        Preset of ``sim_tb.testbench.models`` around the RTL.
    """
    transfers = [case for case in cases if not case.is_encoding]
    if target == "golden":
        runs = golden_conformance.outcomes(transfers)
    else:
        from sim_tb.conformance import rtl  # here, because only the RTL needs a simulator

        runs = rtl.outcomes(transfers, models=models)
    for case in cases:
        if not case.is_encoding:
            yield check(case, next(runs))
        elif target == "golden":
            yield golden_conformance.check_encoding(case)
        else:
            yield f"{case}: tensor maps are encoded by the golden model only"


def run(cases: Sequence[Case], target: str, console: Console, models: str = "fixed") -> int:
    """Run the cases as ``diagnoses`` does, and print the failures and a table.

    Returns
    -------
    int
        Number of cases that failed.
    """
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    with progress_bar(console) as progress:
        task = progress.add_task(target, total=len(cases))
        for case, diagnosis in zip(cases, diagnoses(cases, target, models), strict=True):
            progress.advance(task)
            if diagnosis is None:
                passed[case.kind] += 1
                continue
            failed[case.kind] += 1
            console.print(diagnosis, markup=False, highlight=False, soft_wrap=True)
    table = Table("kind", "passed", "failed", title=f"target {target}", title_justify="left")
    for kind in sorted(passed.keys() | failed.keys()):
        table.add_row(kind, str(passed[kind]), str(failed[kind]))
    console.print(table)
    console.print(f"{passed.total()} passed, {failed.total()} failed", highlight=False)
    return failed.total()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.conformance", description=__doc__)
    parser.add_argument("vectors", type=Path, metavar="FILE")
    parser.add_argument("--target", choices=TARGETS, default="golden")
    parser.add_argument("--kinds", default="", metavar="A,B", help="only these kinds")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N cases")
    parser.add_argument(
        "--models",
        choices=MODELS,
        default="fixed",
        help="memories and stalls around the RTL; default: %(default)s",
    )
    options = parser.parse_args(arguments)
    if options.limit is not None and options.limit < 1:
        parser.error(f"--limit {options.limit}: must be at least 1")
    kinds = [kind.strip() for kind in options.kinds.split(",") if kind.strip()]
    try:
        cases = read_cases(options.vectors, kinds, options.limit)
        return 1 if run(cases, options.target, Console(), options.models) else 0
    except VectorError as error:
        parser.error(str(error))
