"""Steady-state cycles per box beside the silicon's: ``make bench``.

Each box of a timing file is issued back to back, its data in a memory that always answers. The
floor is what one 128-byte line and one 128-byte beat a clock would take. The same boxes may be
stored instead, or loaded and stored in turn; of that the silicon was not asked.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from golden import AccessMode, Load, Plan, Store, TmaError
from golden.checks import check_tensor
from golden.enums import SMEM_BYTES
from golden.model import operands_of
from golden.vectors import VectorError, read, tensor_map_of
from hw.params import PRESETS
from sim_tb import jobs, runner
from sim_tb.bench_timing import Box
from sim_tb.models import PRESETS as MODELS
from sim_tb.progress import progress_bar

MODULE = "sim_tb.bench_timing"
DEFAULT = runner.ROOT / "tests" / "silicon" / "timing_workloads.npz"
WAYS = "load", "store", "both"
FIELDS = {"name", "mode", "interleave", "lines", "beats", "silicon_cycles"}


@dataclass(frozen=True)
class Measured:
    """A box of the file and what the unit took for it. ``error``: why there is no number."""

    name: str
    lines: int
    beats: int
    silicon_cycles: float | None
    cycles: float | None
    error: str = ""

    @property
    def floor(self) -> int:
        """Clocks that one line and one write a clock would take."""
        return max(self.lines, self.beats, 1)

    @property
    def ratio(self) -> float:
        """Cycles over the floor."""
        return (self.cycles or 0.0) / self.floor

    @property
    def is_slower(self) -> bool:
        """Than the silicon."""
        if self.cycles is None or self.silicon_cycles is None:
            return False
        return self.cycles > self.silicon_cycles


def box(row: Any) -> Box:
    """The load that a row of a timing file describes."""
    rank = int(row["rank"])
    tensor_map = tensor_map_of(row)
    coords = tuple(int(c) for c in row["coords"][:rank])
    plan = Plan(tensor_map)
    im2col = plan.mode is AccessMode.IM2COL
    offsets = tuple(int(n) for n in row["im2col_offsets"][: rank - 2]) if im2col else ()
    smem_address = int(row["smem_address"])
    load = Load(tensor_map, coords, im2col_offsets=offsets, smem_address=smem_address)
    check_tensor(plan, operands_of(load), smem_address, SMEM_BYTES)
    floor = max(int(row["lines"]), int(row["beats"]), 1)
    return Box((load,), plan.footprint, plan.bytes(), floor)


def stored(loaded: Box) -> tuple[Box, int, int]:
    """The same box as a store, the lines it writes and the beats it reads.

    Raises
    ------
    TmaError
        If no store may start there.
    """
    load = loaded.requests[0]
    plan = Plan(load.tensor_map, store=True)
    store = Store(load.tensor_map, load.coords, smem_address=load.smem_address)
    check_tensor(plan, operands_of(store), store.smem_address, SMEM_BYTES)
    lines, beats = (found.size for found in plan.touched(store.smem_address, store.coords))
    return Box((store,), plan.footprint, 0, max(lines, beats, 1)), lines, beats


@dataclass(frozen=True)
class Job:
    """A box to be measured, and what is known of it."""

    box: Box
    name: str
    lines: int
    beats: int
    silicon_cycles: float | None


def job(row: Any, way: str) -> Job | None:
    """What to measure of a row of a timing file; None where no store may start."""
    loaded, name = box(row), str(row["name"])
    lines, beats = int(row["lines"]), int(row["beats"])
    if way == "load":
        return Job(loaded, name, lines, beats, float(row["silicon_cycles"]))
    try:
        back, lines_back, beats_back = stored(loaded)
    except TmaError:
        return None
    if way == "store":
        return Job(back, name, lines_back, beats_back, None)
    both = replace(
        loaded,
        requests=loaded.requests + back.requests,
        floor=max(loaded.floor, back.floor),
    )
    return Job(both, name, max(lines, lines_back), max(beats, beats_back), None)


def rows(path: Path) -> list[Any]:
    """The boxes of a timing file.

    Raises
    ------
    VectorError
        If it is none.
    """
    table, _ = read(path)
    missing = FIELDS - set(table.dtype.names or ())
    if missing:
        raise VectorError(f"{path}: no timing file: boxes without {', '.join(sorted(missing))}")
    return list(table)


def measure(selected: Sequence[Job], models: str, preset: str, console: Console) -> list[Measured]:
    """Measure the boxes, all in one simulation."""
    measured = []
    with progress_bar(console) as progress:
        task = progress.add_task("boxes", total=len(selected))
        answers = jobs.results(
            MODULE,
            [item.box for item in selected],
            env={"TIMING_MODELS": models},
            params=PRESETS[preset],
        )
        for item, answer in zip(selected, answers, strict=True):
            known = isinstance(answer, float)
            measured.append(
                Measured(
                    item.name,
                    item.lines,
                    item.beats,
                    item.silicon_cycles,
                    answer if known else None,
                    "" if known else str(answer),
                )
            )
            progress.advance(task)
    return measured


def show(measured: Sequence[Measured], console: Console) -> None:
    """Print the table and the summary."""
    table = Table(title="cycles per box, steady state", title_justify="left")
    recorded = any(item.silicon_cycles is not None for item in measured)
    headings = ["name", "cycles", "floor", "ratio"]
    for heading in headings + ["silicon", "silicon/cycles"] * recorded:
        table.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=True)
    for item in measured:
        if item.cycles is None:
            table.add_row(item.name, "[red]failed", str(item.floor))
            continue
        cells = [item.name, f"{item.cycles:.2f}", str(item.floor), f"{item.ratio:.3f}"]
        if item.silicon_cycles is not None:
            gain = f"{item.silicon_cycles / item.cycles:.2f}"
            cells += [f"{item.silicon_cycles:.2f}", f"[red]{gain}" if item.is_slower else gain]
        table.add_row(*cells)
    console.print(table)
    for item in measured:
        if item.error:
            console.print(f"{item.name}: {item.error}", markup=False, soft_wrap=True)
    done = [item for item in measured if item.cycles is not None]
    if done:
        ratios = np.array([item.ratio for item in done])
        worst = max(done, key=lambda item: item.ratio)
        slower = sum(item.is_slower for item in done)
        console.print(
            f"cycles / floor over {len(done)} boxes: median {np.median(ratios):.3f}, "
            f"p95 {np.percentile(ratios, 95):.3f}, worst {worst.ratio:.3f} ({worst.name})"
            + (f"; {slower} slower than silicon" if recorded else ""),
            highlight=False,
        )


def write(path: Path, measured: Sequence[Measured]) -> None:
    """Leave the numbers as JSON."""
    boxes = [
        {
            "name": item.name,
            "cycles": item.cycles,
            "lines": item.lines,
            "beats": item.beats,
            "silicon_cycles": item.silicon_cycles,
        }
        for item in measured
        if item.cycles is not None
    ]
    failed = {item.name: item.error for item in measured if item.cycles is None}
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = {"boxes": boxes, "failed": failed}
    path.write_text(json.dumps(contents, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``. The exit status is 1 if a box failed."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.bench", description=__doc__)
    parser.add_argument("vectors", type=Path, nargs="?", default=DEFAULT, metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), metavar="FILE")
    parser.add_argument(
        "--way",
        choices=WAYS,
        default="load",
        help="load the boxes, store them, or both in turn; default: %(default)s",
    )
    parser.add_argument(
        "--models",
        choices=MODELS,
        default="fixed",
        help="memories and stalls; default: %(default)s",
    )
    parser.add_argument(
        "--preset", choices=PRESETS, default="default", help="parameters; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    console = Console()
    try:
        all_jobs = [job(row, options.way) for row in rows(options.vectors)]
        selected = [item for item in all_jobs if item is not None]
        if len(selected) < len(all_jobs):
            console.print(f"{len(all_jobs) - len(selected)} boxes start where no store may")
        measured = measure(selected, options.models, options.preset, console)
    except VectorError as error:
        parser.error(str(error))
    except runner.SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    show(measured, console)
    write(options.out, measured)
    console.print(f"{options.out}", highlight=False)
    return 1 if any(item.error for item in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
