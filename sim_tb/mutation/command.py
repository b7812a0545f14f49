"""Mutation score of the tests of the unit: ``make mutate``.

Each suite runs on each mutant by itself. A mutant that all suites leave alive is compared with the
unit by SAT. Results stay in an SQLite file under ``build/mutation``; a run that ended early goes on
where it ended. docs/mutation.md explains the mutants, the suites and the table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hw.flow import cache
from hw.flow.mutate import Mutant, Mutants
from sim_tb.command_line import Parser, entry_point, suggestion
from sim_tb.mutation import suites
from sim_tb.mutation.results import Results
from sim_tb.mutation.suites import SUITES
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar

COUNT, SEED = 1000, 1
"""Mutants in the unit, as many of which run by default, and seed of their choice."""


@dataclass(frozen=True)
class Fate:
    """Results of one mutant: the suites that killed it, or the proof that it changes nothing."""

    mutant: Mutant
    killed_by: frozenset[str]
    equivalent: bool

    @property
    def is_alive(self) -> bool:
        """It is neither killed nor proved equivalent."""
        return not self.killed_by and not self.equivalent


def fate(
    mutants: Mutants, mutant: Mutant, names: Sequence[str], directory: Path, results: Results
) -> Fate:
    """Run what has no result yet on a mutant; return all results.

    Parameters
    ----------
    mutants : Mutants
        All mutants of the unit.
    mutant : Mutant
        The one that runs.
    names : sequence of str
        Names of suites.
    directory : Path
        Folder of the Verilog; see ``suites.rtl``.
    results : Results
        It has the clocks of the suites.
    """
    killed_by = set()
    for name in names:
        verdict = results.verdict(mutant.options, name)
        if verdict is None:
            limits = results.clocks(name)
            assert limits is not None
            verdict = suites.judge(mutant.number, name, limits, directory)
            results.put_verdict(mutant.options, name, verdict)
        if verdict.killed_by is not None:
            killed_by.add(name)
    equivalent = False
    if not killed_by:
        proved = results.equivalent(mutant.options)
        if proved is None:
            proved = mutants.is_equivalent(mutant)
            results.put_equivalent(mutant.options, equivalent=proved)
        equivalent = proved
    return Fate(mutant, frozenset(killed_by), equivalent)


def share(part: int, whole: int) -> str:
    """Return a share as text.

    >>> share(97, 98)
    '99.0%'
    """
    return f"{100 * part / whole:.1f}%" if whole else "-"


def table(fates: Iterable[Fate], names: Sequence[str]) -> Table:
    """Return the counts of each block, and of all."""
    fates = list(fates)
    shown = Table("block", "mutants", "equivalent", *names, "alive", "killed of the others")
    for column in shown.columns[1:]:
        column.justify = "right"
    blocks = sorted({fate.mutant.block for fate in fates})
    for block in (*blocks, ""):
        rows = [fate for fate in fates if not block or fate.mutant.block == block]
        equivalent = sum(fate.equivalent for fate in rows)
        killed = sum(bool(fate.killed_by) for fate in rows)
        by_suite = [sum(name in fate.killed_by for fate in rows) for name in names]
        counts = len(rows), equivalent, *by_suite, sum(fate.is_alive for fate in rows)
        shown.add_row(
            block or "all", *map(str, counts), share(killed, len(rows) - equivalent),
            end_section=block == blocks[-1],
        )  # fmt: skip
    return shown


def results_of(mutants: Mutants) -> Results:
    """Open the file of results of a netlist."""
    netlist = (mutants.directory / "netlist.il").read_text()
    path = cache.run_folder() / "mutation" / f"{cache.digest([netlist])}.sqlite"
    return Results(path, {name: suite.key for name, suite in SUITES.items()})


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.mutation", description=__doc__)
    parser.add_argument(
        "--count",
        type=int,
        default=COUNT,
        help=f"mutants that run, a sample of the {COUNT} in the unit; above {COUNT}, the unit has "
        "as many; default: %(default)s",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help="seed of their choice; default: %(default)s"
    )
    parser.add_argument("--block", help="class of the blocks whose mutants run; default: all")
    parser.add_argument("--suite", choices=SUITES, help="only this suite; default: all")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: must be at least 1")
    console = Console()
    mutants = suites.plant(max(options.count, COUNT), options.seed)
    chosen = [each for each in mutants.planted if options.block in (None, each.block)]
    chosen = chosen[: options.count]
    if not chosen:
        hint = suggestion(options.block, {each.block for each in mutants.planted})
        parser.error(f"--block {options.block}: no block has this name{hint}")
    names = [options.suite] if options.suite else list(SUITES)
    directory = suites.rtl(mutants)
    runner.build(suites.PARAMS, rtl=directory, optimisation=suites.OPTIMISATION)
    results = results_of(mutants)
    fates = []
    with progress_bar(console) as progress:
        task = progress.add_task("mutants", total=len(chosen))
        for name in names:
            if results.clocks(name) is None:
                results.put_clocks(name, suites.clocks(name, directory))
        for mutant in chosen:
            fates.append(fate(mutants, mutant, names, directory, results))
            progress.advance(task)
            if fates[-1].is_alive:
                line = f"alive: {mutant.number}, {mutant.block}: {mutant.options}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    results.close()
    console.print(table(fates, names))
    return 0
