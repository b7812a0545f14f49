"""Measurements of chosen boxes: tiny boxes, rows, latencies, descriptor misses, bandwidth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from golden import Load, Store, TensorMap
from hw.params import PRESETS, TmaParams
from sim_tb.performance.kinds import every_load, every_store
from sim_tb.performance.row_boxes import RowBox
from sim_tb.performance.series import MODULE, box_of
from sim_tb.performance.tb_latency import Latency
from sim_tb.performance.tb_timing import Box, LoadStorePair, MixedCycles, SteadyState
from sim_tb.simulator import jobs

DEFAULT = PRESETS["default"]
TAGS = 64, 128, 256, 512
LATENCIES = 64, 100, 200, 300, 500, 700, 1000
BANDWIDTH_LINES = 128
"""Lines of the box that measures bandwidth."""

AXI_LATENCY = 400
"""Latency in clocks with which the ports to memory are compared."""

AXI_WIDTHS = 64, 128, 512, 1024
"""Widths of AXI4 ports, in bits."""

AXI_UNIT = replace(
    PRESETS["tiny"],
    address_bits=64,
    line_bytes=128,
    tags=512,
    requests_in_flight=16,
    lane_depth=16,
    smem_reads=16,
    stores=True,
)
"""Unit behind the ports that are compared: lines of 128 bytes, and enough tags for the latency."""

MAX_TINY_CYCLES = 2
"""Most cycles of a box of 16 bytes."""

MAX_FIRST_LINE, MAX_LAST_PHASE = 30, 8
"""Most clocks from a request to its first line read, and from the last write to the phase."""

KeyT = TypeVar("KeyT")


class MeasurementError(RuntimeError):
    """A box could not be measured."""


def measure_all(
    targets: Mapping[KeyT, Box | LoadStorePair], params: TmaParams = DEFAULT
) -> dict[KeyT, Any]:
    """Measure boxes and pairs in one simulation; return their results by the same keys.

    Raises
    ------
    MeasurementError
        If one of them fails.
    """
    env = {"TIMING_MODELS": "fixed"}
    answers = jobs.results(MODULE, list(targets.values()), env=env, params=params)
    results = dict(zip(targets, answers, strict=True))
    for key, result in results.items():
        if not isinstance(result, SteadyState | MixedCycles):
            raise MeasurementError(f"{key}: {result}")
    return results


def tiny_loads(params: TmaParams = DEFAULT) -> dict[str, SteadyState]:
    """Measure loads of one row, of 16 bytes, or 32 bytes with 32-byte interleave, by name."""
    boxes = {name: box_of(load) for name, load in every_load(16, 1).items()}
    return measure_all(boxes, params)


def tiny_stores(params: TmaParams = DEFAULT) -> dict[str, SteadyState]:
    """Measure stores of the boxes of ``tiny_loads``, by the same names."""
    boxes = {name: box_of(store) for name, store in every_store(16, 1).items()}
    return measure_all(boxes, params)


def row_cycles(
    selected: Iterable[RowBox], params: TmaParams = DEFAULT
) -> dict[RowBox, SteadyState]:
    """Measure boxes of rows."""
    return measure_all({rows: box_of(rows.load) for rows in selected}, params)


def latencies(params: TmaParams = DEFAULT) -> dict[str, Latency]:
    """Measure single loads of 1 KiB of every mode and rank through the empty unit, by name."""
    loads = every_load(128, 8)
    boxes = [box_of(load) for load in loads.values()]
    answers = jobs.results("sim_tb.performance.tb_latency", boxes, env={}, params=params)
    return dict(zip(loads, answers, strict=True))


def box_of_lines(lines: int) -> Box:
    """Return a box of 128, 256 or 512 lines."""
    width = min(lines, 256)
    shape = (256, 4096), (256,), (width, lines * 128 // width)
    return box_of(Load(TensorMap.tiled("u8", 1 << 20, *shape), (0, 0)))


def descriptor_misses(
    sizes: Sequence[int], params: TmaParams = DEFAULT
) -> dict[int, tuple[SteadyState, SteadyState]]:
    """Measure boxes of ``sizes`` lines, by their size.

    The first result is with a tensor map that is in the descriptor cache, the second with a new
    map for each box.
    """
    boxes: dict[tuple[int, bool], Box | LoadStorePair] = {}
    for lines in sizes:
        box = box_of_lines(lines)
        boxes |= {(lines, misses): replace(box, misses=misses) for misses in (False, True)}
    results = measure_all(boxes, params)
    return {lines: (results[lines, False], results[lines, True]) for lines in sizes}


def bandwidth_box(
    latency: int, params: TmaParams = DEFAULT, request: type[Load | Store] = Load
) -> Box:
    """Return a box that saturates a memory that answers after ``latency`` clocks."""
    width = params.line_bytes
    shape = (width, 4096), (128,), (width, BANDWIDTH_LINES)
    box = box_of(request(TensorMap.tiled("u8", 1 << 20, *shape), (0, 0)))
    floor = BANDWIDTH_LINES / attainable_rate(params, latency)
    return replace(box, floor=floor, latency=latency)


def bandwidth(
    params: TmaParams = DEFAULT, latencies: Sequence[int] = LATENCIES
) -> dict[int, float]:
    """Measure lines a clock, by the latency of the memory."""
    boxes = {latency: bandwidth_box(latency, params) for latency in latencies}
    results = measure_all(boxes, params)
    return {latency: result.lines / result.cycles for latency, result in results.items()}


def port_rates(params: TmaParams) -> dict[str, float]:
    """Measure lines a clock of loads and of stores at ``AXI_LATENCY``."""
    ways = {"loads": Load, "stores": Store}
    boxes = {way: bandwidth_box(AXI_LATENCY, params, request) for way, request in ways.items()}
    results = measure_all(boxes, params)
    return {way: result.lines / result.cycles for way, result in results.items()}


def bus_rate(params: TmaParams) -> float:
    """Return the lines a clock that the port to memory can carry: one, or what fits an AXI4 bus."""
    return float(min(1.0, params.axi_bytes / params.line_bytes)) if params.axi_data_bits else 1.0


def attainable_rate(params: TmaParams, latency: int) -> float:
    """Return the lines a clock that the port and the tags allow at a latency in clocks."""
    return float(min(bus_rate(params), params.tags / latency))
