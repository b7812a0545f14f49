"""Series of boxes that are measured in one simulation: recorded or random ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from golden import AccessMode, BulkLoad, BulkStore, Load, Plan, Store, TmaError, check
from golden.archive import VectorError
from golden.enums import LINE, PIECE
from golden.model import operands_of
from golden.vectors import read_timings, tensor_map_of
from hw.params import PRESETS, TmaParams
from sim_tb.performance import boxes
from sim_tb.performance.bounds import (
    RANDOM_BOUNDS,
    WORKLOAD_BOUNDS,
    Bounds,
    BoxResult,
    Work,
)
from sim_tb.performance.kinds import CopyRequest
from sim_tb.performance.tb_timing import Box, LoadStorePair, MixedCycles, SteadyState
from sim_tb.simulator import jobs, runner
from sim_tb.simulator.progress import progress_bar

MODULE = "sim_tb.performance.tb_timing"
SILICON = runner.ROOT / "tests" / "silicon"
RECORDED = {"timing_workloads": WORKLOAD_BOUNDS, "timing_random": RANDOM_BOUNDS}
"""Recorded files and their bounds. Other files have no bounds."""

WAYS = "load", "store", "both"
LANES = LINE // PIECE
"""Lanes of shared memory; each reads and writes one piece a clock."""


@dataclass(frozen=True)
class Job:
    """A box or pair to measure, and its result, still without cycles."""

    target: Box | LoadStorePair
    result: BoxResult


@dataclass(frozen=True)
class Series:
    """A named list of loads, and their bounds.

    Parameters
    ----------
    name : str
    loads : sequence of (str, Load, float or None)
        Name of the box, the load, and the silicon's cycles per box if they were recorded.
    bounds : Bounds, optional
    """

    name: str
    loads: Sequence[tuple[str, Load, float | None]]
    bounds: Bounds | None


def load_of(record: Any) -> Load:
    """Return the load of a recorded case of a timing file."""
    rank = int(record["rank"])
    tensor_map = tensor_map_of(record)
    coords = tuple(int(c) for c in record["coords"][:rank])
    im2col = Plan(tensor_map).mode is AccessMode.IM2COL
    offsets = tuple(int(n) for n in record["im2col_offsets"][: rank - 2]) if im2col else ()
    address = int(record["smem_address"])
    return Load(tensor_map, coords, im2col_offsets=offsets, smem_address=address)


def work_of(request: CopyRequest) -> Work:
    """Return the accesses of a request.

    Raises
    ------
    TmaError
        If the unit refuses the request.
    """
    check(request)
    if isinstance(request, BulkLoad | BulkStore):
        addresses = request.gmem_address, request.smem_address
        lines, beats = (-(-(address % LINE + request.size) // LINE) for address in addresses)
        return Work(lines, beats, lane_pieces=-(-request.size // LINE))
    is_store = isinstance(request, Store)
    plan, operands = Plan(request.tensor_map, store=is_store), operands_of(request)
    touched = plan.touched(request.smem_address, operands.coords, operands.offsets)
    spread = plan.spread(request.smem_address, operands)
    is_data = spread.inside > 0
    pieces = spread.smem[is_data] if is_store else spread.smem  # a load also writes fill
    lanes = np.bincount(pieces.ravel() // PIECE % LANES, minlength=LANES)
    fill = np.unique(pieces[~is_data] // LINE).size if not is_store else 0
    lines, beats = (found.size for found in touched)
    return Work(lines, beats, int(lanes.max()), fill)


def box_of(request: CopyRequest) -> Box:
    """Return the box that issues a request.

    Raises
    ------
    TmaError
        If the unit refuses the request.
    """
    floor = work_of(request).floor
    if isinstance(request, BulkLoad | BulkStore):
        return Box(request, request.size, request.size, floor)
    plan = Plan(request.tensor_map, store=isinstance(request, Store))
    return Box(request, plan.footprint, plan.bytes(), floor)


def job(name: str, load: Load, silicon_cycles: float | None, way: str) -> Job | None:
    """Return the job that measures a load, the store of the same box, or both at once.

    Returns
    -------
    Job or None
        None if a store of the box is illegal, such as one that starts where no store may start.
    """
    mode, text, work = boxes.mode_of(load), boxes.describe(load), work_of(load)
    if way == "load":
        return Job(box_of(load), BoxResult(name, mode, work, text, silicon_cycles=silicon_cycles))
    store = Store(load.tensor_map, load.coords, smem_address=load.smem_address)
    try:
        store_work = work_of(store)
    except TmaError:
        return None
    if way == "store":
        return Job(box_of(store), BoxResult(name, mode, store_work, text))
    both = Work(
        max(work.lines, store_work.lines),
        max(work.beats, store_work.beats),
        max(work.lane_pieces, store_work.lane_pieces),
    )
    return Job(LoadStorePair(box_of(load), box_of(store)), BoxResult(name, mode, both, text))


def jobs_of(series: Series, way: str) -> list[Job]:
    """Return the jobs of a series; boxes whose store is illegal are left out."""
    made = [job(*load, way) for load in series.loads]
    return [item for item in made if item is not None]


def series_of(source: str) -> Series:
    """Return the boxes of a timing file, or random boxes for ``random:SEED:COUNT``.

    Raises
    ------
    VectorError
        If ``source`` is neither.
    """
    kind, _, rest = source.partition(":")
    if kind == "random" and rest:
        seed, _, count = rest.partition(":")
        if not (seed.isdecimal() and count.isdecimal() and int(count)):
            raise VectorError(f"{source}: must be random:SEED:COUNT")
        loads = boxes.random_loads(int(seed), int(count))
        named = [(f"{seed}:{i} {boxes.mode_of(load)}", load) for i, load in enumerate(loads)]
        return Series(source, [(name, load, None) for name, load in named], RANDOM_BOUNDS)
    path = Path(source)
    table = read_timings(path)
    names = [str(record["name"]) for record in table]
    if len(set(names)) < len(names):
        names = [f"{name}[{i}]" for i, name in enumerate(names)]
    recorded = []
    for name, record in zip(names, table, strict=True):
        try:
            load = load_of(record)
            check(load)
        except TmaError as error:
            raise VectorError(f"{path}: {name}: {error}") from error
        recorded.append((name, load, float(record["silicon_cycles"])))
    return Series(path.name, recorded, RECORDED.get(path.stem))


def measure(
    selected: Sequence[Job],
    console: Console,
    *,
    models: str = "fixed",
    params: TmaParams = PRESETS["default"],
) -> list[BoxResult]:
    """Measure all jobs in one simulation; return their results in order.

    Parameters
    ----------
    selected : sequence of Job
        Jobs of any series, in any mix.
    console : Console
        Shows the progress.
    models : str
        Preset of ``sim_tb.testbench.models``.
    params : TmaParams
        Parameters of the unit.
    """
    results = []
    with progress_bar(console) as progress:
        task = progress.add_task("boxes", total=len(selected))
        targets = [item.target for item in selected]
        answers = jobs.results(MODULE, targets, env={"TIMING_MODELS": models}, params=params)
        for item, answer in zip(selected, answers, strict=True):
            match answer:
                case SteadyState(cycles, lines, counts):
                    result = replace(
                        item.result, cycles=cycles, requested_lines=lines, counts=counts
                    )
                case MixedCycles():
                    slower = max(answer.load_mixed, answer.store_mixed)
                    result = replace(item.result, cycles=slower, mixed=answer)
                case _:
                    result = replace(item.result, error=str(answer))
            results.append(result)
            progress.advance(task)
    return results
