"""Runs the default unit and a cluster for a long time: ``python -m tests.soak``, or ``make soak``.

Random loads, stores and reductions follow each other without a reset, with one model of memory
after the other. All data, barriers, error records and counters are compared. After each model,
bursts on the idle unit show that it has each tag, slot and group as at the begin.

Simulations run on worker processes. Their results stay in an SQLite file; a run with the same seed
and the same code goes on where an earlier one ended.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sim_tb.command_line import Parser, entry_point
from sim_tb.distribution import workers
from sim_tb.distribution.store import Store
from sim_tb.distribution.workers import Lost
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar
from tests.soak.tasks import DESIGNS, Ended, simulate, tasks

RESULTS = Path("build/soak/results.sqlite")


def table(ended: Sequence[Ended]) -> Table:
    """Return the totals of each design."""
    shown = Table("", "simulations", "clocks", "requests", "refused", "longest wait")
    for column in shown.columns[1:]:
        column.justify = "right"
    for design in DESIGNS:
        rows = [each for each in ended if each.design == design]
        if rows:
            sums = (
                sum(getattr(each, name) for each in rows)
                for name in ("clocks", "requests", "refused")
            )
            numbers = len(rows), *sums, max(each.longest for each in rows)
            shown.add_row(design, *(f"{number:,}" for number in numbers))
    return shown


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--clocks", type=int, default=10**8, metavar="N", help="of each design [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first simulation")
    parser.add_argument("--design", choices=DESIGNS, help="default: all")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file [%(default)s]")
    workers.add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.clocks < 1:
        parser.error(f"--clocks {options.clocks}: must be at least 1")
    console, begin = Console(markup=False, highlight=False), time.monotonic()
    designs = [options.design] if options.design else list(DESIGNS)
    for design in designs:
        runner.build(DESIGNS[design])
    given = dict(item for each in designs for item in tasks(each, options.clocks, options.seed))
    ended: list[Ended] = []
    failed: list[str] = []
    with (
        workers.of(options, parser) as crew,
        Store(options.results, Ended) as results,
        progress_bar(console) as progress,
    ):
        bar = progress.add_task("simulations", total=len(given))
        found = workers.stored(crew, simulate, given, results, lambda each: isinstance(each, Ended))
        for key, result in found:
            progress.advance(bar)
            if isinstance(result, Ended):
                ended.append(result)
            elif isinstance(result, Lost):
                failed.append(f"lost: {key}: {result.reason}")
            else:
                failed.append(str(result))
    console.print(table(ended))
    lines = [*failed, f"{time.monotonic() - begin:.0f} s", results.remark]
    console.print("\n".join(filter(None, lines)), soft_wrap=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
