"""Writes tables and plots of documents: ``python -m sim_tb.bench_docs docs``.

They are those of docs/performance.md, and the table ``times`` of docs/kernels.md. With
``--only NAME ...`` only the named ones are measured and written; the others stay unchanged.
"""

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
from hw.flow.synth import lut_sites
from hw.params import PRESETS, TmaParams
from sim_tb.command_line import Parser, entry_point
from sim_tb.kernels import kernels
from sim_tb.performance import microbenchmarks as micro
from sim_tb.performance import row_boxes, streams, times
from sim_tb.performance.bounds import Bounds, BoxResult, Quantiles, classes_of
from sim_tb.performance.microbenchmarks import DEFAULT, LATENCIES, TAGS
from sim_tb.performance.row_boxes import OFFSETS, WIDTHS, RowBox
from sim_tb.performance.series import RECORDED, SILICON, box_of, jobs_of, measure, series_of
from sim_tb.report.figures import COLOURS
from sim_tb.report.markdown import filled, table
from sim_tb.simulator import runner
from sim_tb.sm import launch
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.record import Setting

RANDOM = "random:1:400"
SLOWEST = 5
"""Boxes of each file in the table of the slowest boxes."""

SYNTH = Path("build/synth.json")
STA = Path("build/sta.json")
IDMA = {"64 bits, 8 in flight": (8, 3431, 68.0), "64 bits, 32 in flight": (8, 6033, 61.0)}
"""iDMA 0.7.0 in the flow of ``make synth``: bytes of its ports, LUT4, and MHz of the worst seed.

These were measured once, on its own sources, which are no part of this project.
"""

FILES = {
    "timing_workloads": "loads of published kernels",
    "timing_random": "random boxes",
}
"""Contents of each recorded file."""

RATIO_HEAD = ("boxes", "ours / floor: median", "95th percentile", "worst", "bound")
BEAT_HEAD = "ours / beat floor: median; 95th percentile; worst"
QUIET = Console(stderr=True)


def bound_text(bounds: Bounds | None) -> str:
    """Return the bounds of median, 95th percentile and single boxes as a cell."""
    if bounds is None:
        return ""
    return f"{bounds.median:g}; {bounds.p95:g}; {bounds.box_limit}"


@cache
def results_of(source: str, way: str) -> tuple[BoxResult, ...]:
    """Measure the boxes of a recorded file, or random boxes."""
    path = str(SILICON / f"{source}.npz") if source in RECORDED else source
    return tuple(measure(jobs_of(series_of(path), way), QUIET))


def ratio_cells(boxes: Sequence[BoxResult], bounds: Bounds | None) -> list[str]:
    """Return the cells below ``RATIO_HEAD``."""
    return [*Quantiles.of([box.ratio for box in boxes]).cells, bound_text(bounds)]


def beat_cells(boxes: Sequence[BoxResult]) -> list[str]:
    """Return the cells below ``BEAT_HEAD``."""
    quantiles = Quantiles.of([box.beat_ratio for box in boxes])
    return ["; ".join(quantiles.cells[1:])]


def files_table() -> str:
    """Measure both recorded files as loads; return their quantiles."""
    rows = []
    for name, bounds in RECORDED.items():
        boxes = results_of(name, "load")
        silicon = [(box.silicon_cycles or 0) / box.floor for box in boxes]
        slower = sum(box.is_slower for box in boxes)
        figures = [f"{np.median(silicon):.2f}", f"{np.percentile(silicon, 95):.2f}", str(slower)]
        cells = [*ratio_cells(boxes, bounds), *beat_cells(boxes), *figures]
        rows.append([f"{FILES[name]}, `{name}.npz`", *cells])
    silicon_head = ("silicon / floor: median", "95th percentile", "slower than silicon")
    return table(("", *RATIO_HEAD, BEAT_HEAD, *silicon_head), rows)


def box_table(boxes: Iterable[BoxResult]) -> str:
    """Return a table with a row for each measured box."""
    rows = []
    for box in boxes:
        work, silicon = box.work, box.silicon_cycles
        counts = work.lane_pieces, work.beats, work.fill_beats
        figures = [f"{box.cycles:.1f}", f"{box.ratio:.2f}", f"{box.beat_ratio:.2f}"]
        figures += [str(work.lines), f"{box.requested_lines:.0f}", *map(str, counts)]
        figures.append("-" if silicon is None else f"{silicon:.1f}")
        rows.append([box.name, *figures, box.description])
    ratios = "/ floor", "/ beat floor"
    counts_head = "lines", "lines requested", "pieces in a lane", "beats", "beats with fill"
    return table(("box", "cycles", *ratios, *counts_head, "silicon", "parameters"), rows)


def slowest_table() -> str:
    """Return the boxes of both files with the highest cycles over the beat floor."""
    boxes: list[BoxResult] = []
    for name in RECORDED:
        boxes += sorted(results_of(name, "load"), key=lambda box: -box.beat_ratio)[:SLOWEST]
    return box_table(boxes)


def gaps_table() -> str:
    """Return the recorded boxes whose two floors differ, those farthest from the floor first."""
    measured = [box for name in RECORDED for box in results_of(name, "load")]
    boxes = [box for box in measured if box.work.floor < box.work.beat_floor]
    return box_table(sorted(boxes, key=lambda box: -box.ratio))


def random_table() -> str:
    """Measure random boxes; return their quantiles by class."""
    rows = [
        [name, *ratio_cells(boxes, None)[:-1], *beat_cells(boxes)]
        for name, boxes in classes_of(results_of(RANDOM, "load")).items()
    ]
    return table(("", *RATIO_HEAD[:-1], BEAT_HEAD), rows)


def above_table() -> str:
    """Return the random boxes that are above the recorded boxes' bound of the 95th percentile."""
    bound = RECORDED["timing_random"].p95
    boxes = [box for box in results_of(RANDOM, "load") if box.beat_ratio > bound]
    return box_table(sorted(boxes, key=lambda box: -box.beat_ratio))


def stores_table() -> str:
    """Measure the boxes of published kernels as stores; return their quantiles by mode."""
    boxes = results_of("timing_workloads", "store")
    rows = []
    for mode in ("tile", "im2col"):
        members = [box for box in boxes if box.mode.startswith(mode)]
        bounds = RECORDED["timing_workloads"] if mode == "tile" else None
        if members:
            rows.append([mode, *ratio_cells(members, bounds)])
    return table(("mode", *RATIO_HEAD), rows)


def mixed_table() -> str:
    """Measure the boxes of published kernels as loads and stores at once; return their rates."""
    boxes = results_of("timing_workloads", "both")
    rows = []
    for mode in ("tile", "im2col"):
        mixes = [box.mixed for box in boxes if box.mixed and box.mode.startswith(mode)]
        shares = {
            "loads": [mixed.load_share for mixed in mixes],
            "stores": [mixed.store_share for mixed in mixes],
            "lesser of both, over what one request a clock allows": [
                mixed.port_share for mixed in mixes
            ],
        }
        for name, values in shares.items():
            figures = f"{np.median(values):.3f}", f"{min(values):.3f}"
            rows.append([f"{mode}, {name}", str(len(values)), *figures])
    return table(("direction", "boxes", "rate over the rate alone: median", "least"), rows)


def tiny_table() -> str:
    """Measure boxes of 16 bytes; return their cycles."""
    loads, stores = micro.tiny_loads(), micro.tiny_stores()
    rows = [
        [name, f"{load.cycles:.2f}", f"{stores[name].cycles:.2f}", str(micro.MAX_TINY_CYCLES)]
        for name, load in loads.items()
    ]
    return table(("16 bytes", "cycles per load", "cycles per store", "bound"), rows)


def latency_table() -> str:
    """Measure single boxes through an empty unit; return their clocks."""
    rows = [
        [name, str(clocks.first_line), str(clocks.last_phase), str(clocks.total)]
        for name, clocks in micro.latencies().items()
    ]
    rows.append(["bound", str(micro.MAX_FIRST_LINE), str(micro.MAX_LAST_PHASE), ""])
    ends = "request to first line read", "last write to phase", "request to phase"
    return table(("1 KiB", *ends), rows)


def misses_table() -> str:
    """Measure boxes whose tensor maps miss the descriptor cache; return their cycles."""
    rows = [
        [str(lines), f"{hit.cycles:.1f}", f"{miss.cycles:.1f}"]
        for lines, (hit, miss) in micro.descriptor_misses((128, 256, 512)).items()
    ]
    return table(("lines of the box", "cycles, map in the cache", "a new map for each box"), rows)


def bandwidth_table() -> str:
    """Measure lines a clock by tags and latency; return the rates beside the attainable ones."""
    rows = []
    for tags in TAGS:
        params = DEFAULT if tags == DEFAULT.tags else loads_only(tags)
        rates = micro.bandwidth(params)
        cells = [f"{rates[n]:.3f} / {micro.attainable_rate(params, n):.3f}" for n in LATENCIES]
        rows.append([str(tags), *cells])
    return table(("tags", *(f"latency {n}" for n in LATENCIES)), rows)


def loads_only(tags: int) -> TmaParams:
    """Return the parameters of a unit with ``tags`` tags that is quick to build."""
    return replace(DEFAULT, tags=tags, stores=False, reductions=False, im2col=False)


def axi_table() -> str:
    """Measure lines a clock of loads and stores through AXI4, and of the ports without it."""
    rows = []
    for bits in (*micro.AXI_WIDTHS, 0):
        params = replace(micro.AXI_UNIT, axi_data_bits=bits)
        rates = micro.port_rates(params)
        cells = (f"{rate:.4f}" for rate in (*rates.values(), micro.bus_rate(params)))
        rows.append([f"AXI4, {bits} bits" if bits else "GNIC", *cells])
    return table(("port to memory", "loads", "stores", "a beat a clock"), rows)


def streams_table() -> str:
    """Measure streams of different boxes; return their line rates."""
    rows = []
    for name, rates in streams.line_rates().items():
        for size, rate in rates.shared.items():
            figures = f"{rate:.3f}", f"{rates.alone[size]:.3f}", f"{rates.bound(size):.3f}"
            rows.append([name, f"{size:,}", *figures])
    head = "requests", "bytes of a box", "lines a clock with the others", "alone", "bound"
    return table(head, rows)


def _delays(alone: list[int], beside: list[int], extra: int) -> list[str]:
    """Return median and worst of clocks alone and beside others, and the bound of the latter."""
    cells = [f"{np.median(clocks):.0f}, {max(clocks)}" for clocks in (alone, beside)]
    return [*cells, f"{max(alone) + extra:,}"]


def waits_table() -> str:
    """Measure small boxes beside large ones; return their latencies."""
    rows = []
    for (kind, large), (alone, beside) in streams.small_box_latencies().items():
        rows.append([kind, large, *_delays(alone, beside, streams.MAX_EXTRA_CLOCKS)])
    head = "16 bytes", "large boxes", "clocks alone: median, worst", "beside large boxes", "bound"
    return table(head, rows)


def adverse_table() -> str:
    """Measure small boxes beside adversaries; return their latencies."""
    rows = []
    for name, (alone, beside) in streams.adverse_latencies().items():
        rows.append([name, *_delays(alone, beside, streams.ADVERSARIES[name])])
    head = "three other streams", "clocks alone: median, worst", "beside them", "bound"
    return table(head, rows)


def synth_table() -> str | None:
    """Return area and clock from the file of ``make synth``; None if there is no such file."""
    if not SYNTH.exists():
        return None
    contents = json.loads(SYNTH.read_text())
    rows = []
    for preset, figures in contents["presets"].items():
        area = figures["area"]
        luts, flops, ram = (area[name] for name in ("LUT4", "TRELLIS_FF", "DP16KD"))
        sites = lut_sites(area)
        routes = {name: Route(**route) for name, route in figures["routes"].items()}
        clocks = sorted(route.mhz for route in routes.values())
        clock = f"{clocks[0]:.1f} to {clocks[-1]:.1f}"
        if figures["too_large"]:
            clock = f"does not fit; about {clocks[0]:.0f}"
        path = min(routes.values(), key=lambda route: route.mhz).path
        params = PRESETS[preset]
        port = f"{params.line_bytes} bytes, {params.tags} in flight"
        rows.append([f"`{preset}`", port, f"{luts:,}", f"{sites:,}", f"{flops:,}", str(ram), clock])
        rows[-1].append(path)
    resources = "LUT4", "LUT sites", "flip-flops", "block RAM", "MHz", "critical path"
    return table(("preset", "memory port", *resources), rows)


def rates_table() -> str | None:
    """Return the bytes a second of each preset and of iDMA; None without the file of synthesis."""
    if not SYNTH.exists():
        return None
    engines = {}
    for preset, figures in json.loads(SYNTH.read_text())["presets"].items():
        if not figures["too_large"]:
            clock = min(route["mhz"] for route in figures["routes"].values())
            engines[f"`{preset}`"] = PRESETS[preset].line_bytes, figures["area"]["LUT4"], clock
    engines |= {f"iDMA 0.7.0, {name}": figures for name, figures in IDMA.items()}
    rows = []
    for name, (bytes_a_clock, luts, mhz) in engines.items():
        rate = bytes_a_clock * mhz
        cells = str(bytes_a_clock), f"{mhz:.1f}", f"{luts:,}", f"{rate:,.0f}"
        rows.append([name, *cells, f"{1000 * rate / luts:,.0f}"])
    head = "bytes a clock", "MHz, worst seed", "LUT4", "MB a second", "kB a second for each LUT4"
    return table(("engine", *head), rows)


def sta_results() -> dict[str, dict[str, Any]] | None:
    """Return the figures of each preset from the file of ``make sta``; None without a file."""
    if not STA.exists():
        return None
    results: dict[str, dict[str, Any]] = json.loads(STA.read_text())["presets"]
    return results


def sta_table() -> str | None:
    """Return area and clock in standard cells; None if they were not measured."""
    if (presets := sta_results()) is None:
        return None
    rows = []
    for preset, figures in presets.items():
        unit = figures["blocks"][""]
        gates = f"{unit['um2'] / figures['nand2_um2']:,.0f}"
        counts = f"{unit['flip_flops']:,}", f"{unit['memory_bits']:,}"
        clock, path = f"{figures['mhz']:.1f}", Route(**figures["paths"][0]).path
        rows.append([f"`{preset}`", f"{unit['um2'] / 1e6:.3f}", gates, *counts, clock, path])
    head = "mm²", "NAND2 gates", "flip-flops", "memory bits", "MHz", "critical path"
    return table(("preset", *head), rows)


def sta_blocks_table() -> str | None:
    """Return NAND2 gates and memory bits of each block; None if they were not measured."""
    if (presets := sta_results()) is None:
        return None
    names = dict.fromkeys(name for figures in presets.values() for name in figures["blocks"])
    rows = []
    for name in names:
        row = [name.replace("_", " ") or "the unit"]
        for figures in presets.values():
            area = figures["blocks"].get(name)
            gates = f"{area['um2'] / figures['nand2_um2']:,.0f}" if area else "-"
            row += [gates, f"{area['memory_bits']:,}" if area else "-"]
        rows.append(row)
    head = [text for name in presets for text in (f"`{name}`: NAND2", "memory bits")]
    return table(("block", *head), rows)


def default_kernels() -> list[Kernel]:
    """Return the kernels that run on the default unit, with default options."""
    made = (cls() for cls in kernels().values())
    return [kernel for kernel in made if launch.unit_of(kernel, DEFAULT) == DEFAULT]


def kernels_table() -> str:
    """Run the kernels of ``default_kernels``; return their cycles and utilization."""
    rows = []
    for record in launch.run([(kernel, Setting()) for kernel in default_kernels()]):
        if record.error or record.wrong:
            raise micro.MeasurementError(f"{record.title}: {record.error or record.check}")
        shares = ["-", "-"]
        if record.total("fma"):
            shares = [f"{record.busy('tensor_cores'):.1%}", f"{record.starvation:.1%}"]
        figures = f"{record.rate('lines_read'):.3f}", f"{record.total('bank_conflicts'):,}"
        rows.append([f"`{record.kernel}`", f"{record.cycles:,}", *shares, *figures])
    shares_head = "tensor cores busy", "tensor cores starve"
    head = "kernel", "cycles", *shares_head, "lines read per clock", "clocks of bank conflicts"
    return table(head, rows)


def times_table() -> str:
    """Measure instructions of the behavioural SM; return their clocks beside the silicon's."""
    return times.table_of({**times.local_times(), **times.cluster_times()})


TABLES: dict[str, Callable[[], str | None]] = {
    "files": files_table,
    "slowest": slowest_table,
    "gaps": gaps_table,
    "random": random_table,
    "above": above_table,
    "stores": stores_table,
    "both": mixed_table,
    "tiny": tiny_table,
    "latency": latency_table,
    "misses": misses_table,
    "bandwidth": bandwidth_table,
    "axi": axi_table,
    "streams": streams_table,
    "waits": waits_table,
    "adverse": adverse_table,
    "synth": synth_table,
    "rates": rates_table,
    "sta": sta_table,
    "sta_blocks": sta_blocks_table,
    "kernels": kernels_table,
    "times": times_table,
}
"""Function that returns each table, by the name of its markers."""

PAGES = {"times": "kernels.md"}
"""Document of each table that is not in docs/performance.md."""

PLOT = "rows"


def rows_plot(axes: Axes, dense: bool, ours: dict[RowBox, float]) -> None:
    """Plot cycles over the floor by the width of a row.

    The unit's are lines, one for each offset; the silicon's are points, one for each recorded box.
    """
    silicon = [(box, ratio) for box, ratio in row_boxes.recorded() if box.dense == dense]
    for aligned, marker, colour in ((False, "x", COLOURS[1]), (True, "o", COLOURS[3])):
        points = [(box, ratio) for box, ratio in silicon if (box.offset == 0) == aligned]
        label = f"silicon, {'aligned' if aligned else 'off the line'}"
        widths = [min(box.width, WIDTHS[-1]) for box, _ in points]
        ratios = [ratio for _, ratio in points]
        axes.scatter(widths, ratios, marker=marker, s=24, color=colour, alpha=0.55, label=label)
    for offset in OFFSETS:
        ratios = [ours[RowBox(width, offset, dense)] for width in WIDTHS]
        colour = COLOURS[0] if offset == 0 else COLOURS[2]
        name = {0: "ours, aligned", 16: "ours, 16 to 112 bytes off the line"}.get(offset)
        axes.plot(WIDTHS, ratios, ".-", color=colour, linewidth=1.2, zorder=3, label=name)
    axes.axhline(1, color="#999999", linewidth=1, linestyle="--", zorder=1)
    axes.set(xlabel="bytes per row", yscale="log")
    axes.set_xticks([16, 32, 48, 64, 96, 128, 160, 192, 224, 256])
    ticks = [1, 1.5, 2, 3, 4, 6, 8]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0.9, 9)
    where = "dense" if dense else "apart from each other"
    axes.set_title(f"Rows {where} in global memory", loc="left")


def picture(path: Path) -> None:
    """Measure rows of every width, and plot them beside the silicon's."""
    cycles = micro.row_cycles(row_boxes.every_row_box())
    ours = {box: result.cycles / box_of(box.load).floor for box, result in cycles.items()}
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
    """Measure the named tables one after the other, and write each as soon as it is measured."""
    for name in names:
        page = directory / PAGES.get(name, "performance.md")
        with console.status(f"measuring {name} ..."):
            if name == PLOT:
                picture(directory / "performance.png")
                continue
            text = TABLES[name]()
        if text is None:
            console.print(f"{name}: no figures were found; the table stays unchanged")
        else:
            page.write_text(filled(page.read_text(), {name: text}))


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.bench_docs", description=__doc__)
    parser.add_argument("directory", type=Path)
    everything = [*TABLES, PLOT]
    parser.add_argument("--only", nargs="+", choices=everything, default=everything)
    options = parser.parse_args(arguments)
    try:
        refresh(options.directory, options.only, Console())
    except (runner.SimulationError, micro.MeasurementError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
