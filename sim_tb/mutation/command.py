"""Mutation score of the tests of the unit: ``make mutate``.

Each suite runs on each mutant by itself, or with ``--apart`` on as many of them. A mutant that the
suites leave alive is compared with the unit by SAT. Worker processes share the mutants. Results
stay in an SQLite file under ``build/mutation``; a run that ended early goes on where it ended.
docs/mutation.md explains the mutants, the suites and the table.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from hw.flow.cache import digest, run_folder
from hw.flow.mutate import Mutant, Mutants
from sim_tb.command_line import Parser, entry_point, suggestion
from sim_tb.distribution import workers
from sim_tb.distribution.workers import Lost, Workers
from sim_tb.mutation import suites
from sim_tb.mutation.results import Results
from sim_tb.mutation.suites import SUITES, Trial, Verdict
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar

COUNT, SEED = 1000, 1
"""Mutants in the unit, as many of which run by default, and seed of their choice."""

BATCH = 20
"""Mutants on which a suite runs from one start of the simulator."""

QUICKEST_FIRST = "random", "directed", "blocks", "recordings"
"""Suites by the time that they take for a mutant."""

EXPLANATIONS = Path(__file__).with_name("survivors.toml")
"""Mutants that change nothing that can occur, and the reasons."""


@dataclass(frozen=True)
class Fate:
    """Results of one mutant.

    Parameters
    ----------
    mutant : Mutant
    killed_by : frozenset of str
        Suites that killed it.
    equivalent : bool
        It is proved equivalent. The blocks' own tests may kill it all the same: they also look at
        what the unit does not use of a block.
    reason : str
        Explanation why it changes nothing that can occur, or empty.
    """

    mutant: Mutant
    killed_by: frozenset[str]
    equivalent: bool
    reason: str = ""

    @property
    def is_explained(self) -> bool:
        """It lives without a proof, and there is a reason."""
        return self._lives and bool(self.reason)

    @property
    def is_alive(self) -> bool:
        """It is neither killed nor proved equivalent, nor is there a reason."""
        return self._lives and not self.reason

    @property
    def _lives(self) -> bool:
        return not self.killed_by and not self.equivalent


@dataclass(frozen=True)
class Task:
    """Work of a worker on mutants.

    Parameters
    ----------
    planted : (int, int, str)
        Count and seed of all mutants, and name of the design.
    mutants : tuple of Mutant
        Those that the work is about.
    suite : str
        Name of the suite that runs on them.
    trials : list of Trial
        Its trials without a mutant.
    """

    planted: tuple[int, int, str]
    mutants: tuple[Mutant, ...] = ()
    suite: str = ""
    trials: list[Trial] = field(default_factory=list)


plant = cache(suites.plant)


def trials(task: Task) -> list[Trial]:
    """Run a suite without a mutant."""
    return suites.trials(task.suite, task.planted[-1], plant(*task.planted))


def judge(task: Task) -> dict[int, Verdict]:
    """Run a suite on mutants; return a verdict for the number of each."""
    subject = task.planted[-1]
    directory = suites.rtl(plant(*task.planted), subject)
    numbers = [mutant.number for mutant in task.mutants]
    return suites.judge(numbers, task.suite, task.trials, subject, directory)


def prove(task: Task) -> bool:
    """Return whether a mutant is proved to be equivalent."""
    (mutant,) = task.mutants
    return bool(plant(*task.planted).is_equivalent(mutant))


Ended = TypeVar("Ended")


@dataclass(frozen=True)
class Crew:
    """Workers, and what they report on the terminal."""

    workers: Workers
    console: Console

    def run(
        self, title: str, function: Callable[[Task], Ended], tasks: Mapping[str, Task]
    ) -> Iterator[tuple[Task, Ended]]:
        """Yield each task with its result. A lost task has none; a later run tries it again."""
        with progress_bar(self.console) as progress:
            bar = progress.add_task(title, total=len(tasks))
            for key, result in self.workers.run(function, tasks):
                progress.advance(bar)
                if isinstance(result, Lost):
                    self.console.print(f"lost: {key}: {result.reason}", markup=False)
                else:
                    yield tasks[key], result


def fates(
    crew: Crew,
    planted: tuple[int, int, str],
    chosen: Sequence[Mutant],
    names: Sequence[str],
    results: Results,
    apart: int = COUNT,
) -> list[Fate]:
    """Run what has no result yet; return the results of mutants.

    On the first ``apart`` mutants each suite runs by itself. On the others the suites run in the
    order of ``QUICKEST_FIRST``, each on those that the suites before it left alive and that are not
    proved equivalent.

    Parameters
    ----------
    crew : Crew
        They run the tasks.
    planted : (int, int, str)
        Count and seed of all mutants, and name of the design.
    chosen : sequence of Mutant
        Mutants of these.
    names : sequence of str
        Names of suites.
    results : Results
        What is known, to which new results are added.
    apart : int, optional
        Mutants on which each suite runs by itself.
    """
    unknown = [name for name in names if results.trials(name) is None]
    tasks = {f"{name} without a mutant": Task(planted, (), name) for name in unknown}
    for task, made in crew.run("suites without a mutant", trials, tasks):
        results.put_trials(task.suite, made)

    def living(mutants: Sequence[Mutant]) -> list[Mutant]:
        return [
            mutant
            for mutant in mutants
            if not killers(mutant, names, results) and not results.equivalent(mutant.options)
        ]

    run_suites(crew, planted, chosen[:apart], names, results)
    for name in sorted(names, key=QUICKEST_FIRST.index):
        run_suites(crew, planted, living(chosen[apart:]), [name], results)
        prove_all(crew, planted, living(chosen), results)
    reasons = explanations(results.netlist)
    return [
        Fate(
            mutant,
            killers(mutant, names, results),
            bool(results.equivalent(mutant.options)),
            reasons.get(mutant.options, ""),
        )
        for mutant in chosen
    ]


def run_suites(
    crew: Crew,
    planted: tuple[int, int, str],
    chosen: Sequence[Mutant],
    names: Sequence[str],
    results: Results,
) -> None:
    """Run suites on those mutants on which they have no result yet."""
    tasks = {}
    for name in names:
        known = results.trials(name) or []
        left = [each for each in chosen if known and results.verdict(each.options, name) is None]
        acting = {number for trial in known for number in trial.acting}
        for mutant in left:
            if mutant.number not in acting:
                results.put_verdict(mutant.options, name, Verdict(None, 0))
        for batch in batches([each for each in left if each.number in acting], name):
            key = f"{name} on mutants {', '.join(str(mutant.number) for mutant in batch)}"
            tasks[key] = Task(planted, batch, name, known)
    for task, verdicts in crew.run("suites on mutants", judge, tasks):
        for mutant in task.mutants:
            results.put_verdict(mutant.options, task.suite, verdicts[mutant.number])


def prove_all(
    crew: Crew, planted: tuple[int, int, str], chosen: Sequence[Mutant], results: Results
) -> None:
    """Try to prove that mutants are equivalent, those of which nobody tried it yet."""
    tasks = {
        f"proof of mutant {mutant.number}": Task(planted, (mutant,))
        for mutant in chosen
        if results.equivalent(mutant.options) is None
    }
    for task, proved in crew.run("proofs", prove, tasks):
        results.put_equivalent(task.mutants[0].options, equivalent=proved)


def explanations(netlist: str, path: Path = EXPLANATIONS) -> dict[str, str]:
    """Return the reasons of a file by the options of the mutants that they explain.

    Options name cells of one netlist: there is no reason for mutants of another than that of the
    file. ``netlist`` is its digest, see ``results_of``.

    Raises
    ------
    ValueError
        If a table has an unknown field or lacks one, or a mutant has two reasons.
    """
    reasons: dict[str, str] = {}
    contents = tomllib.loads(path.read_text())
    if contents["netlist"] != netlist:
        return reasons
    for entry in contents.get("survivor", []):
        if entry.keys() != {"mutants", "reason"}:
            raise ValueError(f"{path}: a table has {', '.join(entry)}: not mutants and reason")
        for options in entry["mutants"]:
            if options in reasons:
                raise ValueError(f"{path}: two reasons for {options}")
            reasons[options] = entry["reason"]
    return reasons


def batches(mutants: Sequence[Mutant], suite: str) -> Iterator[tuple[Mutant, ...]]:
    """Divide mutants; those that the blocks' own tests judge together are of one block."""
    if SUITES[suite].runs:
        yield from (tuple(mutants[at : at + BATCH]) for at in range(0, len(mutants), BATCH))
        return
    for block in dict.fromkeys(mutant.block for mutant in mutants):
        yield tuple(mutant for mutant in mutants if mutant.block == block)


def killers(mutant: Mutant, names: Sequence[str], results: Results) -> frozenset[str]:
    """Return the suites that killed a mutant."""
    verdicts = {name: results.verdict(mutant.options, name) for name in names}
    return frozenset(name for name, each in verdicts.items() if each and each.killed_by is not None)


def share(part: int, whole: int) -> str:
    """Return a share as text.

    >>> share(97, 98)
    '99.0%'
    """
    return f"{100 * part / whole:.1f}%" if whole else "-"


def table(fates: Iterable[Fate], names: Sequence[str]) -> Table:
    """Return the counts of each block, and of all; killed are those that are not equivalent."""
    fates = list(fates)
    headings = (
        "block",
        "mutants",
        "equivalent",
        *names,
        "explained",
        "alive",
        "killed of the others",
    )
    shown = Table(*headings)
    for column in shown.columns[1:]:
        column.justify = "right"
    blocks = sorted({fate.mutant.block for fate in fates})
    for block in (*blocks, ""):
        rows = [fate for fate in fates if not block or fate.mutant.block == block]
        others = [fate for fate in rows if not fate.equivalent]
        killed = sum(bool(fate.killed_by) for fate in others)
        by_suite = [sum(name in fate.killed_by for fate in others) for name in names]
        explained = sum(fate.is_explained for fate in rows)
        alive = sum(fate.is_alive for fate in rows)
        counts = len(rows), len(rows) - len(others), *by_suite, explained, alive
        shown.add_row(
            block or "all", *map(str, counts), share(killed, len(others)),
            end_section=block == blocks[-1],
        )  # fmt: skip
    return shown


def contradictions(fates: Iterable[Fate]) -> list[str]:
    """Return what cannot be: reasons of mutants that do not live, and proofs that a test of the
    unit refutes.
    """
    found = []
    for fate in fates:
        number, killers = fate.mutant.number, ", ".join(sorted(fate.killed_by))
        if fate.reason and not fate.is_explained:
            what = "equivalent" if fate.equivalent else f"killed by {killers}"
            found.append(f"{EXPLANATIONS.name} explains mutant {number}, which is {what}")
        if fate.equivalent and fate.killed_by - {"blocks"}:
            found.append(f"mutant {number} is proved equivalent, and killed by {killers}")
    return found


def results_of(mutants: Mutants) -> Results:
    """Open the file of results of a netlist."""
    netlist = (mutants.directory / "netlist.il").read_text()
    path = run_folder() / "mutation" / f"{digest([netlist])}.sqlite"
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
    parser.add_argument(
        "--design",
        choices=suites.SUBJECTS,
        default="unit",
        help="the default unit, or blocks between a small unit and memory; default: %(default)s",
    )
    parser.add_argument("--block", help="class of the blocks whose mutants run; default: all")
    parser.add_argument("--suite", choices=SUITES, help="only this suite; default: all")
    parser.add_argument(
        "--apart",
        type=int,
        help="mutants on which each suite runs by itself; on the others, a suite runs only if the "
        "quicker ones left them alive; default: all",
    )
    workers.add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: must be at least 1")
    if options.apart is not None and options.apart < 0:
        parser.error(f"--apart {options.apart}: must be at least 0")
    names = list(SUITES) if options.design == "unit" else list(suites.AROUND_THE_UNIT)
    if options.suite and options.suite not in names:
        parser.error(f"--suite {options.suite}: needs --design unit")
    names = [options.suite] if options.suite else names
    console = Console()
    subject = suites.SUBJECTS[options.design]
    planted = max(options.count, COUNT if options.design == "unit" else 0), options.seed
    mutants = suites.plant(*planted, options.design)
    chosen = [each for each in mutants.planted if options.block in (None, each.block)]
    chosen = chosen[: options.count]
    if not chosen:
        hint = suggestion(options.block, {each.block for each in mutants.planted})
        parser.error(f"--block {options.block}: no block has this name{hint}")
    directory = suites.rtl(mutants, options.design)
    runner.build(subject.params, rtl=directory, optimisation=suites.OPTIMISATION)
    results = results_of(mutants)
    apart = len(chosen) if options.apart is None else options.apart
    with workers.of(options, parser) as processes:
        crew = Crew(processes, console)
        ended = fates(crew, (*planted, options.design), chosen, names, results, apart)
    for fate in ended:
        if fate.is_alive:
            line = f"alive: {fate.mutant.number}, {fate.mutant.block}: {fate.mutant.options}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    results.close()
    console.print(table(ended, names))
    if not explanations(results.netlist):
        console.print(f"{EXPLANATIONS.name} explains no mutant of this netlist, {results.netlist}")
    wrong = contradictions(ended)
    for line in wrong:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return int(bool(wrong))
