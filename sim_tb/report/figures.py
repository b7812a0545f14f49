"""Plots and tables of docs/overlap.md: ``python -m sim_tb.figures docs``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from hw.params import PRESETS
from sim_tb.command_line import Parser, entry_point
from sim_tb.kernels.gemm import TILE_K, TILE_M, TILE_N, Gemm, GemmBase
from sim_tb.kernels.gemm_multistage import GemmMultistage
from sim_tb.kernels.gemm_pingpong import GemmPingPong
from sim_tb.ptx import comparison
from sim_tb.report.markdown import filled, table
from sim_tb.simulator.progress import progress_bar
from sim_tb.sm import launch
from sim_tb.sm.costs import Costs
from sim_tb.sm.pipes import FMA_PER_CLOCK
from sim_tb.sm.record import Record, Setting

M, N, K = 128, 128, 1024
STEPS = M // TILE_M * N // TILE_N * K // TILE_K
PRODUCT_CLOCKS = TILE_M * TILE_N * TILE_K // FMA_PER_CLOCK
"""Clocks per step of the tensor cores."""

LINES = (TILE_M + TILE_N) * TILE_K * 2 // 128
"""Lines of the tiles of a step: clocks per step of the memory port."""

STAGES = range(1, 6)
LATENCIES = (150, 300, 600, 1200)
PROMOTIONS = range(7)
BANDWIDTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
SCHEDULES: tuple[type[GemmBase], ...] = Gemm, GemmPingPong, GemmMultistage
COLOURS = ("#3a6ea5", "#e3872d", "#5b9e6f", "#8a63a8")


def jobs() -> dict[str, list[launch.Job]]:
    """Return the runs of each plot, by the name of the plot."""
    sizes: dict[str, Any] = {"m": M, "n": N, "k": K}
    return {
        "stages": [
            (Gemm(**sizes, stages=stages), Setting(memory=f"latency={latency}"))
            for latency in LATENCIES
            for stages in STAGES
        ],
        "promotion": [
            (schedule(**sizes, promotion=promotion), Setting())
            for schedule in SCHEDULES
            for promotion in PROMOTIONS
        ],
        "bandwidth": [
            (Gemm(**sizes, stages=stages), Setting(memory=f"bandwidth={bandwidth}"))
            for stages in (1, 4)
            for bandwidth in BANDWIDTHS
        ],
    }


def expected_gain(latency: float) -> float:
    """Return how many times faster a step should be with overlap than without.

    Without overlap, a step takes the arrival that releases the stage, the latency, the transfer and
    the product, one after the other.
    With overlap, it takes the longer of transfer and product. The transfer is limited by the memory
    port, or by the number of tags: at most that many lines arrive per latency.
    """
    transfer = LINES * max(1, latency / PRESETS["default"].tags)
    serialized = Costs().arrival + latency + LINES + PRODUCT_CLOCKS
    return float(serialized / max(transfer, PRODUCT_CLOCKS))


def gain(serialized: Record, overlapped: Record) -> float:
    """Return how many times faster a step is with overlap than without, as measured.

    The time of a step with overlap excludes the beginning and the end of the run.
    """
    busy = overlapped.total("fma") / FMA_PER_CLOCK / (1 - overlapped.starvation)
    return (serialized.cycles - overlapped.cycles) / busy + 1


def stages_plot(axes: Axes, records: Sequence[Record]) -> None:
    """Plot starvation over stages, a line for each latency."""
    for colour, latency in zip(COLOURS, LATENCIES, strict=True):
        selected = [record for record in records if record.latency == latency]
        starved = [100 * record.starvation for record in selected]
        axes.plot(STAGES, starved, "o-", color=colour, label=f"latency {latency}")
    axes.set(xlabel="stages", ylabel="tensor cores starve, % of the cycles", ylim=(-2, None))
    axes.set_xticks(STAGES)
    axes.set_title("Stages that hide a latency", loc="left")
    axes.legend(frameon=False)


def promotion_plot(axes: Axes, records: Sequence[Record]) -> None:
    """Plot clocks per step over instructions on each accumulator, a line for each schedule."""
    for colour, schedule in zip(COLOURS, SCHEDULES, strict=False):
        selected = [record for record in records if record.kernel == schedule.name]
        clocks = [record.cycles / STEPS for record in selected]
        axes.plot(PROMOTIONS, clocks, "o-", color=colour, label=schedule.name)
    axes.axhline(PRODUCT_CLOCKS, color="#999999", linewidth=1, linestyle="--")
    axes.text(
        max(PROMOTIONS), PRODUCT_CLOCKS, "tensor cores", va="top", ha="right", color="#777777"
    )
    axes.set(xlabel="instructions on each accumulator in each step", ylabel="clocks per step")
    axes.set_title("Where issue slots are scarce", loc="left")
    axes.legend(frameon=False)


def bandwidth_plot(axes: Axes, records: Sequence[Record]) -> None:
    """Plot utilization of the tensor cores over memory bandwidth, with the roofline."""
    roof = [min(1.0, bandwidth * PRODUCT_CLOCKS / LINES) for bandwidth in BANDWIDTHS]
    axes.plot(BANDWIDTHS, roof, color="#999999", linestyle="--", label="roofline")
    for colour, stages in zip(COLOURS, (1, 4), strict=False):
        selected = [record for record in records if record.options["stages"] == stages]
        share = [1 - record.starvation for record in selected]
        label = f"{stages} stage{'s' if stages > 1 else ''}"
        axes.plot(BANDWIDTHS, share, "o-", color=colour, label=label)
    axes.set(
        xlabel="bandwidth of memory, lines per clock", ylabel="tensor cores busy", ylim=(0, 1.05)
    )
    axes.set_title("Utilization with a narrow memory", loc="left")
    axes.legend(frameon=False)


def picture(path: Path, records: dict[str, list[Record]]) -> None:
    """Draw all plots beside each other, as a PNG file."""
    figure = Figure(figsize=(15, 4.6))
    FigureCanvasAgg(figure)
    plots = stages_plot, promotion_plot, bandwidth_plot
    for axes, plot, name in zip(figure.subplots(1, 3), plots, records, strict=True):
        plot(axes, records[name])
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def tables(records: dict[str, list[Record]]) -> dict[str, str]:
    """Return the tables of docs/overlap.md by the name of their markers."""
    stages = {(r.latency, r.options["stages"]): r for r in records["stages"]}
    head = ["latency", *(f"{n} stages" if n > 1 else "1 stage" for n in STAGES), "gain", "expected"]
    rows = []
    for latency in LATENCIES:
        selected = [stages[latency, n] for n in STAGES]
        starved = [f"{record.starvation:.1%}" for record in selected]
        gains = gain(selected[0], selected[-1]), expected_gain(latency)
        rows.append([str(latency), *starved, *(f"{times:.2f}" for times in gains)])
    promotion = {(r.kernel, r.options["promotion"]): r for r in records["promotion"]}
    clocks = [
        [
            schedule.name,
            *(f"{promotion[schedule.name, n].cycles / STEPS:.0f}" for n in PROMOTIONS),
        ]
        for schedule in SCHEDULES
    ]
    instructions = ["clocks per step", *map(str, PROMOTIONS)]
    return {"stages": table(head, rows), "promotion": table(instructions, clocks)}


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see ``--help``."""
    parser = Parser(prog="python -m sim_tb.figures", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of overlap.md and overlap.png")
    directory: Path = parser.parse_args(arguments).directory
    console = Console()
    groups = jobs()
    work = [job for group in groups.values() for job in group]
    with progress_bar(console) as progress:
        task = progress.add_task("kernels", total=len(work))
        done = []
        for record in launch.run(work):
            if record.error or record.wrong:
                raise SystemExit(f"{record.title}: {record.error or record.check}")
            done.append(record)
            progress.advance(task)
    records, start = {}, 0
    for name, group in groups.items():
        records[name] = done[start : start + len(group)]
        start += len(group)
    picture(directory / "overlap.png", records)
    page = directory / "overlap.md"
    threads = table(comparison.HEAD, [each.cells for each in comparison.measurements()])
    page.write_text(filled(page.read_text(), {**tables(records), "threads": threads}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
