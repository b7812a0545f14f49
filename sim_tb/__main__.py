"""Runs kernels on the behavioural SM and the RTL: ``python -m sim_tb list``, ``run``, ``sweep``.

``python -m sim_tb ptx`` runs recorded launches of PTX kernels, through the simulated unit.
``python -m sim_tb trace`` turns event records of a unit into a trace for Perfetto.

KERNEL is a name of the list, or a Python file, or FILE:NAME if the file has several kernels.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hw.flow.cache import CacheError
from hw.params import PRESETS, TmaParams
from open_tma.installation import python
from sim_tb.command_line import Parser, entry_point
from sim_tb.distribution import workers
from sim_tb.distribution.store import Store
from sim_tb.distribution.workers import Lost
from sim_tb.kernels import Library, kernel_of_file, library
from sim_tb.ptx.launch import ENGINES
from sim_tb.ptx.replay import outcomes, replay_all
from sim_tb.report import report
from sim_tb.simulator.by_value import SendError
from sim_tb.simulator.progress import progress_bar
from sim_tb.simulator.runner import SimulationError
from sim_tb.sm import launch, sweep
from sim_tb.sm.errors import KernelError
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.options import OptionError
from sim_tb.sm.record import Record, Setting
from sim_tb.trace import command as trace

PROG = f"{python()} -m sim_tb"
"""Name of the command in its messages."""

REPORTS = Path("build/sim_tb")

RESULTS = "results.sqlite"
"""File of the records of a sweep in the directory of its report."""

REPLAY = "run recorded launches of PTX kernels, and compare each byte of memory with the GPU's"
"""Help of the command ``ptx``."""


def number(text: str) -> int:
    """Return the integer in a text."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number") from None


def numbers(text: str) -> list[int]:
    """Return the integers of ``a..b``, ``a..b..step`` (both ends included) or ``a,b,c``."""
    if ".." not in text:
        return [number(part) for part in text.split(",")]
    first, last, *steps = (number(part) for part in text.split(".."))
    step = steps[0] if steps else 1
    if len(steps) > 1 or step < 1 or last < first:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a..b or a..b..step, with a <= b and a step of at least 1"
        )
    return list(range(first, last + 1, step))


def separated(separator: str) -> Callable[[str], list[str]]:
    """Return a function that splits a list of texts."""
    return lambda text: text.split(separator)


def add_options(parser: argparse.ArgumentParser, cls: type[Any], *, sweep: bool) -> None:
    """Add an argument for each field of a dataclass that was made by ``option``."""
    for item in options_of(cls):
        if item.type not in (int, int | None, str):
            raise TypeError(f"{cls.__name__}.{item.name}: {item.type}: must be an int or a str")
        kind: Callable[[str], Any] = numbers if sweep else number
        metavar = "N|A..B[..STEP]|A,B,..." if sweep else "N"
        if item.type is str:
            separator = item.metadata["separator"]
            kind = separated(separator) if sweep else str
            metavar = f"TEXT[{separator}TEXT...]" if sweep else "TEXT"
        parser.add_argument(
            flag(item.name),
            dest=item.name,
            type=kind,
            metavar=metavar,
            default=argparse.SUPPRESS,
            help=description(item).replace("%", "%%"),
        )


def options_of(cls: type[Any]) -> "list[Field[Any]]":
    """Return the fields of a dataclass that were made by ``option``."""
    return [item for item in fields(cls) if "help" in item.metadata]


def flag(name: str) -> str:
    """Return the name of a field on the command line."""
    return "--" + name.replace("_", "-")


def description(item: "Field[Any]") -> str:
    """Return help text and default of an option."""
    text = str(item.metadata["help"])
    return text if item.default in (None, "") else f"{text} [{item.default}]"


def parser_of(loaded: Library, prog: str = PROG) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(prog=prog, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the kernels and their options")
    texts = {
        "run": "run a kernel once; print its figures and its check, and write a report",
        "sweep": "run a kernel for each combination of option values, on worker processes",
    }
    for command, text in texts.items():
        parent = commands.add_parser(command, help=text, description=text)
        parent.refused, parent.remarks = loaded.ambiguous, loaded.broken
        names = parent.add_subparsers(dest="kernel", metavar="KERNEL", required=True)
        for name, cls in loaded.kernels.items():
            one_kernel = names.add_parser(name, help=summary(cls), description=summary(cls))
            for options in (cls, Setting):
                add_options(one_kernel, options, sweep=command == "sweep")
            one_kernel.add_argument(
                "--report",
                type=Path,
                metavar="DIR",
                default=REPORTS / cls.name,
                help="directory of report.html [%(default)s]",
            )
            one_kernel.add_argument(
                "--counters",
                action="store_true",
                help="simulate units with counters: figures of stalls, and a trace of each unit",
            )
            if command == "sweep":
                workers.add_arguments(one_kernel)
            else:
                one_kernel.add_argument(
                    "--explore",
                    type=number,
                    metavar="N",
                    help="run N random schedules, --schedule 1 to N, instead",
                )
            one_kernel.set_defaults(parser=one_kernel)
    add_replay(commands.add_parser("ptx", help=REPLAY, description=REPLAY))
    trace.add_arguments(commands.add_parser("trace", help=trace.HELP, description=trace.HELP))
    return parser


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``ptx``."""
    parser.add_argument("cases", nargs="+", metavar="CASE", help="a case, or a folder of cases")
    parser.add_argument(
        "--only-check", action="store_true", help="name what is not supported, and run nothing"
    )
    parser.add_argument("--limit", type=number, metavar="N", help="only the first N cases")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="what carries out copies and mbarrier operations [%(default)s]",
    )
    parser.add_argument(
        "--sms", type=number, metavar="N", default=0, help="blocks that run at the same time"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="write a report of each case to DIR/CASE"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="let the sanitizer follow the threads"
    )
    parser.add_argument(
        "--memory", default=Setting().memory, help="memory model of the unit [%(default)s]"
    )


def replay(options: argparse.Namespace) -> int:
    """Carry out the command ``ptx``; return the exit status."""
    setting = Setting(memory=options.memory)
    try:
        setting.validate()
    except ValueError as error:
        print(f"{PROG}: --memory {options.memory}: {error}", file=sys.stderr)
        return 2
    found = outcomes(
        options.cases,
        only_check=options.only_check,
        limit=options.limit,
        engine=options.engine,
        setting=setting,
        sms=options.sms,
        sanitize=options.sanitize,
        directory=options.report,
    )
    return replay_all(found)


def with_file(loaded: Library, words: Sequence[str]) -> Library:
    """Return the library with the kernel of a file, if the command line names one.

    Raises
    ------
    KernelError
        If the file has no such kernel, or cannot be imported.
    """
    place = words[1] if len(words) > 1 and words[0] in ("run", "sweep") else ""
    if not place.partition(":")[0].endswith(".py"):
        return loaded
    return replace(loaded, kernels={**loaded.kernels, place: kernel_of_file(place)})


def summary(cls: type[Kernel]) -> str:
    """Return the first line of a kernel's docstring."""
    return (cls.__doc__ or "").partition("\n")[0]


def print_list(console: Console, loaded: Library) -> None:
    """Print a table of the kernels, and what is wrong with others."""
    table = Table("kernel", "result", "options", show_lines=True)
    for name, cls in loaded.kernels.items():
        options = (f"{flag(item.name)}: {description(item)}" for item in options_of(cls))
        table.add_row(name, summary(cls), "\n".join(options))
    console.print(table)
    for problem in (*loaded.broken, *loaded.ambiguous.values()):
        console.print(problem, soft_wrap=True)


def work_of(cls: type[Kernel], options: argparse.Namespace) -> Iterator[launch.Job]:
    """Yield a job for each combination of the option values; ``run`` has one value of each.

    Raises
    ------
    ValueError
        If a value is outside of its limits, or a combination cannot be run. The text names it.
    KernelError
        If the code of the kernel raises another error.
    """
    kernel_names, setting_names = (
        [item.name for item in options_of(each)] for each in (cls, Setting)
    )
    values_by_name = {
        name: getattr(options, name) for name in (*kernel_names, *setting_names) if name in options
    }
    if options.command == "run":
        values_by_name = {name: [value] for name, value in values_by_name.items()}
        if options.explore is not None:
            if options.explore < 1 or "schedule" in values_by_name:
                reason = "must be at least 1" if options.explore < 1 else "not with --schedule"
                raise ValueError(f"--explore {options.explore}: {reason}")
            values_by_name["schedule"] = list(range(1, options.explore + 1))
    for values in product(*values_by_name.values()):
        chosen = dict(zip(values_by_name, values, strict=True))
        kernel = cls(**{name: value for name, value in chosen.items() if name in kernel_names})
        setting = Setting(
            **{name: value for name, value in chosen.items() if name in setting_names}
        )
        try:
            launch.validate(kernel, setting)
        except OptionError as error:
            raise ValueError(f"{given({error.name: error.value})}: {error.reason}") from error
        except ValueError as error:
            raise ValueError(f"{given(chosen)}: {error}" if chosen else str(error)) from error
        yield kernel, setting


def given(chosen: Mapping[str, Any]) -> str:
    """Return values of options as they are on the command line."""
    return " ".join(f"{flag(name)} {shlex.quote(str(value))}" for name, value in chosen.items())


def swept(
    options: argparse.Namespace, work: Sequence[launch.Job], params: TmaParams, console: Console
) -> tuple[list[Record], list[str]]:
    """Run a sweep on workers; return the records in order, and a line for each run that is lost."""
    records: dict[int, Record] = {}
    lost: list[str] = []
    with (
        workers.of(options, options.parser) as crew,
        Store(options.report / RESULTS, sweep.Run) as results,
        progress_bar(console) as progress,
    ):
        runs = sweep.sweep(work, params, crew, results)
        for place, ended in progress.track(runs, total=len(work), description=options.kernel):
            if isinstance(ended, Lost):
                kernel, setting = work[place]
                lost.append(f"LOST: {kernel.name} {kernel.options} {setting}: {ended.reason}")
            else:
                records[place] = ended
    if results.remark:
        console.print(results.remark, soft_wrap=True)
    return [records[place] for place in sorted(records)], lost


def print_run(console: Console, record: Record) -> None:
    """Print the figures and the outcome of a run."""
    console.print(record.title, soft_wrap=True)
    table = Table(show_header=False)
    for name, value in report.figures_of(record).items():
        table.add_row(name, value)
    console.print(table)
    console.print(report.verdict(record), soft_wrap=True)


def print_sweep(console: Console, records: Sequence[Record]) -> None:
    """Print a table of several runs, and the failures."""
    rows = report.table_of(records)
    table = Table()
    for name in rows[0]:
        longest = max(map(len, name.split()))
        table.add_column(name, overflow="fold", min_width=longest)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    for record in records:
        if record.failed:
            console.print(f"{record.title}\n{report.verdict(record)}", soft_wrap=True)


def print_explored(console: Console, records: Sequence[Record]) -> None:
    """Print which of several schedules failed, each with the command that runs it again."""
    failed = [record for record in records if record.failed]
    for record in failed:
        console.print(f"{PROG} run {record.title}\n{report.verdict(record)}", soft_wrap=True)
    cycles = [record.cycles for record in records]
    console.print(
        f"{len(records)} schedules, {min(cycles):,} to {max(cycles):,} cycles: "
        f"{len(failed)} failed",
        soft_wrap=True,
    )


@entry_point
def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command line; see ``--help``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.
    prog : str
        Name of the command in its messages.

    Returns
    -------
    int
        0 if all results are right, 1 if a result is wrong or a run failed.
    """
    console = Console(markup=False, highlight=False)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        loaded = with_file(library(), words)
    except KernelError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    options = parser_of(loaded, prog).parse_args(words)
    if options.command == "list":
        print_list(console, loaded)
        return int(bool(loaded.broken or loaded.ambiguous))
    if options.command == "ptx":
        return replay(options)
    if options.command == "trace":
        return trace.run(options, prog)
    parser: Parser = options.parser
    try:
        work = list(work_of(loaded.kernels[options.kernel], options))
        report.prepare(options.report)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--report {options.report}: cannot be written: {error.strerror}")
    except KernelError as error:
        console.print(f"FAILED: {error}", soft_wrap=True)
        return 1
    params = replace(PRESETS["default"], counters=options.counters)
    try:
        if options.command == "run":
            with progress_bar(console) as progress:
                runs = launch.simulate(work, params)
                records = [*progress.track(runs, total=len(work), description=options.kernel)]
            lost: list[str] = []
        else:
            records, lost = swept(options, work, params, console)
    except (CacheError, SendError, SimulationError) as error:
        console.print(error)
        return 1
    if options.command == "run" and options.explore is not None:
        print_explored(console, records)
    elif options.command == "run":
        print_run(console, records[0])
    elif records:
        print_sweep(console, records)
    for line in lost:
        console.print(line, soft_wrap=True)
    if records:
        files = report.write(options.report, records)
        console.print(", ".join(map(str, files)), soft_wrap=True)
    return int(bool(lost) or any(record.failed for record in records))


if __name__ == "__main__":
    sys.exit(main())
