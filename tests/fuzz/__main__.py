"""Fuzzes the default unit: ``python -m tests.fuzz``, or ``make fuzz``.

Random requests, with tensor maps of any 64 bytes among them, go through the golden model and the
RTL; both must refuse with the same code, dimension and value, or count the same bytes and leave the
same memory. Requests whose round took a branch of the RTL for the first time are changed further in
later rounds. A case that differs is made as simple as possible, and written to a file that ``make
conformance`` takes. The exit status is 1 if there was one.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from sim_tb.command_line import Parser, entry_point
from sim_tb.coverage import branches
from sim_tb.simulator import runner
from sim_tb.simulator.progress import progress_bar
from tests.fuzz.compare import differences, write
from tests.fuzz.draw import Drawn, Row, draw
from tests.fuzz.shrink import shrunk

ROUND = 250
"""Requests of a simulation."""

CORPUS = 5000
"""Most rows that are changed further: the newest ones."""

MOST_FAILURES = 3


@dataclass
class Fuzzer:
    """Rounds of random requests.

    Parameters
    ----------
    seed : int
    guided : bool
        Branches of the RTL are counted, and guide the choice.
    """

    seed: int
    guided: bool
    corpus: list[Row] = field(default_factory=list)
    taken: set[branches.Point] = field(default_factory=set)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests, by operation and the name of their error."""

    def round(self, number: int, size: int) -> list[Drawn]:
        """Run a round; return the cases that differ."""
        rng = np.random.default_rng([self.seed, number])
        cases = [draw(rng, index, self.corpus) for index in range(size)]
        found, new = self.counting(lambda: differences(cases, seed=number + 1))
        if new:
            self.corpus = [*self.corpus, *(drawn.case.fields for drawn in cases)][-CORPUS:]
        for drawn in cases:
            refused = drawn.golden.refused
            self.kinds[drawn.case.op, refused.code.name if refused else ""] += 1
        return [drawn for drawn, text in zip(cases, found, strict=True) if text is not None]

    def counting(self, run: Callable[[], list[str | None]]) -> tuple[list[str | None], int]:
        """Run a simulation; return its answers, and how many branches were taken first."""
        if not self.guided:
            return run(), 0
        with tempfile.TemporaryDirectory() as folder:
            os.environ[runner.COVERAGE_DIRECTORY] = folder
            try:
                answers = run()
            finally:
                del os.environ[runner.COVERAGE_DIRECTORY]
            before = len(self.taken)
            for path in Path(folder).rglob("*.dat"):
                counts = branches.points(path.read_text(), "tma.v")
                self.taken |= {point for point, count in counts if count}
        return answers, len(self.taken) - before

    def table(self) -> Table:
        """Return the requests by operation and error."""
        operations = "load", "store", "reduce"
        table = Table("", *operations, title=f"seed {self.seed}", title_justify="left")
        for error in sorted({error for _, error in self.kinds}):
            counts = (self.kinds[operation, error] for operation in operations)
            table.add_row(error or "accepted", *(f"{count:,}" if count else "" for count in counts))
        return table


def differs(cases: Sequence[Drawn]) -> list[bool]:
    """Run cases on the RTL; return whether each differs."""
    return [text is not None for text in differences(cases)]


def fuzz(fuzzer: Fuzzer, count: int, seconds: float, folder: Path, console: Console) -> list[Path]:
    """Run rounds up to ``count`` requests or for ``seconds``; return the files of what differs."""
    files: list[Path] = []
    begin, done, number = time.monotonic(), 0, 0
    with progress_bar(console) as progress:
        task = progress.add_task("requests", total=count)
        while done < count and time.monotonic() - begin < seconds:
            size = min(ROUND, count - done)
            for case in fuzzer.round(number, size):
                path = folder / f"seed{fuzzer.seed}-round{number}-{case.case.index}.npz"
                smallest = shrunk(case, differs)
                write(path, [smallest])
                files.append(path)
                text = differences([smallest])[0]
                console.print(f"{smallest.case.request()}\n  {text}", markup=False, soft_wrap=True)
                console.print(f"  make conformance VECTORS={path} TARGET=rtl", soft_wrap=True)
                if len(files) == MOST_FAILURES:
                    return files
            done, number = done + size, number + 1
            progress.update(task, advance=size)
    return files


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="requests")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unguided", action="store_true", help="count no branches")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="of what differs")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: must be at least 1")
    console = Console()
    fuzzer = Fuzzer(options.seed, not options.unguided)
    begin = time.monotonic()
    files = fuzz(fuzzer, options.count, options.seconds, options.folder, console)
    total, spent = fuzzer.kinds.total(), time.monotonic() - begin
    console.print(fuzzer.table())
    guided = f", {len(fuzzer.taken)} points of the RTL's branches taken" if fuzzer.guided else ""
    console.print(f"{total:,} requests in {spent:.0f} s{guided}, {len(files)} differ")
    return 1 if files else 0


if __name__ == "__main__":
    sys.exit(main())
