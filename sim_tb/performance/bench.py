"""Steady-state cycles per box beside the floor and the silicon's: ``make bench``.

Each box is issued back to back, its data in a memory that always answers. The floor is what one
128-byte line and one 128-byte beat a clock would take. The boxes are those of recorded timing files
or random ones (``random:SEED:COUNT``); they may be stored instead, or loaded and stored at once: of
that the silicon was not asked. The exit status is 1 if a box failed or a bound was broken.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from golden.vectors import VectorError
from hw.params import PRESETS
from sim_tb.performance.bounds import RATE, Measured, broken, classes
from sim_tb.performance.series import RECORDED, SILICON, WAYS, jobs_of, measure, series_of
from sim_tb.simulator import runner
from sim_tb.testbench.models import PRESETS as MODELS


def show(title: str, measured: Sequence[Measured], console: Console) -> None:
    """Print a row for each box."""
    table = Table(title=f"{title}: cycles per box, steady state", title_justify="left")
    recorded = any(item.silicon_cycles is not None for item in measured)
    headings = ["cycles", "floor", "ratio", *["silicon", "silicon/cycles"] * recorded]
    if any(item.both is not None for item in measured):
        headings = ["loads alone", "of that rate", "stores alone", "of that rate"]
    table.add_column("name", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for item in measured:
        if item.cycles is None:
            cells = ["[red]failed"]
        elif (both := item.both) is not None:
            mark = "" if both.attained >= RATE else "[red]"
            cells = [f"{both.load_alone:.2f}", f"{mark}{both.load_share:.3f}"]
            cells += [f"{both.store_alone:.2f}", f"{mark}{both.store_share:.3f}"]
        else:
            cells = [f"{item.cycles:.2f}", str(item.floor), f"{item.ratio:.3f}"]
            if item.silicon_cycles is not None:
                gain = f"{item.silicon_cycles / item.cycles:.2f}"
                cells += [f"{item.silicon_cycles:.2f}", f"[red]{gain}" if item.is_slower else gain]
        table.add_row(item.name, *cells)
    console.print(table)


def summarize(measured: Sequence[Measured], console: Console) -> None:
    """Print cycles over the floor by class, and the worst box."""
    table = Table(title="cycles / floor", title_justify="left")
    for heading in ("", "boxes", "median", "p95", "worst"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, quantiles in classes(measured).items():
        table.add_row(name, *quantiles.cells)
    console.print(table)
    done = [item for item in measured if item.cycles is not None]
    if done:
        worst = max(done, key=lambda item: item.ratio)
        line = f"cycles / floor over {len(done)} boxes: worst {worst.ratio:.3f} ({worst.name})"
        if any(item.silicon_cycles is not None for item in done):
            line += f"; {sum(item.is_slower for item in done)} slower than silicon"
        console.print(line, highlight=False, soft_wrap=True)


def entry(file: str, item: Measured) -> dict[str, Any]:
    """What is left of a box in the file of results."""
    keys = "name", "cycles", "lines", "beats", "silicon_cycles", "requests"
    found: dict[str, Any] = {"file": file, **{key: getattr(item, key) for key in keys}}
    if (both := item.both) is not None:
        found["alone"] = {"load": both.load_alone, "store": both.store_alone}
        found["share"] = {"load": both.load_share, "store": both.store_share}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.bench", description=__doc__)
    parser.add_argument(
        "vectors",
        nargs="*",
        default=[str(SILICON / f"{name}.npz") for name in RECORDED],
        metavar="FILE|random:SEED:COUNT",
        help="default: the recorded timing files",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), metavar="FILE")
    parser.add_argument(
        "--way",
        choices=WAYS,
        default="load",
        help="load the boxes, store them, or both at once; default: %(default)s",
    )
    parser.add_argument(
        "--models",
        choices=MODELS,
        default="fixed",
        help="memories and stalls; default, and what bounds are for: %(default)s",
    )
    parser.add_argument(
        "--preset", choices=PRESETS, default="default", help="parameters; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    console = Console()
    boxes: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    wrong = []
    try:
        for series in [series_of(source) for source in options.vectors]:
            selected = jobs_of(series, options.way)
            if left := len(series.loads) - len(selected):
                console.print(f"{left} boxes start where no store may")
            params = PRESETS[options.preset]
            measured = measure(selected, console, models=options.models, params=params)
            show(series.name, measured, console)
            summarize(measured, console)
            as_bound = (options.models, options.preset) == ("fixed", "default")
            bounds = series.bounds if as_bound else None
            wrong += [f"{series.name}: {text}" for text in broken(measured, bounds, options.way)]
            boxes += [entry(series.name, item) for item in measured if item.cycles is not None]
            failed |= {item.name: item.error for item in measured if item.cycles is None}
    except VectorError as error:
        parser.error(str(error))
    except runner.SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    for text in wrong:
        console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"boxes": boxes, "failed": failed}, indent=1) + "\n")
    console.print(f"{options.out}", highlight=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
