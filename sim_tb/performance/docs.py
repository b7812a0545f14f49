"""The tables and the plot of docs/performance.md: ``python -m sim_tb.bench_docs docs``.

With ``--only NAME ...`` only those; the others stay as they are.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from hw.flow.route import Route
from hw.flow.tables import filled
from hw.params import PRESETS
from sim_tb.performance import points
from sim_tb.performance import rows as row_boxes
from sim_tb.performance import streams as stream_mixes
from sim_tb.performance.bounds import Bounds, Measured, Quantiles, classes
from sim_tb.performance.points import DEFAULT, LATENCIES, TAGS, attainable
from sim_tb.performance.rows import OFFSETS, WIDTHS, Rows
from sim_tb.performance.series import RECORDED, SILICON, jobs_of, measure, series_of
from sim_tb.report.figures import COLOURS, table
from sim_tb.simulator import runner

RANDOM = "random:1:400"
WORST = 5
"""Rows of the table of the slowest boxes."""

SYNTH = Path("build/synth.json")
HEAD = ("boxes", "ours / floor: median", "95th percentile", "worst", "bound")
QUIET = Console(stderr=True)


def bound_text(bounds: Bounds | None) -> str:
    """A cell."""
    if bounds is None:
        return ""
    return f"{bounds.median:g}; {bounds.p95:g}; {bounds.worst}"


@cache
def measured(source: str, way: str) -> tuple[Measured, ...]:
    """The boxes of a recorded file, or random ones."""
    path = str(SILICON / f"{source}.npz") if source in RECORDED else source
    return tuple(measure(jobs_of(series_of(path), way), QUIET))


def quantile_cells(boxes: Sequence[Measured], bounds: Bounds | None) -> list[str]:
    """Count, quantiles and bounds."""
    quantiles = Quantiles.of(boxes)
    assert quantiles is not None
    return [*quantiles.cells, bound_text(bounds)]


def files() -> str:
    """Both recorded files, as loads."""
    rows = []
    for name, bounds in RECORDED.items():
        boxes = measured(name, "load")
        silicon = [(item.silicon_cycles or 0) / item.floor for item in boxes]
        slower = sum(item.is_slower for item in boxes)
        figures = [f"{np.median(silicon):.2f}", f"{np.percentile(silicon, 95):.2f}", str(slower)]
        rows.append([f"`{name}.npz`", *quantile_cells(boxes, bounds), *figures])
    silicon_head = ("silicon / floor: median", "95th percentile", "slower than silicon")
    return table(("", *HEAD, *silicon_head), rows)


def slowest() -> str:
    """The boxes of both files that miss the floor by most."""
    rows = []
    for name in RECORDED:
        boxes = sorted(measured(name, "load"), key=lambda item: -item.ratio)
        for item in boxes[:WORST]:
            figures = [f"{item.cycles:.1f}", str(item.lines), str(item.beats)]
            rows.append([item.name, *figures, f"{item.silicon_cycles:.1f}", item.text])
    return table(("box", "cycles", "lines", "beats", "silicon", "what it is"), rows)


def random_boxes() -> str:
    """Random boxes by class."""
    found = classes(measured(RANDOM, "load"))
    return table(("", *HEAD[:-1]), [[name, *part.cells] for name, part in found.items()])


def stores() -> str:
    """The boxes of published kernels, stored."""
    boxes = measured("timing_workloads", "store")
    rows = [
        [mode, *quantile_cells(part, RECORDED["timing_workloads"] if mode == "tile" else None)]
        for mode in ("tile", "im2col")
        if (part := [item for item in boxes if item.mode.startswith(mode)])
    ]
    return table(("mode", *HEAD), rows)


def both() -> str:
    """The same, loaded and stored at once."""
    found = [item for item in measured("timing_workloads", "both") if item.both is not None]
    rows = []
    for mode in ("tile", "im2col"):
        pairs = [item.both for item in found if item.both and item.mode.startswith(mode)]
        for way in ("load", "store"):
            part = [getattr(pair, f"{way}_share") for pair in pairs]
            shares = f"{np.median(part):.3f}", f"{min(part):.3f}"
            rows.append([f"{mode}, {way}s", str(len(part)), *shares])
        attained = [pair.attained for pair in pairs]
        figures = f"{np.median(attained):.3f}", f"{min(attained):.3f}"
        name = f"{mode}, the lesser of what one request a clock allows"
        rows.append([name, str(len(attained)), *figures])
    return table(("direction", "boxes", "rate, of that alone: median", "least"), rows)


def tiny() -> str:
    """Boxes of 16 bytes."""
    loads, stored = points.tiny(), points.tiny_stores()
    rows = [
        [name, f"{taken.cycles:.2f}", f"{stored[name].cycles:.2f}", str(points.TINY)]
        for name, taken in loads.items()
    ]
    return table(("16 bytes", "cycles a load", "cycles a store", "bound"), rows)


def latency() -> str:
    """Single boxes through an empty unit."""
    rows = [
        [name, str(taken.first_line), str(taken.last_phase), str(taken.whole)]
        for name, taken in points.latencies().items()
    ]
    rows.append(["bound", str(points.FIRST_LINE), str(points.LAST_PHASE), ""])
    ends = "request to first line read", "last write to phase", "request to phase"
    return table(("1 KiB", *ends), rows)


def misses() -> str:
    """Tensor maps that are not in the descriptor cache."""
    rows = [
        [str(lines), f"{hit.cycles:.1f}", f"{miss.cycles:.1f}"]
        for lines, (hit, miss) in points.misses((128, 256, 512)).items()
    ]
    return table(("lines of the box", "cycles, map in the cache", "each with a new map"), rows)


def bandwidth() -> str:
    """Lines a clock by tags and latency."""
    rows = []
    for tags in TAGS:
        params = DEFAULT if tags == DEFAULT.tags else loads_only(tags)
        found = points.bandwidth(params)
        cells = [f"{found[n]:.3f} / {attainable(params, n):.3f}" for n in LATENCIES]
        rows.append([str(tags), *cells])
    return table(("tags", *(f"latency {n}" for n in LATENCIES)), rows)


def loads_only(tags: int) -> Any:
    """A unit with so many tags that is quick to build."""
    return replace(DEFAULT, tags=tags, stores=False, reductions=False, im2col=False)


def streams() -> str:
    """Shares of streams of different boxes."""
    rows = []
    for name, found in stream_mixes.mixes().items():
        for size, rate in found.together.items():
            part = f"{rate:.3f}", f"{found.alone[size]:.3f}", f"{found.due(size):.3f}"
            rows.append([name, f"{size:,}", *part])
    lines = "lines a clock with the others", "alone", "bound"
    return table(("requests", "bytes of a box", *lines), rows)


def waits() -> str:
    """Small boxes beside large ones."""
    rows = []
    for (kind, large), (alone, among) in stream_mixes.waits().items():
        cells = [f"{np.median(part):.0f}, {max(part)}" for part in (alone, among)]
        rows.append([kind, large, *cells, f"{max(alone) + stream_mixes.MORE}"])
    head = "16 bytes", "large boxes", "clocks alone: median, worst", "beside large boxes", "bound"
    return table(head, rows)


def synth() -> str | None:
    """Area and clock, as ``make synth`` left them; None if it did not."""
    if not SYNTH.exists():
        return None
    contents = json.loads(SYNTH.read_text())
    rows = []
    for preset, found in contents["presets"].items():
        area = found["area"]
        luts, flops, ram = (area[name] for name in ("LUT4", "TRELLIS_FF", "DP16KD"))
        routes = {name: Route(**route) for name, route in found["routes"].items()}
        clocks = sorted(route.mhz for route in routes.values())
        clock = f"{clocks[0]:.1f} to {clocks[-1]:.1f}"
        if found["too_large"]:
            clock = f"does not fit; about {clocks[0]:.0f}"
        path = min(routes.values(), key=lambda route: route.mhz).path
        params = PRESETS[preset]
        port = f"{params.line_bytes} bytes, {params.tags} in flight"
        rows.append([f"`{preset}`", port, f"{luts:,}", f"{flops:,}", str(ram), clock, path])
    resources = "LUT4", "flip-flops", "block RAM", "MHz", "critical path"
    return table(("preset", "memory port", *resources), rows)


TABLES: dict[str, Callable[[], str | None]] = {
    "files": files,
    "slowest": slowest,
    "random": random_boxes,
    "stores": stores,
    "both": both,
    "tiny": tiny,
    "latency": latency,
    "misses": misses,
    "bandwidth": bandwidth,
    "streams": streams,
    "waits": waits,
    "synth": synth,
}
PLOT = "rows"


def rows_plot(axes: Axes, dense: bool, ours: dict[Rows, float]) -> None:
    """Cycles over the floor by width of a row: ours as lines, at each offset; silicon's as points,
    where it was asked.
    """
    silicon = [(rows, ratio) for rows, ratio in row_boxes.recorded() if rows.dense == dense]
    for aligned, marker, colour in ((False, "x", COLOURS[1]), (True, "o", COLOURS[3])):
        part = [(rows, ratio) for rows, ratio in silicon if (rows.offset == 0) == aligned]
        label = f"silicon, {'aligned' if aligned else 'off the line'}"
        places = [min(rows.width, WIDTHS[-1]) for rows, _ in part]
        ratios = [ratio for _, ratio in part]
        axes.scatter(places, ratios, marker=marker, s=24, color=colour, alpha=0.55, label=label)
    for offset in OFFSETS:
        mine = [ours[Rows(width, offset, dense)] for width in WIDTHS]
        colour = COLOURS[0] if offset == 0 else COLOURS[2]
        name = {0: "ours, aligned", 16: "ours, 16 to 112 bytes off the line"}.get(offset)
        axes.plot(WIDTHS, mine, ".-", color=colour, linewidth=1.2, zorder=3, label=name)
    axes.axhline(1, color="#999999", linewidth=1, linestyle="--", zorder=1)
    axes.set(xlabel="bytes of a row", yscale="log")
    axes.set_xticks([16, 32, 48, 64, 96, 128, 160, 192, 224, 256])
    ticks = [1, 1.5, 2, 3, 4, 6, 8]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0.9, 9)
    where = "one behind the other in memory" if dense else "apart from each other in memory"
    axes.set_title(f"Rows {where}", loc="left")


def picture(path: Path) -> None:
    """Measure rows of every width, and draw them beside the silicon's."""
    found = points.rows(row_boxes.every_row())
    ours = {rows: taken.cycles / points.box_of(rows.load).floor for rows, taken in found.items()}
    figure = Figure(figsize=(13, 4.8))
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, dense in ((left, False), (right, True)):
        rows_plot(axes, dense, ours)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
    left.set_ylabel("cycles / floor")
    left.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def refresh(directory: Path, names: Iterable[str], console: Console) -> None:
    """Measure what goes into these places, one after the other, and fill each when it is known."""
    page = directory / "performance.md"
    for name in names:
        with console.status(f"measuring {name} ..."):
            if name == PLOT:
                picture(directory / "performance.png")
                continue
            text = TABLES[name]()
        if text is None:
            console.print(f"{name}: there is nothing to show; the place stays as it is")
        else:
            page.write_text(filled(page.read_text(), {name: text}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m sim_tb.bench_docs", description=__doc__)
    parser.add_argument("directory", type=Path)
    everything = [*TABLES, PLOT]
    parser.add_argument("--only", nargs="+", choices=everything, default=everything)
    options = parser.parse_args(arguments)
    try:
        refresh(options.directory, options.only, Console())
    except (runner.SimulationError, points.FailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
