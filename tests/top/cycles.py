"""Clocks of bursts on the unit: ``python -m tests.top.cycles`` measures them and writes the file.

Clocks are exact. A test compares them with ``cycles.json``, so that a change of the unit that costs
a clock anywhere is deliberate, and its diff shows what it costs. A line of the file has a memory, a
burst, and its ``BurstTimes``: clocks of the loads and of the stores, and lines read and written.
The command prints the bursts that are slower than before. Its exit status is then 1, and the file
has the new clocks.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw.params import PRESETS
from sim_tb.command_line import Parser, entry_point
from sim_tb.performance.kinds import every_load, every_store, load_outside
from sim_tb.performance.microbenchmarks import box_of_lines
from sim_tb.performance.row_boxes import some_row_boxes
from sim_tb.performance.series import box_of
from sim_tb.performance.tb_timing import Box, LoadStorePair, interleaved
from sim_tb.simulator import runner

FILE = Path(__file__).with_suffix(".json")

WRITE = "CYCLES_WRITE"
"""Environment variable: if it is set, the test writes the file."""

STREAMS = tuple(range(PRESETS["default"].streams))

FAR = "tile, rank 2", "im2col, rank 4", "bulk"
"""Kinds of boxes whose bursts are also measured with far memory, and in each stream alone."""


@dataclass(frozen=True)
class Burst:
    """Boxes that are issued back to back; ``streams`` issue the loads in turn."""

    boxes: list[Box]
    streams: tuple[int, ...] = STREAMS


def bursts() -> dict[str, Burst]:
    """Return bursts by the name of a memory and their own.

    Of each mode and rank, there are boxes of a row of 16 bytes and of several rows, loaded, stored
    and both; boxes of each stream alone; boxes of rows of all widths and offsets; fill; large
    boxes, also with a new tensor map each. Memory is near; for some bursts it is far, so that more
    of them are under way.
    """
    found: dict[str, Burst] = {}
    for row_bytes, rows, count in ((16, 1, 32), (48, 4, 12), (128, 24, 6)):
        stores = every_store(row_bytes, rows)
        for name, load in every_load(row_bytes, rows).items():
            size = f"{rows} x {row_bytes} B, {name}"
            boxes = [box_of(load)] * count, [box_of(stores[name])] * count
            for memory in ("near", "fixed") if name in FAR else ("near",):
                found[f"{memory}: load {size}"] = Burst(boxes[0])
                found[f"{memory}: store {size}"] = Burst(boxes[1])
                pair = LoadStorePair(boxes[0][0], boxes[1][0])
                found[f"{memory}: both {size}"] = Burst([*interleaved(pair, count, count)])
    tiny = every_load(16, 1)
    for name in FAR:
        boxes_of_one = [box_of(tiny[name])] * 64
        for stream in STREAMS:
            found[f"near: load 1 x 16 B, {name}, stream {stream}"] = Burst(boxes_of_one, (stream,))
    for rows in some_row_boxes():
        kind = "dense" if rows.dense else "sparse"
        burst = Burst([box_of(rows.load)] * 4)
        found[f"near: load {kind} rows of {rows.width} B at {rows.offset}"] = burst
    found["near: load outside"] = Burst([box_of(load_outside("of rank 5"))] * 8)
    for misses in (False, True):
        large = replace(box_of_lines(256), misses=misses)
        found[f"fixed: load 256 lines{', a map each' if misses else ''}"] = Burst([large] * 8)
    return dict(sorted(found.items(), key=lambda each: each[0].partition(":")[0]))


def slower(before: dict[str, list[int]], after: dict[str, list[int]]) -> list[str]:
    """Return a message for each burst with a larger figure ``after`` than ``before``."""
    return [
        f"{name}: {after[name]}, was {figures}"
        for name, figures in before.items()
        if name in after and any(new > old for old, new in zip(figures, after[name], strict=True))
    ]


@entry_point
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the bursts on the default unit, and write the file; see ``--help``."""
    Parser(prog="python -m tests.top.cycles", description=__doc__).parse_args(arguments)
    before = json.loads(FILE.read_text())
    runner.run("tests.top.tb_cycles", env={WRITE: "1"})
    messages = slower(before, json.loads(FILE.read_text()))
    print("\n".join([*messages, f"{len(messages)} bursts are slower than before"]))
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
