"""Kernels on the behavioural SM, through the RTL: ``python -m sim_tb list``, ``run``, ``sweep``."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sim_tb.report import report
from sim_tb.simulator.progress import progress_bar
from sim_tb.simulator.runner import SimulationError
from sim_tb.sm import launch
from sim_tb.sm.kernel import Kernel, kernels
from sim_tb.sm.record import Record, Setting

REPORTS = Path("build/sim_tb")


def number(text: str) -> int:
    """An integer."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number") from None


def numbers(text: str) -> list[int]:
    """The integers of ``a..b``, ``a..b..step`` (both ends included) or ``a,b,c``."""
    if ".." not in text:
        return [number(part) for part in text.split(",")]
    first, last, *more = (number(part) for part in text.split(".."))
    step = more[0] if more else 1
    if len(more) > 1 or step < 1 or last < first:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be a..b or a..b..step, from a up to b by a step of at least 1"
        )
    return list(range(first, last + 1, step))


def memories(text: str) -> list[str]:
    """Several settings of ``--memory``."""
    return text.split("/")


def one(text: str) -> list[str]:
    """What cannot be swept."""
    return [text]


def add_options(parser: argparse.ArgumentParser, cls: type[Any], *, sweep: bool) -> None:
    """An option for each field of a dataclass that was made by ``option``."""
    for item in options_of(cls):
        if item.type not in (int, int | None, str):
            raise TypeError(f"{cls.__name__}.{item.name}: {item.type}: must be an int or a str")
        kind: Callable[[str], Any] = numbers if sweep else number
        metavar = "N|A..B[..STEP]|A,B,..." if sweep else "N"
        if item.type is str:
            kind, metavar = (one if sweep else str), "TEXT"
        if sweep and item.name == "memory":
            kind, metavar = memories, "TEXT[/TEXT...]"
        parser.add_argument(
            flag(item.name),
            dest=item.name,
            type=kind,
            metavar=metavar,
            default=argparse.SUPPRESS,
            help=description(item).replace("%", "%%"),
        )


def options_of(cls: type[Any]) -> "list[Field[Any]]":
    """The fields that were made by ``option``."""
    return [item for item in fields(cls) if "help" in item.metadata]


def flag(name: str) -> str:
    """How a field is spelt on the command line."""
    return "--" + name.replace("_", "-")


def description(item: "Field[Any]") -> str:
    """Of an option: its help, and its default."""
    text = str(item.metadata["help"])
    return text if item.default in (None, "") else f"{text} [{item.default}]"


def parser_of(known: Mapping[str, type[Kernel]]) -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the kernels and their options")
    texts = {
        "run": "one run: figures, check, report",
        "sweep": "a run for each combination of the options' values, in one simulation",
    }
    for command, text in texts.items():
        names = commands.add_parser(command, help=text, description=text).add_subparsers(
            dest="kernel", metavar="KERNEL", required=True
        )
        for name, cls in known.items():
            one_kernel = names.add_parser(
                name, help=summary(cls), description=summary(cls), allow_abbrev=False
            )
            for options in (cls, Setting):
                add_options(one_kernel, options, sweep=command == "sweep")
            one_kernel.add_argument(
                "--report",
                type=Path,
                metavar="DIR",
                default=REPORTS / name,
                help="where report.html goes [%(default)s]",
            )
            one_kernel.set_defaults(parser=one_kernel)
    return parser


def summary(cls: type[Kernel]) -> str:
    """A kernel in a line."""
    return (cls.__doc__ or "").partition("\n")[0]


def print_list(console: Console, known: Mapping[str, type[Kernel]]) -> None:
    """A table of the kernels."""
    table = Table("kernel", "what it does", "options", show_lines=True)
    for name, cls in known.items():
        options = (f"{flag(item.name)}: {description(item)}" for item in options_of(cls))
        table.add_row(name, summary(cls), "\n".join(options))
    console.print(table)


def work_of(cls: type[Kernel], options: argparse.Namespace) -> Iterator[launch.Job]:
    """A job for each combination of the values; ``run`` gives one of each.

    Raises
    ------
    ValueError
        If any is out of its limits: it names the combination where there are several.
    """
    mine, around = ([item.name for item in options_of(each)] for each in (cls, Setting))
    given = {name: getattr(options, name) for name in (*mine, *around) if name in options}
    if options.command == "run":
        given = {name: [value] for name, value in given.items()}
    for values in product(*given.values()):
        chosen = dict(zip(given, values, strict=True))
        kernel = cls(**{name: value for name, value in chosen.items() if name in mine})
        setting = Setting(**{name: value for name, value in chosen.items() if name in around})
        try:
            launch.validate(kernel, setting)
        except ValueError as error:
            text = " ".join(f"{flag(name)} {value}" for name, value in chosen.items())
            raise ValueError(f"{text}: {error}" if text else str(error)) from error
        yield kernel, setting


def print_run(console: Console, record: Record) -> None:
    """What one run gave."""
    console.print(record.title, soft_wrap=True)
    table = Table(show_header=False)
    for name, value in report.figures_of(record).items():
        table.add_row(name, value)
    console.print(table)
    console.print(report.verdict(record), soft_wrap=True)


def print_sweep(console: Console, records: Sequence[Record]) -> None:
    """What several gave."""
    rows = report.table_of(records)
    table = Table()
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    for record in records:
        if record.failed:
            console.print(f"{record.title}\n{report.verdict(record)}", soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``. 1 if a result is wrong, or a run failed."""
    known, console = kernels(), Console(markup=False, highlight=False)
    options = parser_of(known).parse_args(arguments)
    if options.command == "list":
        print_list(console, known)
        return 0
    try:
        work = list(work_of(known[options.kernel], options))
    except ValueError as error:
        options.parser.error(str(error))
    records = []
    try:
        with progress_bar(console) as progress:
            for record in progress.track(
                launch.run(work), total=len(work), description=options.kernel
            ):
                records.append(record)
    except SimulationError as error:
        console.print(error)
        return 1
    if options.command == "run":
        print_run(console, records[0])
    else:
        print_sweep(console, records)
    made = report.write(options.report, records)
    console.print(", ".join(map(str, made)), soft_wrap=True)
    return int(any(record.failed for record in records))


if __name__ == "__main__":
    sys.exit(main())
