"""What is measured of the unit besides recorded boxes: tiny boxes, rows, latencies, bandwidth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from golden import Load, TensorMap
from hw.params import PRESETS, TmaParams
from sim_tb.performance.kinds import Kind, every_load, every_store
from sim_tb.performance.rows import Rows
from sim_tb.performance.series import MODULE, boxed
from sim_tb.performance.tb_latency import Latency
from sim_tb.performance.tb_timing import Box, Pair, Taken, Together
from sim_tb.simulator import jobs

DEFAULT = PRESETS["default"]
TAGS = 64, 128, 256, 512
LATENCIES = 64, 100, 200, 300, 500, 700, 1000
LINES = 128
"""Of a box that asks for all the bandwidth there is."""

TINY = 2
"""Cycles that a box of 16 bytes may take."""

FIRST_LINE, LAST_PHASE = 12, 4
"""Clocks from a request to its first line read, and from the last write to the phase."""

Item = Box | Pair
KeyT = TypeVar("KeyT")


class FailedError(RuntimeError):
    """A box could not be measured."""


def timed(items: Mapping[KeyT, Item], params: TmaParams = DEFAULT) -> dict[KeyT, Any]:
    """Measure boxes and pairs in one simulation.

    Raises
    ------
    FailedError
        If one of them fails.
    """
    env = {"TIMING_MODELS": "fixed"}
    answers = jobs.results(MODULE, list(items.values()), env=env, params=params)
    found = dict(zip(items, answers, strict=True))
    for name, answer in found.items():
        if not isinstance(answer, Taken | Together):
            raise FailedError(f"{name}: {answer}")
    return found


def box_of(request: Kind) -> Box:
    """A request to be timed."""
    return boxed(request)[0]


def tiny(params: TmaParams = DEFAULT) -> dict[str, Taken]:
    """Boxes of one row of 16 bytes, or of 32 with 32-byte interleave, back to back."""
    return timed({name: box_of(load) for name, load in every_load(16, 1).items()}, params)


def tiny_stores(params: TmaParams = DEFAULT) -> dict[str, Taken]:
    """The same, stored."""
    return timed({name: box_of(store) for name, store in every_store(16, 1).items()}, params)


def rows(selected: Iterable[Rows], params: TmaParams = DEFAULT) -> dict[Rows, Taken]:
    """Boxes of rows."""
    return timed({item: box_of(item.load) for item in selected}, params)


def latencies(params: TmaParams = DEFAULT) -> dict[str, Latency]:
    """Of single boxes of eight rows, of every mode and rank, with an empty unit."""
    kinds = every_load(128, 8)
    boxes = [box_of(load) for load in kinds.values()]
    answers = jobs.results("sim_tb.performance.tb_latency", boxes, env={}, params=params)
    return dict(zip(kinds, answers, strict=True))


def missed(lines: int) -> Box:
    """A box of so many lines: 128, 256 or 512."""
    width = min(lines, 256)
    shape = (256, 4096), (256,), (width, lines * 128 // width)
    return box_of(Load(TensorMap.tiled("u8", 1 << 20, *shape), (0, 0)))


def misses(lines: Sequence[int], params: TmaParams = DEFAULT) -> dict[int, tuple[Taken, Taken]]:
    """Boxes of so many lines: with a tensor map that is in the descriptor cache, and each with a
    map of its own that is not.
    """
    items: dict[tuple[int, bool], Item] = {}
    for count in lines:
        items |= {(count, miss): replace(missed(count), misses=miss) for miss in (False, True)}
    found = timed(items, params)
    return {count: (found[count, False], found[count, True]) for count in lines}


def late(latency: int, params: TmaParams = DEFAULT) -> Box:
    """A box that asks for all the bandwidth there is, of a memory with this latency."""
    width = params.line_bytes
    shape = (width, 4096), (128,), (width, LINES)
    box = box_of(Load(TensorMap.tiled("u8", 1 << 20, *shape), (0, 0)))
    return replace(box, floor=LINES / attainable(params, latency), latency=latency)


def bandwidth(
    params: TmaParams = DEFAULT, latencies: Sequence[int] = LATENCIES
) -> dict[int, float]:
    """Lines a clock by the memory's latency."""
    found = timed({latency: late(latency, params) for latency in latencies}, params)
    rates: dict[int, float] = {}
    for latency, taken in found.items():
        rates[latency] = taken.lines / taken.cycles
    return rates


def attainable(params: TmaParams, latency: int) -> float:
    """Lines a clock that so many tags allow."""
    return float(min(1.0, params.tags / latency))
