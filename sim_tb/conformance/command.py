"""Runs recorded cases of the silicon through the golden model or the RTL: ``make conformance``.

FILE holds transfers, tensor maps, barrier programs, cluster programs, edits of tensor maps or parts
of complete_tx; its arrays tell which. Multicasts and cluster programs run on a cluster, in which
each unit has the port. Barrier programs access no global memory: a unit with the port runs them,
and nothing goes through it.

The last line of the output is ``N passed, M failed``. The exit status is 0 if all cases passed, 1
if one failed, and 2 if the command line is wrong.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from golden.archive import VectorError
from golden.vectors import select
from sim_tb.command_line import Parser, entry_point
from sim_tb.conformance.memory_side import DEFAULT, PORTS, MemorySide
from sim_tb.conformance.recordings import Barriers, Recording, read_recording
from sim_tb.simulator.progress import progress_bar
from sim_tb.testbench.models import PRESETS as MODELS

TARGETS = ("golden", "rtl")

NO_ACCESS = "Barrier programs access no global memory: nothing goes through the port {port}."

NOTES = "Words differ where a phase ended at a part of the bytes that came:"
"""Line above the cases with a note."""


def run(
    recording: Recording,
    numbers: Sequence[int],
    target: str,
    console: Console,
    memory: MemorySide = DEFAULT,
) -> int:
    """Run cases as ``Recording.verdicts`` does, and print the failures, notes and a table.

    Returns
    -------
    int
        Number of cases that failed.
    """
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    notes = []
    with progress_bar(console) as progress:
        task = progress.add_task(target, total=len(numbers))
        verdicts = recording.verdicts(numbers, target, memory)
        for number, verdict in zip(numbers, verdicts, strict=True):
            progress.advance(task)
            kind = recording.kinds[number]
            if verdict.note is not None:
                notes.append(verdict.note)
            if verdict.difference is None:
                passed[kind] += 1
                continue
            failed[kind] += 1
            console.print(verdict.difference, markup=False, highlight=False, soft_wrap=True)
    table = Table("kind", "passed", "failed", title=f"target {target}", title_justify="left")
    for kind in sorted(passed.keys() | failed.keys()):
        table.add_row(kind, str(passed[kind]), str(failed[kind]))
    console.print(table)
    if notes:
        console.print(NOTES)
        for note in notes:
            console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{passed.total()} passed, {failed.total()} failed", highlight=False)
    return failed.total()


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.conformance", description=__doc__)
    parser.add_argument("vectors", type=Path, metavar="FILE")
    parser.add_argument("--target", choices=TARGETS, default="golden")
    parser.add_argument("--kinds", default="", metavar="A,B", help="only these kinds")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N cases")
    parser.add_argument(
        "--models",
        choices=MODELS,
        help="memories and stalls around the RTL; default: fixed",
    )
    parser.add_argument(
        "--port",
        choices=PORTS,
        help="way of the RTL to global memory; default: gnic",
    )
    options = parser.parse_args(arguments)
    if options.limit is not None and options.limit < 1:
        parser.error(f"--limit {options.limit}: must be at least 1")
    for name in "models", "port":
        if (value := getattr(options, name)) is not None and options.target != "rtl":
            parser.error(
                f"--{name} {value} has no effect with --target {options.target}: only the RTL "
                "has memories around it; add --target rtl"
            )
    kinds = [kind.strip() for kind in options.kinds.split(",") if kind.strip()]
    try:
        recording = read_recording(options.vectors)
        numbers = select(options.vectors, recording.kinds, kinds, options.limit)
        memory = MemorySide(options.models or "fixed", options.port or "gnic")
        console = Console()
        if options.port is not None and isinstance(recording, Barriers):
            console.print(NO_ACCESS.format(port=options.port), highlight=False, soft_wrap=True)
        return 1 if run(recording, numbers, options.target, console, memory) else 0
    except VectorError as error:
        parser.error(str(error))
