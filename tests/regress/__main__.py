"""Runs all tests on worker processes: ``python -m tests.regress``, or ``make regress``.

A unit of work is a long test, or all other tests of a file. Results stay in an SQLite file. A run
that ended early goes on where it ended; units that failed run again. After a change of any file of
the project, all units run again.
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
from sim_tb.simulator.progress import progress_bar
from tests.regress.units import CollectionError, Ended, collected, run, sources

RESULTS = Path("build/regress/results.sqlite")

LONGEST = 10
"""Units whose times are printed."""


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m tests.regress", description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="file, folder or test of pytest")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file [%(default)s]")
    workers.add_arguments(parser)
    options = parser.parse_args(arguments)
    console = Console(markup=False, highlight=False)
    try:
        units = collected(options.tests)
    except CollectionError as error:
        print(error, file=sys.stderr)
        return 1
    code = sources()
    tasks = {f"{code} {unit.name} {len(unit.tests)}": unit for unit in units}
    begin = time.monotonic()
    ended: list[Ended] = []
    bad: list[str] = []
    with (
        workers.of(options, parser) as crew,
        Store(options.results, Ended) as results,
        progress_bar(console) as progress,
    ):
        bar = progress.add_task("units", total=len(tasks))
        for key, result in workers.stored(crew, run, tasks, results, lambda unit: not unit.failed):
            progress.advance(bar)
            if isinstance(result, Lost):
                bad.append(f"lost: {tasks[key].name}: {result.reason}")
                continue
            ended.append(result)
            if result.failed:
                bad.append(f"failed: {result.name}")
                console.print(f"{result.output}\n{bad[-1]}", soft_wrap=True)
    longest = Table("seconds", "unit", title="longest units", title_justify="left")
    for unit in sorted(ended, key=lambda unit: -unit.seconds)[:LONGEST]:
        longest.add_row(f"{unit.seconds:.0f}", unit.name)
    console.print(longest)
    counts = [
        f"{sum(getattr(unit, name) for unit in ended):,} {name}"
        for name in ("passed", "skipped", "failed")
    ]
    lines = [*bad, f"{', '.join(counts)} in {time.monotonic() - begin:.0f} s", results.remark]
    console.print("\n".join(filter(None, lines)), soft_wrap=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
