"""Steady-state cycles per box, beside the floor and the silicon's cycles: ``make bench``.

Each box is issued back to back, and its data is in a memory that always answers. The floor is the
number of distinct 128-byte lines of global memory, or the most 16-byte pieces in one of the eight
lanes of shared memory, whichever is more: a unit that moves one line a clock, and one piece a clock
in each lane, cannot be faster. The beat floor counts the distinct 128-byte lines of shared memory
instead of the pieces in a lane. A box may beat it, since lanes may write to different lines in one
clock. The boxes are those of recorded timing files, or random ones (``random:SEED:COUNT``). They
can be stored instead of loaded, or loaded and stored at once; for these two there are no cycles of
the silicon. With counters, a second table has what the unit counts meanwhile. The exit status is 1
if a box failed or exceeds its bound.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from golden.archive import VectorError
from hw.params import PRESETS
from sim_tb.command_line import Parser, entry_point
from sim_tb.performance.bounds import MIN_RATE, BoxResult, Quantiles, classes_of, violations
from sim_tb.performance.series import RECORDED, SILICON, WAYS, jobs_of, measure, series_of
from sim_tb.simulator import runner
from sim_tb.testbench.models import PRESETS as MODELS
from sim_tb.trace.counts import mean, stall_text

LOADED = "LINES_READ", "PIECES_WRITTEN"
STORED = "LINES_WRITTEN", "PIECES_READ"
"""Counters of lines and pieces: of loads, and of stores."""


def show(title: str, results: Sequence[BoxResult], console: Console) -> None:
    """Print a table with a row for each box."""
    table = Table(title=f"{title}: cycles per box, steady state", title_justify="left")
    is_recorded = any(box.silicon_cycles is not None for box in results)
    headings = [
        "cycles",
        "floor",
        "ratio",
        "beat floor",
        *["silicon", "silicon/cycles"] * is_recorded,
    ]
    if any(box.mixed is not None for box in results):
        headings = ["loads alone", "share in the mix", "stores alone", "share in the mix"]
    table.add_column("name", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for box in results:
        if box.cycles is None:
            cells = ["[red]failed"]
        elif (mixed := box.mixed) is not None:
            mark = "" if mixed.port_share >= MIN_RATE else "[red]"
            cells = [f"{mixed.load_alone:.2f}", f"{mark}{mixed.load_share:.3f}"]
            cells += [f"{mixed.store_alone:.2f}", f"{mark}{mixed.store_share:.3f}"]
        else:
            cells = [f"{box.cycles:.2f}", str(box.floor), f"{box.ratio:.3f}"]
            cells.append(str(box.work.beat_floor))
            if box.silicon_cycles is not None:
                gain = f"{box.silicon_cycles / box.cycles:.2f}"
                cells += [f"{box.silicon_cycles:.2f}", f"[red]{gain}" if box.is_slower else gain]
        table.add_row(box.name, *cells)
    console.print(table)


def show_counts(results: Sequence[BoxResult], console: Console) -> None:
    """Print what the unit counted for each box, if it has counters.

    Stalls are shares of the clocks from the begin of a burst to its end, its latency included.
    ``in flight`` is the mean of the lines in flight.
    """
    counted = [(box.name, box.counts) for box in results if box.counts is not None]
    if not counted:
        return
    table = Table(title="counters, per burst", title_justify="left")
    table.add_column("name", no_wrap=True)
    for heading in ("hit/miss", "lines", "pieces", "fill", "in flight"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("stalls")
    for name, counts in counted:
        is_load = counts["LINES_READ"] >= counts["LINES_WRITTEN"]
        in_flight = mean(counts, "READS_IN_FLIGHT" if is_load else "WRITES_IN_FLIGHT")
        table.add_row(
            name,
            f"{counts['MAP_HITS']}/{counts['MAP_MISSES']}",
            *(str(counts[key]) for key in (LOADED if is_load else STORED)),
            str(counts["FILL_PIECES"]),
            f"{in_flight:.1f}",
            stall_text(counts).replace(", ", "\n"),
        )
    console.print(table)


def summarize(results: Sequence[BoxResult], console: Console) -> None:
    """Print cycles over both floors by class, and the worst boxes."""
    table = Table(title="cycles / floor, and cycles / beat floor", title_justify="left")
    for heading in ("", "boxes", *("median", "p95", "worst") * 2):
        table.add_column(heading, justify="right" if heading else "left")
    for name, members in classes_of(results).items():
        by_beats = Quantiles.of([box.beat_ratio for box in members])
        table.add_row(
            name, *Quantiles.of([box.ratio for box in members]).cells, *by_beats.cells[1:]
        )
    console.print(table)
    measured = [box for box in results if box.cycles is not None]
    if measured:
        worst = max(measured, key=lambda box: box.ratio)
        worst_by_beats = max(measured, key=lambda box: box.beat_ratio)
        line = f"cycles / floor over {len(measured)} boxes: worst {worst.ratio:.3f} ({worst.name})"
        line += f"; of the beat floor {worst_by_beats.beat_ratio:.3f} ({worst_by_beats.name})"
        if any(box.silicon_cycles is not None for box in measured):
            line += f"; {sum(box.is_slower for box in measured)} slower than silicon"
        console.print(line, highlight=False, soft_wrap=True)


def entry(file: str, box: BoxResult) -> dict[str, Any]:
    """Return what ``build/bench.json`` holds of a box."""
    contents: dict[str, Any] = {
        "file": file,
        "name": box.name,
        "cycles": box.cycles,
        "lines": box.work.lines,
        "beats": box.work.beats,
        "lane_pieces": box.work.lane_pieces,
        "floor": box.floor,
        "silicon_cycles": box.silicon_cycles,
        "requests": box.requested_lines,
    }
    if box.counts is not None:
        contents["counters"] = dict(box.counts)
    if (mixed := box.mixed) is not None:
        contents["alone"] = {"load": mixed.load_alone, "store": mixed.store_alone}
        contents["share"] = {"load": mixed.load_share, "store": mixed.store_share}
    return contents


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.bench", description=__doc__)
    parser.add_argument(
        "vectors",
        nargs="*",
        default=[str(SILICON / f"{name}.npz") for name in RECORDED],
        metavar="FILE|random:SEED:COUNT",
        help="timing files, or random boxes; default: the recorded timing files",
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
        help="memories and stalls around the unit; bounds apply to the default: %(default)s",
    )
    parser.add_argument(
        "--preset",
        choices=PRESETS,
        default="default",
        help="parameters of the unit; default: %(default)s",
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help="measure a unit with counters, and print them for loads or for stores",
    )
    options = parser.parse_args(arguments)
    if options.counters and options.way == "both":
        parser.error("--counters: not with --way both, whose bursts are of two directions")
    console = Console()
    boxes: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    messages = []
    try:
        for series in [series_of(source) for source in options.vectors]:
            selected = jobs_of(series, options.way)
            if illegal := len(series.loads) - len(selected):
                console.print(f"{illegal} boxes are left out: their store would be illegal")
            params = replace(PRESETS[options.preset], counters=options.counters)
            results = measure(selected, console, models=options.models, params=params)
            show(series.name, results, console)
            show_counts(results, console)
            summarize(results, console)
            is_bounded = (options.models, options.preset) == ("fixed", "default")
            bounds = series.bounds if is_bounded else None
            exceeded = violations(results, bounds, options.way)
            messages += [f"{series.name}: {message}" for message in exceeded]
            boxes += [entry(series.name, box) for box in results if box.cycles is not None]
            failed |= {box.name: box.error for box in results if box.cycles is None}
    except VectorError as error:
        parser.error(str(error))
    except runner.SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    for message in messages:
        console.print(message, style="red", highlight=False, markup=False, soft_wrap=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"boxes": boxes, "failed": failed}, indent=1) + "\n")
    console.print(f"{options.out}", highlight=False)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
