"""Reports what the simulations of the unit covered: ``make coverage``.

The report has two parts: the kinds of accepted loads, alone and in pairs of dimensions, and the
branches of the RTL that all simulations took, stores included (``sim_tb.coverage.branches``). The
exit status is 1 if a simulation failed, if a branch was not taken and has no explanation, if an
explanation is stale, or if a recorded load is of a kind that is not legal.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hw.params import PRESETS as PARAMS
from sim_tb.command_line import Parser, entry_point
from sim_tb.coverage import branches
from sim_tb.coverage.kinds_report import KindsReport
from sim_tb.coverage.load_kinds import recorded
from sim_tb.coverage.simulations import jobs, simulate
from sim_tb.simulator import runner

OUT = Path("build/coverage")
SEEDS, COUNT = 3, 400
EXPLANATIONS = runner.ROOT / "tests" / "coverage" / "uncovered.toml"


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.coverage", description=__doc__)
    parser.add_argument(
        "--preset",
        choices=PARAMS,
        default="default",
        help="parameters of the unit; default: %(default)s",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        help=f"number of seeds of the random requests; default: {SEEDS}",
    )
    parser.add_argument(
        "--count",
        type=int,
        help=f"random requests in each simulation; default: {COUNT}",
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIRECTORY")
    parser.add_argument(
        "--report", action="store_true", help="simulate nothing, and report the last simulations"
    )
    options = parser.parse_args(arguments)
    for name in ("seeds", "count"):
        value = getattr(options, name)
        if value is not None and options.report:
            parser.error(f"--{name} {value} has no effect with --report, which simulates nothing")
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    console = Console()
    if not options.report:
        selected = jobs(options.preset, options.seeds or SEEDS, options.count or COUNT)
        failed = simulate(options.preset, selected, options.out, console)
        if failed:
            print(*failed, sep="\n", file=sys.stderr)
            return 1
    kinds = KindsReport(recorded(options.out / "kinds"))
    counts = branches.read(options.out / "branches")
    verdict = branches.judge(counts.missed, branches.explanations(EXPLANATIONS, options.preset))
    with (options.out / "report.txt").open("w") as file:
        for output in console, Console(file=file, width=100):
            kinds.show(output)
            branches.show(counts, verdict, output)
    for name, contents in (
        ("kinds", kinds.summary()),
        ("branches", branches.summary(counts, verdict)),
    ):
        (options.out / f"{name}.json").write_text(json.dumps(contents, indent=1) + "\n")
    console.print(f"{options.out}/report.txt, kinds.json, branches.json", highlight=False)
    return 0 if verdict.is_clean and not kinds.wrong else 1
