"""Writes every table of README.md from its source: ``make readme``.

* commands: the help lines of the Makefile
* kernels: the first line of each kernel's docstring
* ports, parameters, blocks: ``hw.flow.tables``
* the two jobs of ``make sim``: docs/sim.json
* performance: docs/performance.md

With ``--measure`` the two jobs are run, and docs/sim.json is written first.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hw.flow.tables import TABLES as HW_TABLES
from hw.flow.tables import read_table
from sim_tb.command_line import Parser, entry_point
from sim_tb.kernels import kernels
from sim_tb.report.markdown import filled, table
from sim_tb.report.report import figures_of, verdict
from sim_tb.simulator import runner
from sim_tb.sm import launch
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Record, Setting

SIM = runner.ROOT / "docs" / "sim.json"
PERFORMANCE = runner.ROOT / "docs" / "performance.md"
SPEED = "simulated"
"""Figure of a run that depends on the machine; it is not kept."""

COMMAND = re.compile(r"^([a-z-]+):.*? ## (.*?):?((?: \[?[A-Z]+=.*)?)$", re.MULTILINE)
"""Target, text and options of a help line in the Makefile."""

JOBS: dict[str, dict[str, Any]] = {
    "sim": {},
    "cluster_sim": {"cluster": "4x2", "m": 1000, "n": 500, "k": 456},
}
"""Options of the GEMM in each job of ``make sim`` that README.md shows."""

PERFORMANCE_COLUMNS = (
    *("", "boxes", "ours / floor: median", "95th percentile", "worst"),
    *("ours / beat floor: median; 95th percentile; worst",),
    *("silicon / floor: median", "slower than silicon"),
)
"""Columns that README.md has of the table ``files`` in docs/performance.md."""


def job(name: str) -> tuple[Kernel, Setting]:
    """Return kernel and setting of one of ``JOBS``."""
    return kernels()["gemm"](**JOBS[name]), Setting()


def figures(record: Record) -> dict[str, Any]:
    """Return what docs/sim.json holds of a run: its figures and its check.

    Raises
    ------
    SimulationError
        If the run failed.
    """
    if record.failed:
        raise runner.SimulationError(f"{record.title}: {verdict(record)}")
    kept = {name: text for name, text in figures_of(record).items() if name != SPEED}
    return {"figures": kept, "check": verdict(record)}


def measure() -> None:
    """Run the two jobs and write docs/sim.json."""
    records = launch.run([job(name) for name in JOBS])
    contents = {name: figures(record) for name, record in zip(JOBS, records, strict=True)}
    SIM.write_text(json.dumps(contents, indent=1) + "\n")


def sim(name: str) -> str:
    """Return the summary of a job of ``make sim``, as it is printed."""
    run = json.loads(SIM.read_text())[name]
    summary = Table(show_header=False)
    for figure, text in run["figures"].items():
        summary.add_row(figure, text)
    text = StringIO()
    Console(file=text, width=100).print(summary, run["check"], highlight=False)
    return f"```\n{text.getvalue()}```"


def commands() -> str:
    """Return the targets of the Makefile with their options and help lines."""
    rows = []
    for target, text, options in COMMAND.findall((runner.ROOT / "Makefile").read_text()):
        command = f"make {target}{options}".replace("|", "\\|")
        rows.append([f"`{command}`", text.replace("|", "\\|")])
    return table(("command", "function"), rows)


def kernel_table() -> str:
    """Return the kernels with the first line of their docstrings."""
    rows = []
    for name, cls in kernels().items():
        summary = (cls.__doc__ or "").partition("\n")[0]
        rows.append([f"`{name}`", summary.replace("``", "`").replace("|", "\\|")])
    return table(("kernel", "function"), rows)


def performance() -> str:
    """Return columns of the table ``files`` of docs/performance.md."""
    head, rows = read_table(PERFORMANCE.read_text(), "files")
    places = [head.index(column) for column in PERFORMANCE_COLUMNS]
    return table(PERFORMANCE_COLUMNS, [[row[place] for place in places] for row in rows])


TABLES: Mapping[str, Callable[[], str]] = {
    **HW_TABLES,
    "commands": commands,
    "kernels": kernel_table,
    "sim": lambda: sim("sim"),
    "cluster_sim": lambda: sim("cluster_sim"),
    "performance": performance,
}
"""Function that returns each table of README.md, by the name of its markers."""


def refreshed(text: str) -> str:
    """Return the text of README.md with all tables written again."""
    return filled(text, {name: make() for name, make in TABLES.items()})


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.readme", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=runner.ROOT / "README.md")
    parser.add_argument("--measure", action="store_true", help="run the jobs of make sim first")
    options = parser.parse_args(arguments)
    if options.measure:
        try:
            measure()
        except runner.SimulationError as error:
            print(error, file=sys.stderr)
            return 1
    file: Path = options.file
    file.write_text(refreshed(file.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
