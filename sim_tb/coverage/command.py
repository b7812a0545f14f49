"""Reports what the simulations of the unit covered: ``make coverage``.

The report has three parts: the kinds of accepted requests, alone and in pairs of dimensions, the
branches of the RTL that all simulations took, stores included, and the edges of its registers. The
exit status is 1 if a simulation failed, if a branch was not taken and has no explanation, if too
many edges without explanation did not occur, if an explanation is stale, or if a recorded request
is of a kind that is not legal.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hw.params import PRESETS as PARAMS
from sim_tb.command_line import Parser, entry_point
from sim_tb.coverage import code_report, counts, evidence
from sim_tb.coverage.code_report import CodeReport
from sim_tb.coverage.constants import constant_bits
from sim_tb.coverage.crosses import CROSSES
from sim_tb.coverage.explanations import explanations
from sim_tb.coverage.kinds import recorded
from sim_tb.coverage.kinds_report import KindsReport
from sim_tb.coverage.simulations import jobs, simulate
from sim_tb.simulator import runner

OUT = Path("build/coverage")
SEEDS, COUNT = 3, 400
EXPLANATIONS = runner.ROOT / "tests" / "coverage"
"""Directory of ``uncovered.toml``, for branches, and of ``untoggled.toml``, for registers."""

KEYS = "keys.json"
"""Name of the file with the hashes of the design's files."""

LEAST_TOGGLES = 0.98
"""Least share of the edges of registers without explanation that must occur."""


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
    parser.add_argument(
        "--keep", action="store_true", help="write the figures for docs/verification.md, too"
    )
    options = parser.parse_args(arguments)
    if options.keep and options.preset != "default":
        parser.error(f"--keep has no effect with --preset {options.preset}: must be default")
    for name in ("seeds", "count"):
        value = getattr(options, name)
        if value is not None and options.report:
            parser.error(f"--{name} {value} has no effect with --report, which simulates nothing")
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    console = Console()
    if not options.report:
        options.out.mkdir(parents=True, exist_ok=True)
        evidence.write_keys(options.out / KEYS)
        selected = jobs(options.preset, options.seeds or SEEDS, options.count or COUNT)
        failed = simulate(options.preset, selected, options.out, console)
        if failed:
            print(*failed, sep="\n", file=sys.stderr)
            return 1
    kinds = [KindsReport(cross, recorded(cross, options.out / "kinds")) for cross in CROSSES]
    taken, edges = counts.read(options.out / "branches", constant_bits(PARAMS[options.preset]))
    reports = {
        name: CodeReport.of(
            title, found, explanations(EXPLANATIONS / f"{file}.toml", options.preset), least
        )
        for name, title, found, file, least in (
            ("branches", "branches of the RTL", taken, "uncovered", 1.0),
            ("toggles", "edges of registers", edges, "untoggled", LEAST_TOGGLES),
        )
    }
    with (options.out / "report.txt").open("w") as file:
        for output in console, Console(file=file, width=100):
            for cross in kinds:
                cross.show(output)
            for report in reports.values():
                report.show(output)
    summaries = {name: report.summary() for name, report in reports.items()}
    for name, contents in {
        "kinds": {report.cross.noun: report.summary() for report in kinds},
        **summaries,
    }.items():
        (options.out / f"{name}.json").write_text(json.dumps(contents, indent=1) + "\n")
    if options.keep:
        evidence.write(kinds, reports, options.out / KEYS, evidence.EVIDENCE)
    (options.out / "rtl.info").write_text(code_report.lcov(reports.values()))
    written = "report.txt, kinds.json, branches.json, toggles.json, rtl.info"
    console.print(f"{options.out}/{written}", highlight=False)
    is_closed = all(report.is_closed for report in reports.values())
    return 0 if is_closed and not any(cross.wrong for cross in kinds) else 1
