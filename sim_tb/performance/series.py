"""Boxes that belong together, as they are to be measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from golden import AccessMode, BulkLoad, BulkStore, Load, Plan, Store, TmaError, check
from golden.enums import LINE
from golden.model import operands_of
from golden.vectors import VectorError, read, tensor_map_of
from hw.params import PRESETS, TmaParams
from sim_tb.performance import boxes
from sim_tb.performance.bounds import RANDOM, WORKLOADS, Bounds, Measured
from sim_tb.performance.tb_timing import Box, Pair, Taken, Timed, Together
from sim_tb.simulator import jobs, runner
from sim_tb.simulator.progress import progress_bar

MODULE = "sim_tb.performance.tb_timing"
SILICON = runner.ROOT / "tests" / "silicon"
RECORDED = {"timing_workloads": WORKLOADS, "timing_random": RANDOM}
"""Recorded files, and what they are to reach; of other files nothing is asked."""

WAYS = "load", "store", "both"
FIELDS = {"name", "mode", "interleave", "lines", "beats", "silicon_cycles"}


@dataclass(frozen=True)
class Job:
    """A box to be measured, and what is known of it so far."""

    item: Box | Pair
    what: Measured


@dataclass(frozen=True)
class Series:
    """Loads by their names, with the silicon's cycles where they are known; and their bounds."""

    name: str
    loads: Sequence[tuple[str, Load, float | None]]
    bounds: Bounds | None


def load_of(row: Any) -> Load:
    """The load that a row of a timing file describes."""
    rank = int(row["rank"])
    tensor_map = tensor_map_of(row)
    coords = tuple(int(c) for c in row["coords"][:rank])
    im2col = Plan(tensor_map).mode is AccessMode.IM2COL
    offsets = tuple(int(n) for n in row["im2col_offsets"][: rank - 2]) if im2col else ()
    address = int(row["smem_address"])
    return Load(tensor_map, coords, im2col_offsets=offsets, smem_address=address)


def boxed(request: Timed) -> tuple[Box, int, int]:
    """A request to be timed, its lines and its beats.

    Raises
    ------
    TmaError
        If the unit refuses it.
    """
    check(request)
    if isinstance(request, BulkLoad | BulkStore):
        size = footprint = request.size
        places = request.gmem_address, request.smem_address
        lines, beats = (-(-(at % LINE + size) // LINE) for at in places)
    else:
        plan = Plan(request.tensor_map, store=isinstance(request, Store))
        operands = operands_of(request)
        size, footprint = plan.bytes(), plan.footprint
        touched = plan.touched(request.smem_address, operands.coords, operands.offsets)
        lines, beats = (found.size for found in touched)
    box = Box(request, footprint, size, max(lines, beats, 1))
    return box, lines, beats


def job(name: str, load: Load, silicon: float | None, way: str) -> Job | None:
    """What to measure of a box; None where no store may start."""
    mode, text = boxes.mode_of(load), boxes.described(load)
    loaded, lines, beats = boxed(load)
    what = Measured(name, mode, lines, beats, text=text)
    if way == "load":
        return Job(loaded, replace(what, silicon_cycles=silicon))
    try:
        stored, lines_back, beats_back = boxed(
            Store(load.tensor_map, load.coords, smem_address=load.smem_address)
        )
    except TmaError:
        return None
    if way == "store":
        return Job(stored, replace(what, lines=lines_back, beats=beats_back))
    both = replace(what, lines=max(lines, lines_back), beats=max(beats, beats_back))
    return Job(Pair(loaded, stored), both)


def jobs_of(series: Series, way: str) -> list[Job]:
    """What to measure of a series; without the boxes where no store may start."""
    chosen = [job(*load, way) for load in series.loads]
    return [item for item in chosen if item is not None]


def series_of(source: str) -> Series:
    """The boxes of a timing file, or ``random:SEED:COUNT``.

    Raises
    ------
    VectorError
        If it is none.
    """
    kind, _, rest = source.partition(":")
    if kind == "random" and rest:
        seed, _, count = rest.partition(":")
        if not (seed.isdecimal() and count.isdecimal() and int(count)):
            raise VectorError(f"{source}: must be random:SEED:COUNT")
        drawn = boxes.random_loads(int(seed), int(count))
        named = [(f"{seed}:{i} {boxes.mode_of(load)}", load) for i, load in enumerate(drawn)]
        return Series(source, [(name, load, None) for name, load in named], RANDOM)
    path = Path(source)
    table, _ = read(path)
    missing = FIELDS - set(table.dtype.names or ())
    if missing:
        raise VectorError(f"{path}: no timing file: boxes without {', '.join(sorted(missing))}")
    names = [str(row["name"]) for row in table]
    if len(set(names)) < len(names):
        names = [f"{name}[{i}]" for i, name in enumerate(names)]
    recorded = [
        (name, load_of(row), float(row["silicon_cycles"]))
        for name, row in zip(names, table, strict=True)
    ]
    return Series(path.name, recorded, RECORDED.get(path.stem))


def measure(
    selected: Sequence[Job],
    console: Console,
    *,
    models: str = "fixed",
    params: TmaParams = PRESETS["default"],
) -> list[Measured]:
    """Measure the boxes, all in one simulation."""
    measured = []
    with progress_bar(console) as progress:
        task = progress.add_task("boxes", total=len(selected))
        items = [item.item for item in selected]
        answers = jobs.results(MODULE, items, env={"TIMING_MODELS": models}, params=params)
        for item, answer in zip(selected, answers, strict=True):
            match answer:
                case Taken(cycles, lines):
                    found = replace(item.what, cycles=cycles, requests=lines)
                case Together():
                    slower = max(answer.load, answer.store)
                    found = replace(item.what, cycles=slower, both=answer)
                case _:
                    found = replace(item.what, error=str(answer))
            measured.append(found)
            progress.advance(task)
    return measured
