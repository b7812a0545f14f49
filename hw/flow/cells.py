"""Counts the cells that each optional feature adds: ``make cells``.

Yosys maps the unit to gates and flip-flops, without sharing and without a technology. Memories are
counted in bits. Queues and tables are small, so that logic dominates.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from amaranth.back import rtlil
from rich.console import Console
from rich.table import Table

from hw.flow import yosys
from hw.params import PRESETS, TmaParams
from hw.top import Tma

DIRECTORY = Path("build/cells")
SCRIPT = (
    "read_rtlil {0}.il; hierarchy -top tma; proc; chformal -remove; flatten; "
    "setattr -unset init w:*; opt; wreduce; techmap; opt_clean; tee -q -o {0}.json stat -json"
)

BASE = replace(
    PRESETS["default"],
    tags=16,
    requests_in_flight=16,
    lane_depth=4,
    request_queue_depth=2,
    descriptor_cache_entries=2,
    setup_pipelines=1,
    smem_reads=4,
    threads=16,
    streams=1,
    barrier_waiters=8,
    stores=False,
    reductions=False,
    im2col=False,
)
"""Unit without the features: it loads tiles, interleaved tiles and bytes."""

FEATURES = {
    **dict.fromkeys(("stores", "reductions"), True),
    "ctas": 4,
    **dict.fromkeys(("im2col", "gather4", "im2col_w", "swizzle_atoms", "swizzle_96b"), True),
    **dict.fromkeys(("sub_byte", "cp_mask", "mbarrier_v1"), True),
    **dict.fromkeys(("scatter4_negative", "b6p2x16_64", "ignore_oob", "override"), True),
    **dict.fromkeys(("multicast_32b", "report_mechanism", "counters"), True),
}
"""Parameter of each feature, and its value with the feature."""

NEEDS = {
    **dict.fromkeys(("reductions", "ctas", "cp_mask"), ("stores",)),
    "im2col_w": ("im2col",),
    "scatter4_negative": ("gather4", "stores"),
    "sub_byte": ("swizzle_atoms",),
    "b6p2x16_64": ("sub_byte", "swizzle_atoms", "stores"),
    "multicast_32b": ("ctas", "stores"),
    "report_mechanism": ("mbarrier_v1",),
}
"""Features that a feature needs."""


@dataclass(frozen=True)
class Cells:
    """Cells of a unit after generic mapping."""

    gates: int
    flip_flops: int
    memory_bits: int


def count(params: TmaParams, name: str) -> Cells:
    """Map a unit and count its cells; the files of Yosys stay in ``build/cells``."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / name
    path.with_suffix(".il").write_text(rtlil.convert(Tma(params), name="tma", emit_src=False))
    yosys.run(SCRIPT.format(path), Path())
    design = json.loads(path.with_suffix(".json").read_text())["design"]
    counts = design["num_cells_by_type"]
    flip_flops = sum(number for kind, number in counts.items() if "DFF" in kind)
    no_gates = sum(n for kind, n in counts.items() if kind.startswith(("$mem", "$scope")))
    gates = design["num_cells"] - flip_flops - no_gates
    return Cells(gates, flip_flops, design["num_memory_bits"])


def features() -> Iterator[tuple[str, TmaParams, TmaParams]]:
    """Yield each feature, a unit with the feature, and the same unit without it."""
    for feature, value in FEATURES.items():
        without = replace(BASE, **{name: FEATURES[name] for name in NEEDS.get(feature, ())})
        yield feature, replace(without, **{feature: value}), without


def main() -> int:
    """Print the table of all features; return the exit status."""
    console = Console()
    table = Table("unit", "gates", "flip-flops", "memory bits", title="cells", title_justify="left")
    base = count(BASE, "base")
    counted = {BASE: base}
    table.add_row(
        "without the features below",
        *(f"{number}" for number in (base.gates, base.flip_flops, base.memory_bits)),
    )
    for feature, params, without in features():
        for each, file in (without, f"{feature}-without"), (params, feature):
            if each not in counted:
                counted[each] = count(each, file)
        cells, base = counted[params], counted[without]
        name = feature if FEATURES[feature] is True else f"{feature} = {FEATURES[feature]}"
        needs = f", beside {' and '.join(NEEDS[feature])}" if feature in NEEDS else ""
        table.add_row(
            f"{name}{needs}",
            f"+{cells.gates - base.gates}",
            f"+{cells.flip_flops - base.flip_flops}",
            f"+{cells.memory_bits - base.memory_bits}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
