"""Fuzzes the default unit: ``python -m tests.fuzz``, or ``make fuzz``.

Random requests, with tensor maps of any 64 bytes among them, go through the golden model and the
RTL; both must refuse with the same code, dimension and value, or count the same bytes and leave the
same memory. Requests whose round took a branch of the RTL for the first time are changed further in
later rounds. A case that differs is made as simple as possible, and written to a file that ``make
conformance`` takes. The exit status is 1 if there was one.

Rounds run on worker processes. Their results stay in an SQLite file; a run with the same seed and
the same code goes on where an earlier one ended.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sim_tb.command_line import Parser, entry_point
from sim_tb.conformance import rtl
from sim_tb.distribution import workers
from sim_tb.distribution.store import Store
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar
from tests.fuzz.rounds import Ended, Fuzzer, play, units

MOST_FAILURES = 3

FOLDER, RESULTS = Path("build/fuzz"), "results.sqlite"
"""Folder of results, and the file in it that has those of all rounds."""


def fuzz(
    fuzzer: Fuzzer,
    seconds: float,
    folder: Path,
    crew: workers.Workers,
    results: Store[Ended],
    console: Console,
) -> list[Path]:
    """Run rounds until all have ended or for ``seconds``; return the files of what differs."""
    files: list[Path] = []
    end = time.monotonic() + seconds
    with progress_bar(console) as progress:
        task = progress.add_task("requests", total=fuzzer.count)
        while (tasks := fuzzer.generation()) and time.monotonic() < end:
            ended: dict[str, Ended] = {}
            for key, result in workers.stored(crew, play, tasks, results):
                if isinstance(result, workers.Lost):
                    raise workers.WorkersError(f"round {tasks[key].number}: {result.reason}")
                ended[key] = result
                progress.update(task, advance=tasks[key].size)
                if time.monotonic() > end:
                    break
            for key in (key for key in tasks if key in ended):
                round_ = tasks[key]
                fuzzer.add(round_, ended[key])
                for index in ended[key].different:
                    path = folder / f"seed{fuzzer.seed}-round{round_.number}-{index}.npz"
                    files.append(path)
                    for line in round_.report(index, path):
                        console.print(line, markup=False, soft_wrap=True)
                    if len(files) == MOST_FAILURES:
                        return files
    return files


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="requests")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="most; default: no end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--units", type=int, default=0, metavar="N", help="random units beside the default one"
    )
    parser.add_argument(
        "--contexts", type=int, default=1, metavar="N", help="contexts, all but one random [1]"
    )
    parser.add_argument("--clusters", action="store_true", help="programs of clusters")
    parser.add_argument("--unguided", action="store_true", help="count no branches")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of results [%(default)s]")
    workers.add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: must be at least 1")
    if options.units < 0:
        parser.error(f"--units {options.units}: must be at least 0")
    if options.units and not options.unguided:
        parser.error(f"--units {options.units}: needs --unguided: branches are those of one unit")
    if options.clusters and (options.units or options.contexts != 1):
        parser.error("--clusters: has a cluster of its own, without --units and --contexts")
    console = Console()
    try:
        drawn = [
            replace(params, contexts=options.contexts)
            for params in units(options.seed, options.units)
        ]
    except ValueError as error:
        parser.error(f"--contexts {options.contexts}: {error}")
    guided = not (options.unguided or options.clusters)
    fuzzer = Fuzzer(options.seed, options.count, guided, drawn, options.clusters)
    begin = time.monotonic()
    for params in [rtl.CLUSTER] if options.clusters else drawn:
        runner.build(params)
    if guided:
        runner.build(drawn[0], coverage=True)
    with workers.of(options, parser) as crew, Store(options.folder / RESULTS, Ended) as results:
        files = fuzz(fuzzer, options.seconds, options.folder, crew, results, console)
    total, spent = fuzzer.kinds.total(), time.monotonic() - begin
    console.print(fuzzer.table())
    points = f", {fuzzer.points} points of the RTL's branches taken" if fuzzer.guided else ""
    what = "programs" if options.clusters else "requests"
    console.print(f"{total:,} {what} in {spent:.0f} s{points}, {len(files)} differ")
    if results.remark:
        console.print(results.remark, soft_wrap=True)
    return 1 if files else 0


if __name__ == "__main__":
    sys.exit(main())
